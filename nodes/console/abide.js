// One conversation of Abide in a page: follows it through the end of nodes, speaks, answers, and
// executes its client tools. One module, no dependency, no build step; current browsers only.

/** The largest body that a node reads, in bytes. */
const BODY_BYTES = 1 << 20;
/** The longest line of a stream, in characters: more than the largest snapshot. */
const LINE_CHARS = 64 << 20;
/** The longest error text that is sent: a mistake is named, not sent whole. */
const ERROR_CHARS = 2_000;
/** A node sends a line every 15 s; one that has been silent for so long is not there. */
const QUIET_MS = 40_000;
/** A node answers in milliseconds; one that was stopped never does, and another may. */
const ANSWER_MS = 10_000;
/** The first pause before another try, and the longest. */
const PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 10_000;
/** What "not now" looks like, of a node or of what stands before it. */
const NOT_NOW = [429, 502, 503, 504];
/** Frames that mirror no event. Others without an id belong to the next frame that has one. */
const LIVE = ["state_changed", "text_delta", "thinking_delta", "tool_progress"];

/** A refusal. `type` is the contract's name of it, such as `turn-in-flight`. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? `HTTP ${status}`);
    this.name = "Problem";
    this.status = status;
    this.type = String(body.type ?? "").replace("/problems/", "");
  }

  static async of(answer) {
    return new Problem(answer.status, await answer.json().catch(() => ({})));
  }
}

/** Reads server-sent events from pieces of bytes, wherever they were cut; returns what takes the
 * pieces. `told` gets each frame's name, id (or undefined) and data. */
export function parser(told) {
  const utf8 = new TextDecoder();
  let [rest, name, id, data] = ["", "", undefined, []];
  const take = (line) => {
    const [, field, value] = /^([^:]*)(?:: ?(.*))?$/s.exec(line);
    if (field === "event") name = value ?? "";
    if (field === "id") id = value ?? "";
    if (field === "data") data.push(value ?? "");
    if (line !== "") return;
    if (data.length > 0) told({ name, id, data: data.join("\n") });
    [name, id, data] = ["", undefined, []];
  };
  return (bytes) => {
    rest += utf8.decode(bytes, { stream: true });
    // A \r at the end may be the first half of a \r\n.
    const lines = rest.split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    if (rest.length > LINE_CHARS) throw new Error("a line of the stream is too long");
    lines.forEach(take);
  };
}

/** How long to wait before the next try, in ms: every url is tried once before the pause grows. */
export function pause(tries, urls, random = Math.random()) {
  const grown = PAUSE_MS * 2 ** Math.floor(tries / urls);
  return Math.min(grown, LONGEST_PAUSE_MS) * (0.5 + random / 2);
}

/** What a page's result is sent as: itself, or why it cannot be. */
export function written(result, suspension) {
  let body;
  try {
    // A function that returns nothing has done what it should.
    const text = JSON.stringify(result ?? null);
    if (text === undefined) return failed("the page's result is not JSON", suspension);
    body = `{"result":${text},"suspension":${suspension}}`;
  } catch (error) {
    return failed(`the page's result is not JSON: ${error.message}`, suspension);
  }
  const bytes = new TextEncoder().encode(body).length;
  if (bytes <= BODY_BYTES) return body;
  return failed(`the page's result has ${bytes} bytes, more than ${BODY_BYTES}`, suspension);
}

function failed(error, suspension) {
  const text = String(error?.message ?? error).slice(0, ERROR_CHARS).toWellFormed();
  return JSON.stringify({ error: text || "the page's tool failed", suspension });
}

/** What each frame changes; what it does not speak of stays the same. */
const CHANGES = {
  snapshot: (_, { streaming_message: streaming, ...data }) => ({ ...data, streaming }),
  // A message that a dead node had begun is begun anew.
  state_changed: ({ streaming }, { state }) =>
    ({ state, streaming: state === "preparing" ? null : streaming }),
  turn_started: (_, { turn_id: id }) => ({ turn: { id } }),
  text_delta: (state, data) => ({ streaming: spoken(state, data, "text") }),
  thinking_delta: (state, data) => ({ streaming: spoken(state, data, "thinking") }),
  message_completed: ({ messages }, { message }) =>
    ({ streaming: null, messages: added(messages, message) }),
  // Whoever was asked before has answered; whom it waits for next, `suspended` says.
  tool_call_started: (state, call) => ({
    ...over(state, call),
    ...(call.executor === "server" && { in_flight: [...over(state, call).in_flight, call] }),
  }),
  tool_progress: ({ in_flight }, { call_id, payload: progress }) =>
    ({ in_flight: in_flight.map((it) => (it.call_id === call_id ? { ...it, progress } : it)) }),
  suspended: (state, call) => ({ pending: [...over(state, call).pending, call] }),
  tool_call_resolved: (state, data) => ({ ...over(state, data), messages: resulted(state, data) }),
  tool_call_errored: (state, data) => ({ ...over(state, data), messages: resulted(state, data) }),
  todos_changed: (_, { todos }) => ({ todos }),
  phase_changed: (_, { phase }) => ({ phase }),
};
for (const how of ["completed", "cancelled", "halted", "failed"]) {
  CHANGES[`turn_${how}`] = () => ({ turn: null, streaming: null, pending: [], in_flight: [] });
}

/** The state after a frame. */
export function fold(state, name, data) {
  return Object.hasOwn(CHANGES, name) ? { ...state, ...CHANGES[name](state, data) } : state;
}

function over({ pending, in_flight }, { call_id }) {
  const others = (list) => list.filter((call) => call.call_id !== call_id);
  return { pending: others(pending), in_flight: others(in_flight) };
}

/** The streaming message with one more piece; null is that of a message that is complete. */
function spoken(state, data, kind) {
  if (state.messages.some(({ id }) => id === data.message_id)) return state.streaming;
  const empty = { id: data.message_id, text: "", thinking: "", delta_seq: 0 };
  const before = state.streaming?.id === data.message_id ? state.streaming : empty;
  if (data.delta_seq <= before.delta_seq) return before;
  return { ...before, [kind]: before[kind] + data.text, delta_seq: data.delta_seq };
}

/** The messages with a call's result, as the node lists it. */
function resulted({ messages }, { call_id: tool_call_id, result }) {
  const content = [{ type: "json", data: result, text: JSON.stringify(result) }];
  return added(messages, { id: `result_${tool_call_id}`, role: "tool", content, tool_call_id });
}

const added = (messages, message) =>
  messages.some(({ id }) => id === message.id) ? messages : [...messages, message];
const ids = (messages) => new Set(messages.map(({ id }) => id));

/** A name that nobody else gives; unlike `randomUUID` also without TLS. */
function random() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Follows a conversation. `url` or `urls`: its nodes; without, the page's own origin. `agent`:
 * makes the conversation when there is none, with what `create` has (`tools`, `metadata`,
 * `assigns`). `after`: a seq; every frame after it is told. `fetch`: instead of the page's own. */
export function connect(options) {
  return new Conversation(options);
}

class Conversation {
  /** What is known: the snapshot's members, kept current, with `messages` (the newest ones),
   * `streaming` (the message that is being said, or null) and `connected`. Each change makes a new
   * object. */
  state = { connected: false, messages: [], pending: [], in_flight: [], streaming: null };
  #options;
  #urls;
  #path;
  #fetch;
  /** Counts the urls that were left. */
  #place = 0;
  #closing = new AbortController();
  #listeners = new Map();
  #tools = new Map();
  /** A run for each pending call that was taken up, as long as it is pending. */
  #runs = new Map();
  /** The last event whose frames were told, and the last that the snapshot knew. */
  #last;
  #known = 0;
  /** When the conversation was made. */
  #born;
  /** Frames that wait for the one with their id. */
  #held = [];

  constructor(options) {
    const { url = "", urls = [url], conversation, after, fetch } = options;
    this.#options = options;
    this.#urls = urls.map((url) => url.replace(/\/+$/, ""));
    this.#path = `/v1/conversations/${encodeURIComponent(conversation)}`;
    this.#fetch = fetch ?? globalThis.fetch.bind(globalThis);
    this.#last = after;
    this.#follow();
  }

  /** Calls `fn(data, id)` for each frame of a name; `change` (the state) after every change, and
   * `error` (an Error) for what nobody else is told. Returns what ends it. */
  on(name, fn) {
    if (!this.#listeners.has(name)) this.#listeners.set(name, new Set());
    this.#listeners.get(name).add(fn);
    return () => this.#listeners.get(name).delete(fn);
  }

  /** Says a text, or content blocks; the options are the API's, such as `if_busy`. Repeated, as
   * the same message, until a node has it. */
  async send(content, options = {}) {
    const said = typeof content === "string" ? { text: content } : { content };
    const { agent } = this.#options;
    const body = JSON.stringify({ ...said, agent, message_id: random(), ...options });
    const sent = await this.#ask("POST", `${this.#path}/messages`, body);
    this.#look();
    return sent;
  }

  /** Answers a call: `{approved, …}`, `{result}` or `{error}`. `{status: "stale"}` when somebody
   * else has, or when it no longer waits for this. */
  async resolve(call_id, answer) {
    const open = this.state.pending.find((call) => call.call_id === call_id);
    return this.#answer(call_id, JSON.stringify({ suspension: open?.suspension, ...answer }));
  }

  /** Ends the running turn. */
  cancel() {
    return this.#ask("POST", `${this.#path}/cancel`, "{}", random());
  }

  /** Executes the client tool of this name: `fn(args, call)` returns, or promises, its result.
   * `call.signal` says when nobody waits for it any more. Of several pages of one browser one
   * executes a call; another does if that one leaves. */
  tool(name, fn) {
    this.#tools.set(name, fn);
    this.#execute();
  }

  /** Leaves: nothing is told, tried or executed any more. */
  close() {
    this.#closing.abort(new DOMException("the conversation was closed", "AbortError"));
    this.#change({ ...this.state, connected: false });
  }

  get closed() {
    return this.#closing.signal.aborted;
  }

  /** Keeps a stream open, at one url after another. */
  async #follow() {
    let made = !this.#options.agent;
    for (let tries = 0; !this.closed; tries += 1) {
      try {
        await this.#stream(() => (tries = 0));
      } catch (error) {
        const missing = error.status === 404 && this.state.id === undefined;
        const lasting = error instanceof Problem && error.status < 500 && error.status !== 429;
        if (missing && !made) {
          made = true;
          await this.#create();
          continue;
        }
        if (lasting) this.#tell("error", error);
        if (lasting) return this.close();
      }
      if (this.closed) return;
      this.#change({ ...this.state, connected: false });
      this.#place += 1;
      await this.#sleep(pause(tries, this.#urls.length));
    }
  }

  /** One stream, to its end. */
  async #stream(begun) {
    const silent = new AbortController();
    const signal = AbortSignal.any([this.#closing.signal, silent.signal]);
    let alarm;
    const heard = () => {
      clearTimeout(alarm);
      alarm = setTimeout(() => silent.abort(), QUIET_MS);
    };
    const after = this.#last === undefined ? "" : `?after=${this.#last}`;
    try {
      heard();
      const answer = await this.#fetch(`${this.#url()}${this.#path}/events${after}`, { signal });
      if (!answer.ok) throw await Problem.of(answer);
      const parse = parser((frame) => {
        if (frame.name === "snapshot") begun();
        if (!this.closed) this.#take(frame);
      });
      const reader = answer.body.getReader();
      for (let read; !(read = await reader.read()).done; heard()) parse(read.value);
    } finally {
      clearTimeout(alarm);
    }
  }

  /** Takes a frame, unless it was told before. */
  #take({ name, id, data: text }) {
    const [data, seq] = [JSON.parse(text), id === undefined ? undefined : Number(id)];
    if (name === "snapshot") {
      [this.#held, this.#known] = [[], data.last_seq];
      // A conversation that was deleted and made anew counts from the beginning.
      if (this.#born && this.#born !== data.created_at) this.#last = data.last_seq;
      this.#born = data.created_at;
      this.#last ??= data.last_seq;
      this.#change({ ...fold(this.state, name, data), connected: true });
      this.#tell(name, data);
      this.#look();
    } else if (LIVE.includes(name)) {
      this.#show(name, data);
    } else if (seq === undefined) {
      this.#held.push([name, data]);
    } else {
      const frames = [...this.#held.splice(0), [name, data]];
      if (seq <= this.#last) return;
      this.#last = seq;
      frames.forEach(([name, data]) => this.#show(name, data, seq));
    }
  }

  #show(name, data, seq = Infinity) {
    const next = fold(this.state, name, data);
    if (name.endsWith("_delta") && next.streaming === this.state.streaming) return;
    // What the snapshot knew is told only: it would turn the state back.
    if (seq > this.#known) this.#change(next);
    this.#tell(name, data, seq === Infinity ? undefined : seq);
    // No frame has the user's words.
    if (name === "turn_started" && seq > this.#known) this.#look();
  }

  #change(state) {
    if (state === this.state) return;
    this.state = state;
    this.#execute();
    this.#tell("change", state);
  }

  #tell(name, ...what) {
    const listeners = [...(this.#listeners.get(name) ?? [])];
    if (name === "error" && listeners.length === 0) console.error(...what);
    for (const listener of listeners) {
      try {
        listener(...what);
      } catch (error) {
        console.error(error);
      }
    }
  }

  /** Reads the newest messages: what was above them stays, and so does what came meanwhile. */
  async #look() {
    const before = this.state.messages;
    const page = await this.#ask("GET", `${this.#path}/messages`).catch((error) => error);
    if (page instanceof Error) return this.closed || this.#tell("error", page);
    const [known, read] = [ids(before), ids(page.messages)];
    const first = before.findIndex((message) => read.has(message.id));
    const above = before.slice(0, Math.max(first, 0));
    const below = this.state.messages.filter(({ id }) => !known.has(id) && !read.has(id));
    this.#change({ ...this.state, messages: [...above, ...page.messages, ...below] });
  }

  async #create() {
    const { conversation: id, agent, create } = this.#options;
    const body = JSON.stringify({ ...create, id, agent });
    try {
      await this.#ask("POST", "/v1/conversations", body, random());
    } catch (error) {
      if (!this.closed && error.type !== "conversation-exists") this.#tell("error", error);
    }
  }

  /** Takes up pending calls that there is a tool for, and leaves those that are pending no more. */
  #execute() {
    const pending = new Set();
    for (const call of this.closed ? [] : this.state.pending) {
      const name = `abide:${this.#path}/${call.call_id}/${call.suspension}`;
      pending.add(name);
      if (call.kind !== "client_exec" || !this.#tools.has(call.tool)) continue;
      if (this.#runs.has(name)) continue;
      const run = new AbortController();
      this.#runs.set(name, run);
      this.#claim(name, call, run.signal).catch((error) => {
        if (!run.signal.aborted) this.#tell("error", error);
      });
    }
    for (const [name, run] of this.#runs) {
      if (pending.has(name)) continue;
      this.#runs.delete(name);
      run.abort(new DOMException("the call is not open any more", "AbortError"));
    }
  }

  /** Runs a call once all pages of this browser that took it up before have left. */
  async #claim(name, call, signal) {
    const run = async () => {
      // Another page may have answered while this one waited, or before it had heard of the call.
      const { pending } = await this.#ask("GET", this.#path);
      const same = (it) => it.call_id === call.call_id && it.suspension === call.suspension;
      if (pending.some(same)) await this.#run({ ...call, signal });
    };
    const locks = globalThis.navigator?.locks;
    if (!locks) return run();
    return locks.request(name, { signal }, run).catch((error) => {
      // A page without an origin has no locks either.
      if (error.name !== "SecurityError") throw error;
      return run();
    });
  }

  async #run(call) {
    const { call_id, suspension, signal } = call;
    signal.throwIfAborted();
    const ran = async () => this.#tools.get(call.tool)(structuredClone(call.args), call);
    const gone = new Promise((_, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason));
    });
    let body;
    try {
      body = written(await Promise.race([ran(), gone]), suspension);
    } catch (error) {
      signal.throwIfAborted();
      body = failed(error, suspension);
    }
    try {
      await this.#answer(call_id, body);
    } catch (problem) {
      if (![400, 413, 422].includes(problem.status)) throw problem;
      const refused = `the page's result was refused: ${problem.message}`;
      await this.#answer(call_id, failed(refused, suspension));
    }
  }

  async #answer(call_id, body) {
    const path = `${this.#path}/calls/${encodeURIComponent(call_id)}/resolution`;
    try {
      return await this.#ask("POST", path, body, random());
    } catch (problem) {
      if (problem.type !== "call-not-open") throw problem;
      return { status: "stale" };
    }
  }

  /** Asks one url after another until one answers. `key` makes a repeat the same request. */
  async #ask(method, path, body, key) {
    const headers = { ...(body && { "content-type": "application/json" }) };
    if (key) headers["idempotency-key"] = key;
    for (let tries = 0, place = this.#place; ; tries += 1, place += 1) {
      let wait = pause(tries, this.#urls.length);
      const signal = AbortSignal.any([this.#closing.signal, AbortSignal.timeout(ANSWER_MS)]);
      try {
        const asked = { method, headers, body, signal };
        const answer = await this.#fetch(this.#url(place) + path, asked);
        if (answer.ok) return await answer.json();
        const problem = await Problem.of(answer);
        if (!NOT_NOW.includes(problem.status)) throw problem;
        wait = Math.max(wait, 1_000 * (Number(answer.headers.get("retry-after")) || 0));
      } catch (error) {
        this.#closing.signal.throwIfAborted();
        // Without a whole answer it may have been done, or not.
        if (error instanceof Problem) throw error;
      }
      await this.#sleep(wait);
      this.#closing.signal.throwIfAborted();
    }
  }

  #url(place = this.#place) {
    return this.#urls[place % this.#urls.length];
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
