// A client of AG-UI without a screen: the official HttpAgent. Commands come as lines of JSON on standard
// input, and what the client has after each goes to standard output as one. Run by node with the
// directory of the packages, the version of the client, and the options of the agent.

import { createInterface } from 'node:readline';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [directory, version, options] = process.argv.slice(2);
const { agent: name, thread, tools, headers } = JSON.parse(options);
const require = createRequire(`${directory}/node_modules/`);
const load = (id) => import(pathToFileURL(require.resolve(id)));
const { HttpAgent } = await load(`agui-client-${version}`);
const schemas = await load(version === '1' ? 'agui-core-1/schemas' : 'agui-core-0');

// What the client says about a run that failed is in the report.
console.error = () => {};
process.on('unhandledRejection', () => {});

let events = [];
const invalid = [];
const warnings = [];
console.warn = (...what) => warnings.push(what.join(' '));

const agent = new HttpAgent({ url: 'http://unset', threadId: thread, headers });
agent.subscribe({
  onEvent({ event }) {
    events.push(event);
    const checked = schemas.EventSchemas.safeParse(event);
    if (!checked.success) invalid.push({ event, why: String(checked.error) });
    if (['TEXT_MESSAGE_CONTENT', 'TOOL_CALL_END'].includes(event.type)) report({ event });
  },
});

function report(what) {
  process.stdout.write(`${JSON.stringify(what)}\n`);
}

const commands = {
  aim: ({ url }) => {
    agent.url = `${url}/v1/agents/${name}/ag-ui`;
  },
  say: ({ id, text }) => agent.addMessage({ id, role: 'user', content: text }),
  result: ({ call, content, error }) =>
    agent.addMessage({ id: `own_${call}`, role: 'tool', toolCallId: call, content, error }),
  forget: () => {
    agent.setMessages([]);
    agent.pendingInterrupts = [];
  },
  run: async (given) => {
    events = [];
    const parameters = { tools: tools.map((tool) => ({ name: tool, description: tool, parameters: { type: 'object' } })), ...given };
    try {
      await agent.runAgent(parameters);
    } catch (error) {
      return { failed: String(error) };
    }
    return {};
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...given } = JSON.parse(line);
  Promise.resolve()
    .then(() => commands[command](given))
    .catch((error) => ({ failed: String(error) }))
    .then((result) =>
      report({
        done: command,
        failed: result?.failed ?? null,
        events,
        messages: agent.messages,
        state: agent.state,
        interrupts: agent.pendingInterrupts,
        invalid,
        warnings,
      }),
    );
}
process.exit(0);
