// Serves HTTP tools: a handler that believes only what a node has signed.
import { AbideError } from "./errors.js";

/** The largest request that is read: more than a node sends. */
const MAX_BODY_BYTES = 4 << 20;
/** How far the clock of a node may be from this one, in seconds. */
const TOLERANCE_S = 300;
/** How many results are remembered, so that a call that is repeated after a crash does not run again. */
const MAX_RESULTS = 1_000;
/** How many signatures of a request are looked at. */
const MAX_SIGNATURES = 16;

/** A request has no valid signature. */
export class SignatureError extends AbideError {}

/** Throw it in a tool: the call ends as an error, which the model reads. `halt` ends the turn, too. */
export class Rejection extends AbideError {
  constructor(message, { errorType = "TOOL_ERROR", halt } = {}) {
    super(message);
    this.errorType = errorType;
    this.halt = halt;
  }
}

/** A result with something that is shown to people and never to the model: `ui: {kind, payload}`. */
export class Reply {
  constructor(result, { ui, halt } = {}) {
    [this.result, this.ui, this.halt] = [result, ui, halt];
  }
}

const fromBase64 = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));

function importKey(secret) {
  let bytes;
  try {
    bytes = fromBase64(secret.replace(/^whsec_/, ""));
  } catch {
    throw new TypeError("secrets: a secret is not whsec_ and base64");
  }
  return crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
}

/** Rejects with a `SignatureError` unless one of the secrets has signed the body (bytes), as Standard
 * Webhooks say. `headers`: a `Headers`, or an object with names in lower case. */
export async function verify(headers, body, secrets, options) {
  await verifyWith(headers, body, await Promise.all(secrets.map(importKey)), options);
}

async function verifyWith(headers, body, keys, { tolerance = TOLERANCE_S, now = Date.now() / 1_000 } = {}) {
  const header = (name) => (headers.get ? headers.get(name) : headers[name]) ?? "";
  const [id, stamp, given] = ["id", "timestamp", "signature"].map((name) => header(`webhook-${name}`));
  if (!id || !stamp || !given) throw new SignatureError("the request is not signed");
  if (!/^[0-9]{1,15}$/.test(stamp)) throw new SignatureError("webhook-timestamp is no time");
  if (Math.abs(now - Number(stamp)) > tolerance) {
    throw new SignatureError("webhook-timestamp is too old or too new");
  }
  const begin = new TextEncoder().encode(`${id}.${stamp}.`);
  const text = new Uint8Array(begin.length + body.length);
  text.set(begin);
  text.set(body, begin.length);
  for (const part of given.split(" ").slice(0, MAX_SIGNATURES)) {
    const [version, encoded = ""] = part.split(",");
    let signature;
    try {
      signature = fromBase64(encoded);
    } catch {
      continue;
    }
    if (version !== "v1") continue;
    for (const key of keys) {
      if (await crypto.subtle.verify("HMAC", key, signature, text)) return;
    }
  }
  throw new SignatureError("no signature is that of a known secret");
}

const respond = (status, body, type = "application/json") =>
  new Response(body, { status, headers: { "content-type": type, "cache-control": "no-store" } });
const json = ({ status, body }) => respond(status, JSON.stringify(body));
const failure = (status, error) => json({ status, body: { ok: false, error, error_type: "TOOL_ERROR" } });

/** The tools of one server, by name. A request may go to any path: its body names the tool. */
export class HttpTools {
  #keys;
  #tolerance;
  #tools = new Map();
  /** The answer of each call, as `{status, body}`, or a promise of it while the call runs. */
  #results = new Map();

  /** `secrets`: those that nodes sign with; several while one is replaced. Null: requests are not
   * verified, for a server that nobody else can reach. Several attempts of one call run once: the results
   * of the last 1,000 calls are remembered while this process lives. A server of more processes, or one
   * that must not forget, honours `request.idempotencyKey` itself. */
  constructor({ secrets, tolerance }) {
    if (secrets !== null && !(secrets?.length > 0)) throw new TypeError("secrets: give at least one, or null");
    this.#keys = secrets && Promise.all(secrets.map(importKey));
    // The first request learns of a wrong secret, too.
    this.#keys?.catch(() => {});
    this.#tolerance = tolerance;
  }

  /** Adds a tool: `fn(args, request)` returns the result as JSON or a `Reply`, or a promise of it. An async
   * generator yields its progress, and returns the result. */
  tool(name, fn) {
    this.#tools.set(name, fn);
    return this;
  }

  /** Answers a `Request` with a `Response`: for any server with the fetch API. */
  fetch = async (request) => {
    if (request.method !== "POST") return failure(405, "a tool is called by POST");
    const body = await readBody(request.body);
    if (!body) return failure(413, "the request is too large");
    if (this.#keys) {
      try {
        await verifyWith(request.headers, body, await this.#keys, { tolerance: this.#tolerance });
      } catch (error) {
        if (error instanceof SignatureError) return failure(401, error.message);
        throw error;
      }
    }
    const call = read(body);
    if (!call) return failure(400, "the body is not that of a call");
    const tool = this.#tools.get(call.tool);
    if (!tool) return failure(404, `there is no tool ${JSON.stringify(call.tool)}`);
    const key = request.headers.get("idempotency-key") ?? `${call.conversationId}/${call.callId}/${call.turnId}`;
    return this.#runOnce(tool, { ...call, idempotencyKey: key });
  };

  /** Answers a request of node's `http.createServer`. */
  listener = async (request, response) => {
    const { method } = request;
    const entries = Object.entries(request.headers).map(([name, value]) => [name, String(value)]);
    const body = method === "GET" || method === "HEAD" ? undefined : request;
    const url = new URL(request.url, "http://localhost");
    let answer;
    try {
      answer = await this.fetch(new Request(url, { method, headers: entries, body, duplex: "half" }));
    } catch (error) {
      console.error(error);
      answer = failure(500, "the tool failed");
    }
    // What was not read of a large request is dropped with the connection.
    if (answer.status === 413) response.setHeader("connection", "close");
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    const reader = answer.body.getReader();
    // A node that closes the connection stops the tool.
    response.on("close", () => reader.cancel().catch(() => {}));
    for (let read; !(read = await reader.read().catch(() => ({ done: true }))).done; ) {
      if (!response.write(read.value)) await Promise.race([once(response, "drain"), once(response, "close")]);
    }
    response.end();
  };

  /** Runs a call, or waits for the attempt that runs it. Only results are remembered. */
  async #runOnce(tool, request) {
    const key = request.idempotencyKey;
    for (let known; (known = this.#results.get(key)); ) {
      const answer = await known;
      // An attempt that was stopped, as when its node died, has no answer: this one runs.
      if (answer !== STOPPED) return json(answer);
    }
    let resolve;
    this.#results.set(key, new Promise((done) => (resolve = done)));
    for (const old of this.#results.keys()) {
      if (this.#results.size <= MAX_RESULTS) break;
      if (old !== key) this.#results.delete(old);
    }
    const end = (answer) => {
      if (!answer.body.ok) this.#results.delete(key);
      resolve(answer);
      return answer;
    };
    try {
      const result = await tool(request.args, request);
      const isStream = typeof result?.next === "function" && result[Symbol.asyncIterator];
      return isStream ? respond(200, lines(result, end), "application/x-ndjson") : json(end(success(result)));
    } catch (error) {
      return json(end(refusal(error)));
    }
  }
}

const once = (emitter, name) => new Promise((done) => emitter.once(name, done));

function success(result) {
  const reply = result instanceof Reply ? result : new Reply(result);
  const body = { ok: true, result: reply.result ?? null, ui: reply.ui, halt: reply.halt };
  // A value that is not JSON is a bug of the tool, and found here.
  JSON.stringify(body);
  return { status: 200, body };
}

function refusal(error) {
  if (error instanceof Rejection) {
    const { message, errorType: error_type, halt } = error;
    return { status: 200, body: { ok: false, error: message, error_type, halt } };
  }
  // A bug's text stays here.
  console.error(error);
  return { status: 500, body: { ok: false, error: "the tool failed", error_type: "TOOL_ERROR" } };
}

/** The answer of a call whose node has closed the connection. */
const STOPPED = refusal(new Rejection("the call was stopped"));

/** The lines of a tool that reports its progress: each is made when the node reads it. */
function lines(run, end) {
  const line = (value) => new TextEncoder().encode(`${JSON.stringify(value)}\n`);
  return new ReadableStream({
    async pull(feed) {
      try {
        const { value, done } = await run.next();
        feed.enqueue(line(done ? end(success(value)).body : { progress: value ?? null }));
        if (done) feed.close();
      } catch (error) {
        feed.enqueue(line(end(refusal(error)).body));
        feed.close();
      }
    },
    async cancel() {
      end(STOPPED);
      await run.return();
    },
  });
}

/** The bytes of a body, or undefined if there are too many. */
async function readBody(stream) {
  const chunks = [];
  let size = 0;
  for await (const chunk of stream ?? []) {
    size += chunk.length;
    if (size > MAX_BODY_BYTES) return undefined;
    chunks.push(chunk);
  }
  return new Uint8Array(await new Blob(chunks).arrayBuffer());
}

/** The call of a body, or undefined if it is none. */
function read(body) {
  let call;
  try {
    call = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
  } catch {
    return undefined;
  }
  const isCall = ["tool", "conversation_id", "call_id"].every((name) => typeof call?.[name] === "string");
  if (!isCall) return undefined;
  return {
    tool: call.tool,
    args: call.args,
    conversationId: call.conversation_id,
    callId: call.call_id,
    turnId: call.turn_id ?? null,
    attempt: Number(call.attempt) || 1,
    principal: call.principal ?? null,
    assigns: call.assigns ?? {},
    approvals: call.approvals ?? [],
  };
}
