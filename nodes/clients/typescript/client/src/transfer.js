// Conversations that move: their lines are read and sent in pieces, and are never in memory as a whole.
import { CutOffError } from "./errors.js";

/** The media type of an export. */
export const LINES = "application/x-ndjson";
/** The last line of an export is shorter than this. */
const MAX_END_BYTES = 256;
/** How long a node may take for the next piece of a body; it writes what it reads. */
const PIECE_TIMEOUT_MS = 60_000;
/** How long a node may take for its answer after the last piece. */
const ANSWER_TIMEOUT_MS = 300_000;
/** After this long, whatever else happens in the program has its turn. */
const BUSY_MS = 20;
/** How long a node reads a body, at most. */
const BODY_TIMEOUT_MS = 3_600_000;

/** Yields the bytes of an export, in pieces as they come. Throws a `CutOffError` unless the last line says
 * that it is whole: a connection may end early in a way that looks like the end. */
export async function* exported(transport, path, signal) {
  let tail = new Uint8Array();
  for await (const piece of transport.download(path, LINES, signal)) {
    tail = lastBytes(tail, piece);
    yield piece;
  }
  if (!isEnd(tail)) throw new CutOffError("the export was cut off: its last line is missing");
}

/** The last bytes of two pieces; a copy, since whoever gets a piece may hand its memory on. */
function lastBytes(before, piece) {
  const bytes = new Uint8Array(MAX_END_BYTES);
  const [second, first] = [piece.slice(-MAX_END_BYTES), before.slice(-MAX_END_BYTES)];
  const kept = Math.min(first.length, MAX_END_BYTES - second.length);
  bytes.set(first.subarray(first.length - kept));
  bytes.set(second, kept);
  return bytes.subarray(0, kept + second.length);
}

function isEnd(tail) {
  const last = new TextDecoder().decode(tail).trimEnd().split("\n").at(-1);
  try {
    return JSON.parse(last).abide === "end";
  } catch {
    return false;
  }
}

/** Whether `fetch` has all of a body, and can send it more than once. */
const isWhole = (body) => typeof body === "string" || body instanceof Blob || ArrayBuffer.isView(body);

/** Some old browsers send the name of a stream in place of what it yields. */
function sendsStreams() {
  let isRead = false;
  const init = { method: "POST", body: new ReadableStream(), get duplex() { return (isRead = true) && "half"; } };
  return !new Request("http://localhost", init).headers.has("content-type") && isRead;
}

/** What is sent: a text, bytes, a `Blob`, or pieces of bytes or text that come one after the other; or a
 * function that returns one of these, and is called for each attempt. */
export class Source {
  #body;
  #isBegun = false;
  #pieces;
  #restedAt = 0;
  /** What the pieces threw. */
  failure;

  constructor(body) {
    const isIterable = body?.[Symbol.asyncIterator] || body?.[Symbol.iterator] || body?.getReader;
    if (typeof body !== "function" && !isWhole(body) && !isIterable) {
      throw new TypeError("body: must be a text, bytes, a Blob, or pieces of these");
    }
    this.#body = body;
    this.isRepeatable = typeof body === "function" || isWhole(body);
  }

  /** Whether there may be another attempt. */
  get mayRepeat() {
    return this.failure === undefined && (this.isRepeatable || !this.#isBegun);
  }

  /** The body of an attempt. */
  async open(watch) {
    try {
      const body = typeof this.#body === "function" ? await this.#body() : this.#body;
      watch.await(BODY_TIMEOUT_MS);
      if (isWhole(body)) return body;
      if (!sendsStreams()) throw new TypeError("body: this browser sends no streams: give a Blob");
      const pieces = (this.#pieces = bytesOf(body));
      const pull = (controller) => this.#pull(controller, pieces, watch);
      return new ReadableStream({ pull }, { highWaterMark: 0 });
    } catch (error) {
      this.failure = error;
      throw error;
    }
  }

  /** Hands on the next piece when the one before was sent. */
  async #pull(controller, pieces, watch) {
    this.#isBegun = true;
    if (Date.now() - this.#restedAt > BUSY_MS) {
      // Pieces that are there at once would keep a refusal from being read.
      await new Promise((go) => setTimeout(go));
      this.#restedAt = Date.now();
    }
    // The pieces may take their time.
    watch.rest();
    const { value, done } = await pieces.next().catch((error) => {
      this.failure = error;
      throw error;
    });
    watch.await(done ? ANSWER_TIMEOUT_MS : PIECE_TIMEOUT_MS);
    if (done) controller.close();
    else controller.enqueue(value);
  }

  /** Ends the pieces of an attempt that is over. */
  close() {
    // It may wait for a piece that never comes.
    this.#pieces?.return().catch(() => {});
  }
}

async function* bytesOf(body) {
  const encoder = new TextEncoder();
  for await (const piece of body.getReader ? chunksOf(body) : body) {
    const bytes = typeof piece === "string" ? encoder.encode(piece) : piece;
    if (!ArrayBuffer.isView(bytes)) throw new TypeError("body: a piece is neither text nor bytes");
    if (bytes.byteLength > 0) yield new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }
}

/** The chunks of a stream; not every browser can iterate one. */
async function* chunksOf(stream) {
  const reader = stream.getReader();
  try {
    for (let read; !(read = await reader.read()).done; ) yield read.value;
  } finally {
    await reader.cancel();
  }
}
