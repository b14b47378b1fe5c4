// OpenAI's own clients, one case at a time: node client.mjs PACKAGES CASE OPTIONS. The case's result goes
// to standard output as JSON. What is asserted of it is in tests/cluster/openai.rs.

import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [directory, name, text] = process.argv.slice(2);
const options = JSON.parse(text);
const require = createRequire(`${directory}/node_modules/`);
const load = async (name) => import(pathToFileURL(require.resolve(name)));

const { default: OpenAI } = await load('openai');
const baseURL = `${options.base}/openai/v1`;
const apiKey = options.key ?? 'none';
const client = new OpenAI({ baseURL, apiKey, maxRetries: options.retries ?? 0 });
const { model = 'a', conversation } = options;

const user = (content) => ({ role: 'user', content });
const refusal = (error) => ({ status: error.status ?? null, code: error.code ?? null, message: error.message });
const attempt = (promise) => promise.then((value) => ({ value }), (error) => ({ refused: refusal(error) }));
const locate = {
  type: 'function',
  function: {
    name: 'locate',
    description: 'Where is the page?',
    parameters: { type: 'object', properties: {} },
    parse: JSON.parse,
    function: async () => ({ at: 'home' }),
  },
};

/** Reads a stream of events, and at most this many characters of its text. */
async function read(stream, most = Infinity) {
  const told = { text: '', number: 0, kinds: [], items: [], response: null, error: null };
  try {
    for await (const event of stream) {
      told.number = event.sequence_number;
      told.kinds.push(event.type);
      if (event.type === 'response.output_text.delta') told.text += event.delta;
      if (event.response) told.response = event.response;
      if (event.item_id) told.items.push(event.item_id);
      if (options.report) process.stderr.write('.');
      if (told.text.length >= most) break;
    }
  } catch (error) {
    told.error = refusal(error);
  }
  return told;
}

const cases = {
  models: async () => (await client.models.list()).data.map(({ id }) => id),

  chat: async () => {
    const messages = [user('hello')];
    const headers = { headers: { 'abide-conversation': conversation } };
    const plain = await client.chat.completions.create({ model, messages }, headers);
    messages.push(plain.choices[0].message, user('again'));
    const runner = client.chat.completions.stream({ model, messages }, headers);
    const streamed = await runner.finalContent();
    return { plain: plain.choices[0].message.content, streamed };
  },

  tools: async () => {
    const runner = client.chat.completions.runTools({
      model,
      messages: [user('where?')],
      tools: [locate],
      metadata: { conversation_id: conversation },
    });
    return { content: await runner.finalContent(), messages: runner.messages.length };
  },

  // A message in a chat, plain.
  say: async () => {
    const messages = [user(options.text)];
    const body = { model, messages, metadata: { conversation_id: conversation } };
    const { value, refused } = await attempt(client.chat.completions.create(body));
    return { refused, content: value?.choices[0].message.content };
  },

  // A message in a chat, streamed.
  sayStreamed: async () => {
    const body = { model, messages: [user(options.text)], stream: true };
    return attempt((async () => {
      let content = '';
      for await (const chunk of await client.chat.completions.create(body)) {
        content += chunk.choices[0]?.delta.content ?? '';
      }
      return content;
    })());
  },

  responses: async () => {
    const first = await client.responses.create({ model, input: 'hello' });
    const previous_response_id = first.id;
    const second = await client.responses.create({ model, input: 'again', previous_response_id });
    const { data } = await client.conversations.items.list(first.conversation.id, { order: 'asc' });
    return { first, second, text: second.output_text, items: data.map(({ type }) => type) };
  },

  approval: async () => {
    const asked = await client.responses.stream({ model, input: 'go', conversation }).finalResponse();
    const input = asked.output
      .filter(({ type }) => type === 'mcp_approval_request')
      .map(({ id }) => ({ type: 'mcp_approval_response', approval_request_id: id, approve: true }));
    const given = await client.responses
      .stream({ model, input, previous_response_id: asked.id })
      .finalResponse();
    const again = [await client.responses.retrieve(asked.id), await client.responses.retrieve(given.id)];
    const late = await attempt(client.responses.create({ model, input, previous_response_id: asked.id, user: 'x' }));
    const { data } = await client.conversations.items.list(conversation, { order: 'asc' });
    return { asked, given, again, late, items: data.map(({ type }) => type) };
  },

  // Asks, and ends.
  ask: async () => client.responses.create({ model, input: 'go', conversation }),

  // Answers all that an earlier response asked for.
  answer: async () => {
    const previous = await client.responses.retrieve(options.previous);
    const input = previous.output.flatMap((item) => {
      if (item.type === 'mcp_approval_request') {
        return [{ type: 'mcp_approval_response', approval_request_id: item.id, approve: true }];
      }
      if (item.type === 'function_call') {
        return [{ type: 'function_call_output', call_id: item.call_id, output: options.output }];
      }
      return [];
    });
    return client.responses.create({ model, input, previous_response_id: previous.id });
  },

  background: async () => {
    const begun = await client.responses.create({ model, input: 'go', background: true });
    let polled = begun;
    while (polled.status === 'queued' || polled.status === 'in_progress') {
      polled = await client.responses.retrieve(begun.id);
    }
    const other = await client.responses.create({ model, input: 'go', background: true });
    const cancelled = await client.responses.cancel(other.id);
    return { begun: begun.status, polled, cancelled: cancelled.status };
  },

  busy: async () => {
    const first = await client.responses.create({ model, input: 'go', conversation, background: true });
    const refused = await attempt(client.responses.create({ model, input: 'and?', conversation }));
    await client.responses.cancel(first.id);
    return refused;
  },

  // Reads some characters of a stream, or until it breaks.
  cut: async () =>
    read(await client.responses.create({ model, input: 'go', conversation, stream: true }), options.most),

  // Goes on after a cut.
  resume: async () =>
    read(await client.responses.retrieve(options.response, { stream: true, starting_after: options.number })),

  // The helper checks identities and indexes of a replay.
  replay: async () => client.responses.stream({ response_id: options.response }).finalResponse(),

  agentsTool: async () => {
    const { Agent, OpenAIProvider, Runner, tool } = await load('@openai/agents');
    const page = tool({
      name: 'locate',
      description: 'Where is the page?',
      parameters: { type: 'object', properties: {}, required: [], additionalProperties: false },
      strict: true,
      execute: async () => ({ at: 'home' }),
    });
    const modelProvider = new OpenAIProvider({ openAIClient: client, useResponses: true });
    const runner = new Runner({ modelProvider, tracingDisabled: true });
    const agent = new Agent({ name: 'page', model, tools: [page] });
    const result = await runner.run(agent, 'where?', { conversationId: conversation });
    return { output: result.finalOutput };
  },

  agentsApproval: async () => {
    const { Agent, OpenAIProvider, Runner, hostedMcpTool } = await load('@openai/agents');
    const hosted = hostedMcpTool({
      serverLabel: 'abide',
      serverUrl: 'http://abide.invalid',
      requireApproval: 'always',
    });
    const modelProvider = new OpenAIProvider({ openAIClient: client, useResponses: true });
    const runner = new Runner({ modelProvider, tracingDisabled: true });
    const agent = new Agent({ name: 'page', model, tools: [hosted] });
    const asked = await runner.run(agent, 'go', { conversationId: conversation });
    const interruptions = asked.interruptions.length;
    asked.interruptions.forEach((interruption) => asked.state.approve(interruption));
    const result = await runner.run(agent, asked.state, { conversationId: conversation });
    return { interruptions, output: result.finalOutput };
  },

  aiSdk: async () => {
    const { streamText } = await load('ai');
    const { createOpenAI } = await load('@ai-sdk/openai');
    const openai = createOpenAI({ baseURL, apiKey });
    const result = streamText({ model: openai.responses(model), prompt: 'hello' });
    return { text: await result.text, reasoning: await result.reasoningText };
  },
};

const result = await cases[name]();
process.stdout.write(`${JSON.stringify(result ?? null)}\n`);
process.exit(0);
