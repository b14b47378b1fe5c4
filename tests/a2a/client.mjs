// A2A's own client for node, one case at a time: node client.mjs PACKAGES CASE OPTIONS. The case's result
// goes to standard output as JSON. What is asserted of it is in tests/cluster/a2a.rs.

import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [directory, name, text] = process.argv.slice(2);
const options = JSON.parse(text);
const require = createRequire(`${directory}/node_modules/`);
const load = async (name) => import(pathToFileURL(require.resolve(name)));

const { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory } =
  await load('@a2a-js/sdk/client');
const { SendMessageRequest, StreamResponse, Task } = await load('@a2a-js/sdk');

const fetchImpl = (url, init = {}) => {
  const headers = { ...init.headers };
  if (options.key) headers.authorization = `Bearer ${options.key}`;
  return fetch(url, { ...init, headers });
};
const agent = options.agent ?? 'a';
const factory = new ClientFactory(
  ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports: [new JsonRpcTransportFactory({ fetchImpl })],
    cardResolver: new DefaultAgentCardResolver({ fetchImpl }),
  }),
);
const client = await factory.createFromUrl(
  options.base,
  `/a2a/${agent}/.well-known/agent-card.json`,
);

const request = (message, configuration) =>
  SendMessageRequest.fromJSON({
    message: { messageId: crypto.randomUUID(), role: 'ROLE_USER', ...message },
    configuration,
  });
const say = (text) => request({ contextId: options.context, parts: [{ text }] });
const plain = (task) => Task.toJSON(task);
const refusal = (error) => ({
  name: error.name,
  code: error.envelopeCode ?? error.cause?.envelopeCode ?? null,
  message: error.message,
});
const attempt = (promise) =>
  promise.then(
    (value) => ({ value }),
    (error) => ({ refused: refusal(error) }),
  );

/** The questions of a task. */
const questions = (task) =>
  plain(task)
    .status.message.parts.filter((part) => part.data)
    .map((part) => part.data.abide);

/** A message with data for a task. */
const answers = (task, data) =>
  request({ taskId: task.id, parts: data.map((data) => ({ data })) });

/** Reads a stream, and at most this many characters of its text. */
async function read(stream, most = Infinity) {
  const told = { task: null, text: '', states: [], error: null };
  const texts = new Map();
  try {
    for await (const event of stream) {
      const { task, artifactUpdate, statusUpdate } = StreamResponse.toJSON(event);
      if (task) {
        told.task = task;
        told.states.push(task.status.state);
        for (const { artifactId, parts } of task.artifacts ?? []) texts.set(artifactId, parts[0].text);
      }
      if (artifactUpdate) {
        const { artifactId, parts } = artifactUpdate.artifact;
        const before = artifactUpdate.append ? texts.get(artifactId) : '';
        texts.set(artifactId, before + parts.map(({ text }) => text).join(''));
      }
      if (statusUpdate) told.states.push(statusUpdate.status.state);
      told.text = [...texts.values()].join('');
      if (told.text.length >= most) break;
      if (options.until && told.states.at(-1) === options.until) break;
    }
  } catch (error) {
    told.error = refusal(error);
  }
  return told;
}

const cases = {
  card: async () => (await client.getAgentCard()).name,

  send: async () => plain(await client.sendMessage(say(options.text ?? 'hello'))),

  stream: async () => read(client.sendMessageStream(say(options.text ?? 'hello')), options.most),

  // Follows a task, or reads it if it is over already.
  subscribe: async () => {
    const request = { tenant: '', id: options.task };
    const told = await read(client.resubscribeTask(request), options.most);
    if (told.error?.code !== -32004) return told;
    const task = plain(await client.getTask(request));
    const text = (task.artifacts ?? []).map(({ parts }) => parts[0].text).join('');
    return { task, text, states: [task.status.state], error: null };
  },

  get: async () => plain(await client.getTask({ tenant: '', id: options.task })),

  cancel: async () => {
    const request = { tenant: '', id: options.task };
    const canceled = plain(await client.cancelTask(request));
    return { canceled, again: await attempt(client.cancelTask(request)) };
  },

  answer: async () => {
    const task = await client.getTask({ tenant: '', id: options.task });
    const data = questions(task).map(({ call_id, suspension }) => ({
      call_id,
      suspension,
      ...options.answer,
    }));
    return read(client.sendMessageStream(answers(task, data)));
  },

  gate: async () => {
    const asked = await client.sendMessage(say('go'));
    const text = request({ taskId: asked.id, parts: [{ text: 'yes, go ahead' }] });
    const words = await attempt(client.sendMessage(text));
    const [{ call_id }] = questions(asked);
    const given = await client.sendMessage(answers(asked, [{ call_id, approved: true }]));
    const late = await attempt(client.sendMessage(answers(asked, [{ call_id, approved: false }])));
    return { asked: plain(asked), words, given: plain(given), late };
  },

  refused: async () => {
    const missing = { tenant: '', id: 'k_a.nothing' };
    const done = await client.sendMessage(say('hello'));
    return {
      missing: (await attempt(client.getTask(missing))).refused,
      over: (await read(client.resubscribeTask({ tenant: '', id: done.id }))).error,
      empty: (await attempt(client.sendMessage(request({ parts: [] })))).refused,
      push: (await attempt(client.sendMessage(request({ parts: [{ text: 'x' }] },
        { taskPushNotificationConfig: { url: 'https://example.com' } })))).refused,
    };
  },
};

const result = await cases[name]();
process.stdout.write(JSON.stringify(result));
