// A page of CopilotKit without a screen: the official core over a node's runtime routes, or over
// CopilotKit's own runtime for node, whose agent is the official HttpAgent. Run by node with the directory
// of the packages, the node's URL, a thread, what the page is over, and a credential. Prints what the page
// has at the end.

import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [directory, url, threadId, over, credential] = process.argv.slice(2);
const require = createRequire(`${directory}/node_modules/`);
const load = (id) => import(pathToFileURL(require.resolve(id)));
const headers = credential ? { authorization: `Bearer ${credential}` } : {};

async function startRuntime() {
  process.env.COPILOTKIT_TELEMETRY_DISABLED = 'true';
  const { CopilotRuntime } = await load('@copilotkit/runtime/v2');
  const { createCopilotNodeListener } = await load('@copilotkit/runtime/v2/node');
  const { HttpAgent } = await load('agui-client-0');
  const runtime = new CopilotRuntime({ agents: { a: new HttpAgent({ url: `${url}/v1/agents/a/ag-ui` }) } });
  const server = createServer(createCopilotNodeListener({ runtime, basePath: '/api' }));
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  return `http://127.0.0.1:${server.address().port}/api`;
}

const runtimeUrl = over === 'runtime' ? await startRuntime() : `${url}/v1/copilotkit`;
// The core looks for agents in browsers only.
globalThis.window = globalThis;
const { CopilotKitCore } = await load('@copilotkit/core');

const ran = [];
const core = new CopilotKitCore({
  runtimeUrl,
  headers,
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
const other = new CopilotKitCore({ runtimeUrl, headers });
for (let n = 0; n < 600 && other.runtimeConnectionStatus !== 'connected'; n += 1) {
  await new Promise((done) => setTimeout(done, 50));
}
const loaded = other.getAgent('a');
loaded.threadId = threadId;
await other.connectAgent({ agent: loaded });
console.log(JSON.stringify({ atFirst, ranBefore, interrupts, ran, messages: agent.messages, loaded: loaded.messages }));
process.exit(0);
