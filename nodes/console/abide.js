// One conversation of Abide in a page: follows it, also when nodes end, sends messages, answers calls,
// and executes its client tools. No dependency, no build step; current browsers only. It needs the two
// modules that it imports beside it.
import { withCredential } from "./credential.js";
import { fold, ids, LIVE_FRAMES, parser } from "./frames.js";

export { fold, parser };

/** The largest body that a node reads. */
const MAX_BODY_BYTES = 1 << 20;
/** The longest error text that is sent to a node. */
const MAX_ERROR_CHARS = 2_000;
/** A node sends a line every 15 s; a stream that is silent for this long is dead. */
const SILENCE_TIMEOUT_MS = 40_000;
/** A node answers in milliseconds; a stopped one never does, but another may. */
const REQUEST_TIMEOUT_MS = 10_000;
/** The first delay before a retry, and the longest. */
const RETRY_DELAY_MS = 100;
const MAX_RETRY_DELAY_MS = 10_000;
/** The statuses with which a node, or a proxy before it, asks for a later retry. */
const RETRY_STATUSES = [429, 502, 503, 504];

/** A problem that a node answered with. `type` is its name, such as `turn-in-flight`. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? `HTTP ${status}`);
    this.name = "Problem";
    this.status = status;
    this.type = String(body.type ?? "").replace("/problems/", "");
  }

  static async of(response) {
    return new Problem(response.status, await response.json().catch(() => ({})));
  }
}

/** The delay before the next try, in ms: it grows after every URL was tried once. */
export function retryDelay(tries, urls, random = Math.random()) {
  const grown = RETRY_DELAY_MS * 2 ** Math.floor(tries / urls);
  return Math.min(grown, MAX_RETRY_DELAY_MS) * (0.5 + random / 2);
}

/** The body that reports a tool's result, or an error if the result cannot be sent. */
export function resultBody(result, suspension) {
  let body;
  try {
    // A tool that returns nothing has succeeded.
    const text = JSON.stringify(result ?? null);
    if (text === undefined) return errorBody("the page's result is not JSON", suspension);
    body = `{"result":${text},"suspension":${suspension}}`;
  } catch (error) {
    return errorBody(`the page's result is not JSON: ${error.message}`, suspension);
  }
  const bytes = new TextEncoder().encode(body).length;
  if (bytes <= MAX_BODY_BYTES) return body;
  return errorBody(`the page's result has ${bytes} bytes, more than ${MAX_BODY_BYTES}`, suspension);
}

function errorBody(error, suspension) {
  const text = String(error?.message ?? error).slice(0, MAX_ERROR_CHARS).toWellFormed();
  return JSON.stringify({ error: text || "the page's tool failed", suspension });
}

/** A random name; unlike `crypto.randomUUID`, it works without TLS. */
function randomName() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const pathOf = (conversation) => `/v1/conversations/${encodeURIComponent(conversation)}`;

/** Follows a conversation. `url` or `urls`: its nodes; by default the page's own origin. `agent`:
 * creates the conversation if it does not exist, with the members of `create` (`tools`, `metadata`,
 * `assigns`). `after`: a seq; listeners get every frame after it. `fetch`: replaces the page's own.
 * `token`: returns the page's credential, or a promise of it, as a text or as `{token, expires_at}`;
 * called again before it expires and when a node refuses it. */
export function connect(options) {
  return new Conversation(options);
}

class Conversation {
  /** The members of the snapshot, kept current, with `messages` (the newest ones), `streaming` (the
   * message that is being streamed, or null) and `connected`. Each change makes a new object. */
  state = { connected: false, messages: [], pending: [], child_pending: [], in_flight: [], streaming: null };
  #options;
  #urls;
  #path;
  #fetch;
  /** Counts changes of the URL; modulo their number, it is the index of the current one. */
  #urlIndex = 0;
  #closing = new AbortController();
  #listeners = new Map();
  #tools = new Map();
  /** The run of each pending call that this page has taken up, as long as the call is pending. */
  #runs = new Map();
  /** The seq of the last event whose frames the listeners got, and the last seq of the snapshot. */
  #lastSeq;
  #snapshotSeq = 0;
  /** When the conversation was created. */
  #createdAt;
  /** Frames without an id that wait for the last frame of their event. */
  #incomplete = [];

  constructor(options) {
    const { url = "", urls = [url], conversation, after, fetch, token } = options;
    this.#options = options;
    this.#urls = urls.map((url) => url.replace(/\/+$/, ""));
    this.#path = pathOf(conversation);
    this.#fetch = fetch ?? globalThis.fetch.bind(globalThis);
    if (token) this.#fetch = withCredential(this.#fetch, token);
    this.#lastSeq = after;
    this.#follow();
  }

  /** Calls `fn(data, id)` for each frame of this name, and for two more: `change` (the state) after
   * every change, and `error` (an Error) for errors that no promise reports. Returns a function that
   * removes the listener. */
  on(name, fn) {
    if (!this.#listeners.has(name)) this.#listeners.set(name, new Set());
    this.#listeners.get(name).add(fn);
    return () => this.#listeners.get(name).delete(fn);
  }

  /** Sends a text, or content blocks; the options are those of the API, such as `if_busy`. Repeats the
   * request, as the same message, until a node has accepted it. */
  async send(content, options = {}) {
    const message = typeof content === "string" ? { text: content } : { content };
    const { agent } = this.#options;
    const body = JSON.stringify({ ...message, agent, message_id: randomName(), ...options });
    const accepted = await this.#request("POST", `${this.#path}/messages`, body);
    this.#readMessages();
    return accepted;
  }

  /** Resolves a call (its id, or an entry of `state.pending` or `state.child_pending`) with
   * `{approved, …}`, `{result}` or `{error}`. Returns `{status: "stale"}` if the call was resolved by
   * another client or no longer waits for this answer. */
  async resolve(call, answer) {
    const isOpen = ({ call_id }) => call_id === call;
    const open = call.call_id ? call : (this.state.pending.find(isOpen) ?? { call_id: call });
    return this.#resolve(open, JSON.stringify({ suspension: open.suspension, ...answer }));
  }

  /** Cancels the running turn. */
  cancel() {
    return this.#request("POST", `${this.#path}/cancel`, "{}", randomName());
  }

  /** The turns that wait, the next one first. */
  async queue() {
    return (await this.#request("GET", `${this.#path}/queue`)).queued;
  }

  /** Withdraws a turn that waits. */
  withdraw(turnId) {
    return this.#request("DELETE", `${this.#path}/queue/${encodeURIComponent(turnId)}`, undefined, randomName());
  }

  /** Goes on from the event of this `seq`: what came after it counts no longer. */
  rewind(seq) {
    return this.#request("POST", `${this.#path}/rewind`, JSON.stringify({ to_seq: seq }), randomName());
  }

  /** Begins a turn anew, with its message: the last one, or the one with this id. */
  regenerate(turnId) {
    return this.#request("POST", `${this.#path}/regenerate`, JSON.stringify({ turn_id: turnId }), randomName());
  }

  /** Executes the client tool of this name, for children, too: `fn(args, call)` returns its result, or a
   * promise of it. `call.signal` is aborted when the call is no longer open. Of several pages in one
   * browser, one executes a call, and another takes over if that page is closed. */
  tool(name, fn) {
    this.#tools.set(name, fn);
    this.#execute();
  }

  /** Closes the conversation in this page: no event, retry or execution follows. */
  close() {
    this.#closing.abort(new DOMException("the conversation was closed", "AbortError"));
    this.#change({ ...this.state, connected: false });
  }

  get closed() {
    return this.#closing.signal.aborted;
  }

  /** Keeps a stream open, at one URL after another. */
  async #follow() {
    let mayCreate = Boolean(this.#options.agent);
    for (let tries = 0; !this.closed; tries += 1) {
      try {
        await this.#stream(() => (tries = 0));
      } catch (error) {
        const missing = error.status === 404 && this.state.id === undefined;
        const isPermanent = error instanceof Problem && error.status < 500 && error.status !== 429;
        if (missing && mayCreate) {
          mayCreate = false;
          await this.#create();
          continue;
        }
        if (isPermanent) this.#emit("error", error);
        if (isPermanent) return this.close();
      }
      if (this.closed) return;
      this.#change({ ...this.state, connected: false });
      this.#urlIndex += 1;
      await this.#sleep(retryDelay(tries, this.#urls.length));
    }
  }

  /** Reads one stream to its end. */
  async #stream(onSnapshot) {
    const silent = new AbortController();
    const signal = AbortSignal.any([this.#closing.signal, silent.signal]);
    let alarm;
    const restartAlarm = () => {
      clearTimeout(alarm);
      alarm = setTimeout(() => silent.abort(), SILENCE_TIMEOUT_MS);
    };
    const after = this.#lastSeq === undefined ? "" : `?after=${this.#lastSeq}`;
    try {
      restartAlarm();
      const response = await this.#fetch(`${this.#url()}${this.#path}/events${after}`, { signal });
      if (!response.ok) throw await Problem.of(response);
      const parse = parser((frame) => {
        if (frame.name === "snapshot") onSnapshot();
        if (!this.closed) this.#take(frame);
      });
      const reader = response.body.getReader();
      for (let read; !(read = await reader.read()).done; restartAlarm()) parse(read.value);
    } finally {
      clearTimeout(alarm);
      // Nothing more is read of a stream that cannot be understood.
      silent.abort();
    }
  }

  /** Takes a frame, unless the listeners had it before. */
  #take({ name, id, data: text }) {
    const [data, seq] = [JSON.parse(text), id === undefined ? undefined : Number(id)];
    if (name === "snapshot") {
      this.#incomplete = [];
      this.#snapshotSeq = data.last_seq;
      // A conversation that was deleted and created again counts from the beginning.
      const isNew = this.#createdAt && this.#createdAt !== data.created_at;
      if (isNew) this.#lastSeq = data.last_seq;
      this.#createdAt = data.created_at;
      this.#lastSeq ??= data.last_seq;
      this.#change({ ...fold(this.state, name, data), connected: true });
      this.#emit(name, data);
      this.#readMessages();
    } else if (LIVE_FRAMES.includes(name)) {
      this.#apply(name, data);
    } else if (seq === undefined) {
      this.#incomplete.push([name, data]);
    } else {
      const frames = [...this.#incomplete.splice(0), [name, data]];
      if (seq <= this.#lastSeq) return;
      this.#lastSeq = seq;
      frames.forEach(([name, data]) => this.#apply(name, data, seq));
    }
  }

  /** Changes the state and calls the listeners. */
  #apply(name, data, seq = Infinity) {
    const next = fold(this.state, name, data);
    if (name.endsWith("_delta") && next.streaming === this.state.streaming) return;
    // A frame from before the snapshot would set the state back: only listeners get it.
    if (seq > this.#snapshotSeq) this.#change(next);
    this.#emit(name, data, seq === Infinity ? undefined : seq);
    // A node of an older version has no frame for the user's message.
    const asks = ({ role, turn_id }) => role === "user" && turn_id === data.turn_id;
    const isUnknown = name === "turn_started" && !next.messages.some(asks);
    const isOther = isUnknown || name === "rewound";
    if (isOther && seq > this.#snapshotSeq) this.#readMessages();
  }

  #change(state) {
    if (state === this.state) return;
    this.state = state;
    this.#execute();
    this.#emit("change", state);
  }

  #emit(name, ...values) {
    const listeners = [...(this.#listeners.get(name) ?? [])];
    if (name === "error" && listeners.length === 0) console.error(...values);
    for (const listener of listeners) {
      try {
        listener(...values);
      } catch (error) {
        console.error(error);
      }
    }
  }

  /** Reads the newest messages; older ones stay, and so do those that arrive meanwhile. */
  async #readMessages() {
    const before = this.state.messages;
    const page = await this.#request("GET", `${this.#path}/messages`).catch((error) => error);
    if (page instanceof Error) return this.closed || this.#emit("error", page);
    const known = ids(before);
    const read = ids(page.messages);
    // A queued message may have moved: what is older begins before the page's first message.
    const begin = before.findIndex(({ id }) => id === page.messages[0]?.id);
    const first = begin < 0 ? before.findIndex(({ id }) => read.has(id)) : begin;
    const older = before.slice(0, Math.max(first, 0)).filter(({ id }) => !read.has(id));
    const newer = this.state.messages.filter(({ id }) => !known.has(id) && !read.has(id));
    this.#change({ ...this.state, messages: [...older, ...page.messages, ...newer] });
  }

  async #create() {
    const { conversation: id, agent, create } = this.#options;
    const body = JSON.stringify({ ...create, id, agent });
    try {
      await this.#request("POST", "/v1/conversations", body, randomName());
    } catch (error) {
      if (!this.closed && error.type !== "conversation-exists") this.#emit("error", error);
    }
  }

  /** Takes up pending calls whose tool this page has, and aborts runs whose call is closed. */
  #execute() {
    const pending = new Set();
    for (const call of this.closed ? [] : [...this.state.pending, ...this.state.child_pending]) {
      const name = `abide:${this.#pathOf(call)}/${call.call_id}/${call.suspension}`;
      pending.add(name);
      if (call.kind !== "client_exec" || !this.#tools.has(call.tool)) continue;
      if (this.#runs.has(name)) continue;
      const run = new AbortController();
      this.#runs.set(name, run);
      this.#claim(name, call, run.signal).catch((error) => {
        if (!run.signal.aborted) this.#emit("error", error);
      });
    }
    for (const [name, run] of this.#runs) {
      if (pending.has(name)) continue;
      this.#runs.delete(name);
      run.abort(new DOMException("the call is no longer open", "AbortError"));
    }
  }

  /** Runs a call when no other page of this browser holds it. */
  async #claim(name, call, signal) {
    const run = async () => {
      // Another page may have resolved the call while this one waited for the lock.
      const { pending } = await this.#request("GET", this.#pathOf(call));
      const same = (it) => it.call_id === call.call_id && it.suspension === call.suspension;
      if (pending.some(same)) await this.#run({ ...call, signal });
    };
    const locks = globalThis.navigator?.locks;
    if (!locks) return run();
    return locks.request(name, { signal }, run).catch((error) => {
      // A page with an opaque origin may not use locks.
      if (error.name !== "SecurityError") throw error;
      return run();
    });
  }

  async #run(call) {
    const { suspension, signal } = call;
    signal.throwIfAborted();
    const runTool = async () => this.#tools.get(call.tool)(structuredClone(call.args), call);
    const aborted = new Promise((_, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason));
    });
    let body;
    try {
      body = resultBody(await Promise.race([runTool(), aborted]), suspension);
    } catch (error) {
      signal.throwIfAborted();
      body = errorBody(error, suspension);
    }
    try {
      await this.#resolve(call, body);
    } catch (problem) {
      if (![400, 413, 422].includes(problem.status)) throw problem;
      const refused = `the page's result was refused: ${problem.message}`;
      await this.#resolve(call, errorBody(refused, suspension));
    }
  }

  async #resolve(call, body) {
    const path = `${this.#pathOf(call)}/calls/${encodeURIComponent(call.call_id)}/resolution`;
    try {
      return await this.#request("POST", path, body, randomName());
    } catch (problem) {
      if (problem.type !== "call-not-open") throw problem;
      return { status: "stale" };
    }
  }

  /** Sends a request to one URL after another until one answers. `key` makes it safe to repeat. */
  async #request(method, path, body, key) {
    const headers = { ...(body && { "content-type": "application/json" }) };
    if (key) headers["idempotency-key"] = key;
    for (let tries = 0, index = this.#urlIndex; ; tries += 1, index += 1) {
      let delay = retryDelay(tries, this.#urls.length);
      const signal = AbortSignal.any([this.#closing.signal, AbortSignal.timeout(REQUEST_TIMEOUT_MS)]);
      try {
        const request = { method, headers, body, signal };
        const response = await this.#fetch(this.#url(index) + path, request);
        if (response.ok) return response.status === 204 ? undefined : await response.json();
        const problem = await Problem.of(response);
        if (!RETRY_STATUSES.includes(problem.status)) throw problem;
        delay = Math.max(delay, 1_000 * (Number(response.headers.get("retry-after")) || 0));
      } catch (error) {
        this.#closing.signal.throwIfAborted();
        // Without a complete response, whether the node acted is unknown: try again.
        if (error instanceof Problem) throw error;
      }
      await this.#sleep(delay);
      this.#closing.signal.throwIfAborted();
    }
  }

  /** The path of the conversation that a call belongs to. */
  #pathOf = ({ conversation_id: child }) => (child ? pathOf(child) : this.#path);

  #url(index = this.#urlIndex) {
    return this.#urls[index % this.#urls.length];
  }

  #sleep(ms) {
    const { signal } = this.#closing;
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", wake);
        resolve();
      };
      const timer = setTimeout(wake, ms);
      signal.addEventListener("abort", wake);
    });
  }
}
