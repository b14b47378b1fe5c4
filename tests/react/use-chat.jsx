// A page with `useChat` of the AI SDK, over a node.

import { useChat } from '@ai-sdk/react';
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses, lastAssistantMessageIsCompleteWithToolCalls } from 'ai';
import { useEffect } from 'react';
import { createRoot } from 'react-dom/client';

import { note, query } from './page.js';

const api = `${query.get('node')}/v1/agents/a/ui`;
const id = query.get('thread');
const transport = new DefaultChatTransport({ api: `${api}?v=7` });

function Part({ part, approve }) {
  if (part.type === 'text') return <p>{part.text}</p>;
  if (part.state !== 'approval-requested') return null;
  return (
    <div id="card">
      {part.approval.descriptor.message}
      <button onClick={() => approve({ id: part.approval.id, approved: true })}>Approve</button>
    </div>
  );
}

function Chat({ initial }) {
  const { messages, sendMessage, addToolApprovalResponse, addToolOutput, resumeStream } = useChat({
    id,
    messages: initial,
    transport,
    sendAutomaticallyWhen: (all) =>
      lastAssistantMessageIsCompleteWithApprovalResponses(all) ||
      lastAssistantMessageIsCompleteWithToolCalls(all),
    onToolCall({ toolCall: { toolName, toolCallId } }) {
      note(toolName);
      addToolOutput({ tool: toolName, toolCallId, output: { by: 'page' } });
    },
  });
  // What is answered while the turn is told again is lost.
  useEffect(() => void resumeStream().finally(() => void (document.body.dataset.ready = '')), []);
  const send = (event) => {
    if (event.key === 'Enter') sendMessage({ text: event.target.value });
  };
  return (
    <>
      {messages.flatMap(({ id, parts }) =>
        parts.map((part, n) => <Part key={`${id}-${n}`} part={part} approve={addToolApprovalResponse} />),
      )}
      <textarea onKeyDown={send} />
    </>
  );
}

const answer = await fetch(`${api}/${id}/messages`);
const root = document.createElement('div');
document.body.append(root);
createRoot(root).render(<Chat initial={answer.ok ? await answer.json() : []} />);
