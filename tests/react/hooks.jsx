// A page with the hooks of @abide/react.

import { Abide } from '@abide/client';
import { useConversation, useInbox } from '@abide/react';
import { useEffect } from 'react';
import { createRoot } from 'react-dom/client';

import { note, query } from './page.js';

const abide = new Abide({ url: query.get('node') });

function tool(name) {
  return async () => {
    note(name);
    return { by: 'page' };
  };
}
const tools = { locate: tool('locate'), pay: tool('pay') };

const textOf = ({ content }) => content.map(({ text }) => text).join('');

function Inbox() {
  const { calls, loading } = useInbox(abide, { kind: 'approval', interval: 100 });
  return <p id="inbox">{loading ? 'Loading' : `${calls.length} wait`}</p>;
}

function Page() {
  const { messages, calls, connected, send } = useConversation(abide, query.get('thread'), { agent: 'a', tools });
  useEffect(() => {
    if (connected) document.body.dataset.ready = '';
  }, [connected]);
  const approvals = calls.filter(({ kind }) => kind === 'approval');
  return (
    <>
      {messages.filter(({ role }) => role === 'assistant').map((it) => <p key={it.id}>{textOf(it)}</p>)}
      {approvals.map((call) => (
        <div id="card" key={call.callId}>
          {call.message}
          <button onClick={() => call.approve()}>Approve</button>
        </div>
      ))}
      <textarea onKeyDown={({ key, target }) => key === 'Enter' && send(target.value)} />
      <Inbox />
    </>
  );
}

const root = document.createElement('div');
document.body.append(root);
createRoot(root).render(<Page />);
