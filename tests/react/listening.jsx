// A page with `useChat`, which listens between its requests.

import { Abide } from '@abide/client';
import { abideTransport, useListening } from '@abide/react/chat';
import { useChat } from '@ai-sdk/react';
import { lastAssistantMessageIsCompleteWithToolCalls } from 'ai';
import { createRoot } from 'react-dom/client';

import { note, query } from './page.js';

const abide = new Abide({ url: query.get('node') });
const transport = abideTransport(abide, { agent: 'a' });
const id = query.get('thread');

function Chat({ initial }) {
  const chat = useChat({
    id,
    messages: initial,
    transport,
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
    onToolCall({ toolCall: { toolName, toolCallId } }) {
      note(toolName);
      chat.addToolOutput({ tool: toolName, toolCallId, output: { by: 'page' } });
    },
  });
  useListening(abide, transport, chat);
  const parts = chat.messages.flatMap((message) => message.parts);
  const card = parts.find(({ state }) => state === 'approval-requested');
  const send = (event) => {
    if (event.key === 'Enter') chat.sendMessage({ text: event.target.value });
  };
  return (
    <>
      <p id="text">{parts.map(({ type, text }) => (type === 'text' ? text : '')).join(' ')}</p>
      {card && <div id="card">{card.approval.descriptor.message}</div>}
      <p id="status">{chat.status}</p>
      <textarea onKeyDown={send} />
    </>
  );
}

const initial = await transport.messages(id);
const root = document.createElement('div');
document.body.append(root);
createRoot(root).render(<Chat initial={initial} />);
document.body.dataset.ready = '';
