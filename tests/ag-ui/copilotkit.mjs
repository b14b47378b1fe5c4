// A page of CopilotKit without a screen: the official core over a node's runtime routes. Run by node with
// the directory of the packages, the node's URL and a thread. Prints what the page has at the end.

import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [directory, url, threadId] = process.argv.slice(2);
const require = createRequire(`${directory}/node_modules/`);
// The core looks for agents in browsers only.
globalThis.window = globalThis;
const { CopilotKitCore } = await import(pathToFileURL(require.resolve('@copilotkit/core')));

const ran = [];
const core = new CopilotKitCore({
  runtimeUrl: `${url}/v1/copilotkit`,
  tools: [
    {
      name: 'locate',
      description: 'Locates the page.',
      handler: async () => {
        ran.push('locate');
        return { at: 'home' };
      },
    },
    {
      name: 'pay',
      description: 'Pays.',
      handler: async () => {
        ran.push('pay');
        return 'paid';
      },
    },
  ],
});
for (let n = 0; n < 600 && core.runtimeConnectionStatus !== 'connected'; n += 1) {
  await new Promise((done) => setTimeout(done, 50));
}
const agent = core.getAgent('a');
agent.threadId = threadId;
await core.connectAgent({ agent });
const atFirst = agent.messages.length;
let runId;
agent.subscribe({ onRunStartedEvent: ({ event }) => void (runId = event.runId) });
agent.addMessage({ id: `${threadId}-1`, role: 'user', content: 'go' });
await core.runAgent({ agent });
const ranBefore = [...ran];
const interrupts = agent.pendingInterrupts.map(({ id }) => id);

// What useInterrupt does with an approval: a result of its own, and the same run again.
const payload = { approved: true };
for (const { id, toolCallId } of agent.pendingInterrupts) {
  agent.addMessage({ id: `echo-${id}`, role: 'tool', toolCallId, content: JSON.stringify(payload) });
}
const resume = agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: 'resolved', payload }));
await core.runAgent({ agent, resume, runId });

// A page that is loaded again.
const other = new CopilotKitCore({ runtimeUrl: `${url}/v1/copilotkit` });
for (let n = 0; n < 600 && other.runtimeConnectionStatus !== 'connected'; n += 1) {
  await new Promise((done) => setTimeout(done, 50));
}
const loaded = other.getAgent('a');
loaded.threadId = threadId;
await other.connectAgent({ agent: loaded });
console.log(JSON.stringify({ atFirst, ranBefore, interrupts, ran, messages: agent.messages, loaded: loaded.messages }));
process.exit(0);
