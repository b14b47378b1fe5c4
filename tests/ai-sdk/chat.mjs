// A chat page without a screen: the AI SDK's own chat and transport. Commands come as lines of JSON on
// standard input, and each change of the chat goes to standard output as one. Run by node with the
// directory of the packages, the package's name, and the options of the page.

import { createInterface } from 'node:readline';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [directory, name, options] = process.argv.slice(2);
const { agent, id, tools, headers } = JSON.parse(options);
const require = createRequire(`${directory}/node_modules/`);
const ai = await import(pathToFileURL(require.resolve(name)));

const version = name === 'ai7' ? '?v=7' : '';
let base = '';
let requests = 0;
let body = {};
const ran = [];
const data = [];

function report(what) {
  process.stdout.write(`${JSON.stringify(what)}\n`);
}

function reportState() {
  const { status, messages } = chat;
  const error = chat.error?.message ?? null;
  report({ state: { status, error, messages, requests, ran, data } });
}

class State {
  #status = 'ready';
  #error;
  #messages = [];

  get status() {
    return this.#status;
  }

  set status(status) {
    this.#status = status;
    reportState();
  }

  get error() {
    return this.#error;
  }

  set error(error) {
    this.#error = error;
    reportState();
  }

  get messages() {
    return this.#messages;
  }

  set messages(messages) {
    this.#messages = messages;
    reportState();
  }

  pushMessage(message) {
    this.messages = [...this.#messages, message];
  }

  popMessage() {
    this.messages = this.#messages.slice(0, -1);
  }

  replaceMessage(index, message) {
    this.messages = this.#messages.map((other, at) => (at === index ? structuredClone(message) : other));
  }

  snapshot(value) {
    return structuredClone(value);
  }
}

class Chat extends ai.AbstractChat {}

const api = () => `${base}/v1/agents/${agent}/ui`;

// The transport reads its address once; the node's changes.
class Transport extends ai.DefaultChatTransport {
  async sendMessages(given) {
    requests += 1;
    this.api = `${api()}${version}`;
    return super.sendMessages(given);
  }

  async reconnectToStream(given) {
    this.api = `${api()}${version}`;
    return super.reconnectToStream(given);
  }
}

const chat = new Chat({
  id,
  state: new State(),
  transport: new Transport({ headers, body: () => body }),
  sendAutomaticallyWhen: (all) =>
    ai.lastAssistantMessageIsCompleteWithApprovalResponses(all) ||
    ai.lastAssistantMessageIsCompleteWithToolCalls(all),
  onToolCall({ toolCall }) {
    const { toolName, toolCallId, input } = toolCall;
    if (!tools.includes(toolName)) return;
    ran.push({ toolName, input });
    chat.addToolOutput({ tool: toolName, toolCallId, output: { by: 'page', input } });
  },
  onData(part) {
    data.push(part);
    reportState();
  },
});

async function request(path, init) {
  const response = await fetch(`${api()}/${id}/${path}`, { headers, ...init });
  return { status: response.status, body: await response.json().catch(() => null) };
}

const commands = {
  aim: ({ url }) => {
    base = url;
  },
  extras: (given) => {
    body = given.body;
  },
  send: ({ text, messageId, files }) =>
    chat.sendMessage({ id: messageId, role: 'user', parts: [...(files ?? []), { type: 'text', text }] }),
  again: () => chat.sendMessage(),
  approve: ({ approval, approved, reason }) =>
    chat.addToolApprovalResponse({ id: approval, approved, reason }),
  answer: ({ call, tool, output, errorText }) =>
    chat.addToolOutput(
      errorText === undefined
        ? { tool, toolCallId: call, output }
        : { tool, toolCallId: call, state: 'output-error', errorText },
    ),
  regenerate: () => chat.regenerate(),
  resume: () => chat.resumeStream(),
  stop: () => request('stop', { method: 'POST' }),
  // Loads the messages as a page does that is opened anew.
  load: async () => {
    const { body } = await request('messages');
    if (body.length > 0) await ai.validateUIMessages({ messages: body });
    chat.messages = body;
  },
  // Takes as long as ten requests: a page that sends for ever would do so meanwhile.
  settle: async () => {
    for (let n = 0; n < 10; n += 1) await request('messages');
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...given } = JSON.parse(line);
  // A command that waits for a stream does not hold up the next.
  Promise.resolve()
    .then(() => commands[command](given))
    .then(
      (result) => report({ done: command, result: result ?? null }),
      (error) => report({ failed: command, error: String(error) }),
    )
    .then(reportState);
}
process.exit(0);
