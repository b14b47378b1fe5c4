// The official MCP client for node, one case at a time: node client.mjs PACKAGES CASE OPTIONS. The case's
// result goes to standard output as JSON. What is asserted of it is in tests/cluster/mcp_server.rs.

import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [directory, name, text] = process.argv.slice(2);
const options = JSON.parse(text);
const require = createRequire(`${directory}/node_modules/`);
const sdk = await import(pathToFileURL(require.resolve('@modelcontextprotocol/client')));

const asked = [];
const progress = [];

/** Answers as a person would: each question by what its form has. */
function answer({ params }) {
  asked.push(params);
  const isApproval = 'approved' in params.requestedSchema.properties;
  const given = isApproval ? options.approval : options.answer;
  return typeof given === 'string' ? { action: given } : { action: 'accept', content: given };
}

/** A client of this era of the protocol: `auto` negotiates, `legacy` is 2025-11-25. */
async function connect() {
  const { era: mode = 'auto', credential, asks = true, path = '/mcp' } = options;
  const capabilities = asks ? { elicitation: {} } : {};
  const identity = { name: 'abide-tests', version: '1' };
  const client = new sdk.Client(identity, { capabilities, versionNegotiation: { mode } });
  if (asks) client.setRequestHandler('elicitation/create', answer);
  const headers = credential ? { authorization: `Bearer ${credential}` } : {};
  const url = new URL(options.base + path);
  await client.connect(new sdk.StreamableHTTPClientTransport(url, { requestInit: { headers } }));
  return client;
}

const parameters = () => ({ name: options.tool ?? 'a', arguments: options.arguments });
// The client does not notice that a stream was cut: its timeout does.
const timeout = 10_000;
const onprogress = ({ message }) => progress.push(message);

const cases = {
  tools: async (client) => ({
    version: client.getNegotiatedProtocolVersion?.() ?? null,
    tools: (await client.listTools()).tools,
  }),

  // A call with all its rounds.
  call: async (client) => client.callTool(parameters(), { onprogress, timeout }),

  // The first round of a call, whatever comes of it.
  ask: async (client) => client.callTool(parameters(), { allowInputRequired: true, timeout }),

  // A later round, in a process that knows only what the client was given.
  answer: async (client) => {
    const { requestState, inputResponses } = options;
    const params = { ...parameters(), requestState, inputResponses };
    return client.callTool(params, { allowInputRequired: true, timeout });
  },
};

let result = null;
let error = null;
try {
  const client = await connect();
  result = await cases[name](client);
  await client.close();
} catch (caught) {
  error = { name: caught.constructor.name, code: caught.code ?? null, message: caught.message };
}
process.stdout.write(JSON.stringify({ result, error, asked, progress }), () => process.exit(0));
