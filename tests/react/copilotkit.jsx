// A page with CopilotKit's own chat, whose runtime is a node.

import { CopilotChat, CopilotChatConfigurationProvider, CopilotKitProvider, useCopilotKit, useFrontendTool, useInterrupt } from '@copilotkit/react-core/v2';
import { useEffect } from 'react';
import { createRoot } from 'react-dom/client';
import { z } from 'zod';

import { note, query } from './page.js';

function Tools() {
  const tool = (name) => ({
    name,
    description: name,
    parameters: z.object({}),
    handler: async () => {
      note(name);
      return { by: 'page' };
    },
  });
  const { copilotkit } = useCopilotKit();
  // A message to an agent that the page does not know yet stays in the field.
  useEffect(() => {
    if (copilotkit.runtimeConnectionStatus === 'connected') document.body.dataset.ready = '';
  }, [copilotkit.runtimeConnectionStatus]);
  useFrontendTool(tool('locate'));
  useFrontendTool(tool('pay'));
  useInterrupt({
    render: ({ interrupt, resolve }) => (
      <div id="card">
        {interrupt.message}
        <button onClick={() => resolve({ approved: true })}>Approve</button>
      </div>
    ),
  });
  return null;
}

const root = document.createElement('div');
document.body.append(root);
createRoot(root).render(
  <CopilotKitProvider runtimeUrl={`${query.get('node')}/v1/copilotkit`}>
    <CopilotChatConfigurationProvider agentId="a" threadId={query.get('thread')}>
      <Tools />
      <CopilotChat agentId="a" threadId={query.get('thread')} />
    </CopilotChatConfigurationProvider>
  </CopilotKitProvider>,
);
