// Requests to one node after another until one answers, and streams that go on where they were cut.
import { parser, retryDelay, withCredential } from "./core.js";
import { CutOffError, NoAnswerError, ProblemError, ProtocolError } from "./errors.js";
import { Watch } from "./watch.js";

/** The largest answer that is read. */
const MAX_ANSWER_BYTES = 64 << 20;
/** A node answers in milliseconds; a stopped one never does, but another may. */
const REQUEST_TIMEOUT_MS = 10_000;
/** A node sends a line every 15 s; a stream that is silent for this long is dead. */
const SILENCE_TIMEOUT_MS = 40_000;
/** The statuses with which a node, or a proxy before it, asks for a later retry. */
const RETRY_STATUSES = [429, 502, 503, 504];

/** A random name; unlike `crypto.randomUUID`, it works without TLS. */
export function randomName() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Resolves after a time; rejects when the signal is aborted. */
export function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      if (signal?.aborted) reject(signal.reason);
      else resolve();
    };
    const timer = setTimeout(end, ms);
    if (signal?.aborted) end();
    signal?.addEventListener("abort", end);
  });
}

/** The place that a snapshot shows: after its last event, or within the message that is streamed. */
export function snapshotPlace({ last_seq: seq, streaming_message: message }) {
  if (!message) return String(seq);
  const [thinking, text] = [message.thinking, message.text].map((it) => [...it].length);
  return `${seq}.${text + thinking}.${thinking}.${message.id}`;
}

/** A query with the members that have a value. */
function query(params = {}) {
  const present = Object.entries(params).filter(([, value]) => value !== undefined && value !== null);
  return present.length === 0 ? "" : `?${new URLSearchParams(present)}`;
}

const mediaType = ({ headers }) =>
  (headers.get("content-type") ?? "").split(";")[0].trim().toLowerCase();

/** Speaks HTTP to the nodes of one cluster. */
export class Transport {
  #at = 0;

  constructor({ urls, token, headers = {}, retryFor = 60_000, fetch }) {
    this.urls = urls.map((url) => url.replace(/\/+$/, ""));
    this.retryFor = retryFor;
    const send = fetch ?? globalThis.fetch.bind(globalThis);
    const standing = (url, init = {}) =>
      send(url, { ...init, headers: { ...headers, ...init.headers }, redirect: "error" });
    const given = typeof token === "string" ? () => token : token;
    /** A `fetch` that sends the credential and the headers of every request. */
    this.fetch = given ? withCredential(standing, given) : standing;
  }

  /** Repeats a request until a node answers, for `retryFor` ms. `key` makes it safe to repeat. Returns
   * the JSON of a 2xx. */
  async request(method, path, { body, params, key, wait = 0, signal } = {}) {
    const headers = method === "GET" ? {} : { "content-type": "application/json" };
    if (key) headers["idempotency-key"] = key;
    const init = { method, headers, body: body === undefined ? undefined : JSON.stringify(body) };
    const attempt = async () => {
      const timeout = AbortSignal.timeout(REQUEST_TIMEOUT_MS + wait);
      const any = signal ? AbortSignal.any([signal, timeout]) : timeout;
      return readJson(await this.fetch(this.#url(path + query(params)), { ...init, signal: any }));
    };
    return this.#attempts(attempt, { signal });
  }

  /** Makes attempts at one node after another until one answers, for `retryFor` ms. */
  async #attempts(attempt, { signal, mayRepeat = () => true }) {
    const end = Date.now() + this.retryFor;
    for (let tries = 0, lies = 0; ; tries += 1, this.#at += 1) {
      signal?.throwIfAborted();
      let delay = retryDelay(tries, this.urls.length);
      let problem;
      try {
        return await attempt();
      } catch (error) {
        signal?.throwIfAborted();
        problem = error;
        if (error instanceof ProblemError) {
          if (!RETRY_STATUSES.includes(error.status)) throw error;
          delay = Math.max(delay, 1_000 * (error.retryAfter ?? 0));
        } else if (error instanceof ProtocolError) {
          lies += 1;
          if (lies >= this.urls.length) throw error;
        } else {
          // Without a complete answer, whether the node acted is unknown: try again.
          problem = new NoAnswerError(`no node answered in time: ${describe(error)}`, { cause: error });
        }
      }
      if (Date.now() + delay >= end || !mayRepeat()) throw problem;
      await pause(delay, signal);
    }
  }

  /** Yields the pieces of an answer of this media type, as they come. A node that does not answer is left
   * for another until the first piece is there; after it, an answer that is cut is a `CutOffError`. */
  async *download(path, kind, signal) {
    let watch;
    const begin = async () => {
      watch?.end();
      watch = new Watch(signal);
      watch.await(REQUEST_TIMEOUT_MS);
      const response = await this.fetch(this.#url(path), { signal: watch.signal });
      if (!response.ok) await readJson(response);
      if (mediaType(response) !== kind) {
        await response.body?.cancel();
        throw new ProtocolError(`an answer of the type ${JSON.stringify(mediaType(response))} is not ${kind}`);
      }
      const reader = response.body.getReader();
      watch.await(SILENCE_TIMEOUT_MS);
      return { reader, read: await reader.read() };
    };
    try {
      let { reader, read } = await this.#attempts(begin, { signal });
      while (!read.done) {
        // Whoever reads slowly is not silent.
        watch.rest();
        yield read.value;
        watch.await(SILENCE_TIMEOUT_MS);
        read = await reader.read().catch((error) => {
          signal?.throwIfAborted();
          throw new CutOffError(`the answer was cut off: ${describe(error)}`, { cause: error });
        });
      }
    } finally {
      watch?.end();
    }
  }

  /** Sends a `Source` with POST, in pieces, and returns the JSON of a 2xx. `key` makes the request safe to
   * repeat; what the source can give only once is sent once. */
  async upload(path, source, { kind, params, key, signal }) {
    const headers = { "content-type": kind, "idempotency-key": key };
    // A request that may be repeated finds a node that answers, and a credential that it accepts.
    if (!source.isRepeatable) await this.request("GET", "/v1/me", { signal });
    const attempt = async () => {
      const watch = new Watch(signal);
      try {
        const body = await source.open(watch);
        const init = { method: "POST", headers, body, duplex: "half", signal: watch.signal };
        return await readJson(await this.fetch(this.#url(path + query(params)), init));
      } finally {
        watch.end();
        source.close();
      }
    };
    try {
      return await this.#attempts(attempt, { signal, mayRepeat: () => source.mayRepeat });
    } catch (error) {
      throw source.failure ?? error;
    }
  }

  /** Yields `{name, id, data}` for each frame of a stream after this place without an end, over any node.
   * Throws if no node could stream for `retryFor` ms. */
  async *frames(path, after, signal) {
    let [tries, end] = [0, Date.now() + this.retryFor];
    for (; ; this.#at += 1) {
      signal?.throwIfAborted();
      let delay = retryDelay(tries, this.urls.length);
      let problem = new NoAnswerError("the stream ended before its first frame");
      try {
        for await (const frame of this.#stream(path, after, signal)) {
          yield frame;
          if (frame.id === undefined && after === undefined && frame.name === "snapshot") {
            after = snapshotPlace(frame.data);
          }
          after = frame.id ?? after;
          [tries, end] = [0, Date.now() + this.retryFor];
        }
      } catch (error) {
        signal?.throwIfAborted();
        problem = error;
        if (error instanceof ProblemError) {
          if (error.status < 500 && error.status !== 429) throw error;
          delay = Math.max(delay, 1_000 * (error.retryAfter ?? 0));
        } else if (!(error instanceof ProtocolError)) {
          problem = new NoAnswerError(`no node streams: ${describe(error)}`, { cause: error });
        }
      }
      tries += 1;
      if (Date.now() + delay >= end) throw problem;
      await pause(delay, signal);
    }
  }

  /** Yields the frames of one stream up to its end. */
  async *#stream(path, after, signal) {
    const watch = new Watch(signal);
    const headers = { accept: "text/event-stream", ...(after !== undefined && { "last-event-id": after }) };
    try {
      watch.await(REQUEST_TIMEOUT_MS);
      const init = { headers, signal: watch.signal };
      const response = await this.fetch(this.#url(`${path}?cursor=chars`), init);
      if (!response.ok) await readJson(response);
      if (mediaType(response) !== "text/event-stream") {
        throw new ProtocolError(`a stream of the type ${JSON.stringify(mediaType(response))}`);
      }
      const frames = [];
      const parse = parser((frame) => frames.push(frame));
      const reader = response.body.getReader();
      for (;;) {
        watch.await(SILENCE_TIMEOUT_MS);
        const { value, done } = await reader.read();
        if (done) return;
        // Whoever reads slowly is not silent.
        watch.rest();
        understand(() => parse(value));
        for (const { name, id, data } of frames.splice(0)) {
          const object = understand(() => JSON.parse(data));
          if (object === null || typeof object !== "object") throw new ProtocolError("a frame is no object");
          yield { name, id, data: object };
        }
      }
    } finally {
      watch.end();
    }
  }

  /** Sends a request to one node after another until one answers, and returns its response, whatever it
   * says: for streams of other protocols. The request must be safe to repeat. */
  async open(path, init = {}) {
    const end = Date.now() + this.retryFor;
    for (let tries = 0; ; tries += 1, this.#at += 1) {
      const delay = retryDelay(tries, this.urls.length);
      const isLast = Date.now() + delay >= end;
      try {
        const response = await this.fetch(this.#url(path), init);
        if (isLast || ![502, 503, 504].includes(response.status)) return response;
        await response.body?.cancel();
      } catch (error) {
        init.signal?.throwIfAborted();
        if (isLast) throw new NoAnswerError(`no node answered in time: ${describe(error)}`, { cause: error });
      }
      await pause(delay, init.signal);
    }
  }

  #url(path) {
    return this.urls[this.#at % this.urls.length] + path;
  }
}

function describe(error) {
  return `${error?.name}: ${error?.cause?.code ?? error?.message}`;
}

/** What a function returns; what it throws is the fault of a node. */
function understand(read) {
  try {
    return read();
  } catch (error) {
    throw new ProtocolError(`a stream that is not understood: ${error.message}`, { cause: error });
  }
}

/** The JSON of a 2xx. Throws a problem for any other status. */
async function readJson(response) {
  const chunks = [];
  let size = 0;
  const reader = response.body?.getReader();
  for (let read; reader && !(read = await reader.read()).done; ) {
    size += read.value.length;
    if (size > MAX_ANSWER_BYTES) {
      await reader.cancel();
      throw new ProtocolError(`an answer has more than ${MAX_ANSWER_BYTES} bytes`);
    }
    chunks.push(read.value);
  }
  if (response.status === 204) return undefined;
  const text = await new Blob(chunks).text();
  let document, cause;
  try {
    document = mediaType(response).endsWith("json") ? JSON.parse(text) : undefined;
  } catch (error) {
    cause = error;
  }
  if (!response.ok) {
    const retryAfter = Number(response.headers.get("retry-after")) || undefined;
    throw ProblemError.of(response.status, document, retryAfter);
  }
  if (document === undefined) {
    throw new ProtocolError(`an answer of the type ${JSON.stringify(mediaType(response))} is not JSON`, { cause });
  }
  return document;
}
