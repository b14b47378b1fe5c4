// A turn, whose items one iterates or whose answer one waits for.
import { Call, pathOf } from "./calls.js";
import { DeadlineError, NotFoundError, TurnError, WaitingError } from "./errors.js";
import { Fold, textOf } from "./fold.js";
import { pause } from "./transport.js";

/** The longest that one request waits for an outcome; a node waits for 10 minutes at most. */
const MAX_WAIT_MS = 30_000;
/** The shortest time between two requests for an outcome that is not there. */
const MIN_PAUSE_MS = 250;
/** `TURN/PLACE` before the turn has begun, `TURN/in/PLACE` in it. */
const CURSOR = /^([\w-]+)\/(in\/)?(\d+(?:\.\d+\.\d+\.[\w-]+)?)$/;
/** The states in which a turn goes on by itself. */
const BUSY = ["preparing", "streaming"];

/** Yields `{item, turnId, place}` for what happens after a place, which stands in this turn, or from now
 * on. */
export async function* follow(transport, conversation, { place, turnId, signal } = {}) {
  const fold = new Fold(transport, conversation, place, turnId);
  const seq = place === undefined ? 0 : parseInt(place, 10);
  for await (const frame of transport.frames(`${pathOf(conversation)}/events`, place, signal)) {
    if (frame.name === "snapshot" && frame.data.last_seq < seq) {
      throw new NotFoundError(404, { status: 404, detail: "the turn is gone: another conversation has its id" });
    }
    const items = fold.take(frame);
    const last = items.pop();
    for (const item of items) yield { item, turnId: fold.turnId, place: fold.place };
    fold.place = frame.id ?? fold.place;
    if (last) yield { item: last, turnId: last.type === "end" ? last.turnId : fold.turnId, place: fold.place };
  }
}

/** A turn. Iterating it, at any time and more than once, yields its items after `cursor`. */
export class Turn {
  #transport;
  #executes;
  #body;
  #accept;
  #isIn = false;
  #place;
  #last;

  /** `accept`: a promise of a cursor. `executes(call)`: whether this program answers a client call. */
  constructor(transport, conversationId, accept, executes, body) {
    this.#transport = transport;
    this.conversationId = conversationId;
    this.messageId = body?.message_id;
    this.#executes = executes;
    this.#body = body;
    this.#accept = accept.then((cursor) => this.#aim(cursor));
    // Whoever iterates or waits learns of the error.
    this.#accept.catch(() => {});
  }

  #aim(cursor) {
    const match = CURSOR.exec(cursor);
    if (!match) throw new TypeError(`cursor: ${JSON.stringify(cursor)} is not the cursor of a turn`);
    [, this.id, , this.#place] = match;
    this.#isIn = match[2] !== undefined;
    return this;
  }

  /** Resolves with the turn when the journal has the message; `id` and `cursor` are known from then on. */
  ready() {
    return this.#accept;
  }

  /** Where the iteration stands, as an opaque text: `conversation.turn(cursor)` goes on after the item
   * that was yielded last, also in another process. */
  get cursor() {
    return this.id && `${this.id}/${this.#isIn ? "in/" : ""}${this.#place}`;
  }

  [Symbol.asyncIterator]() {
    return this.items();
  }

  /** The items, with a signal that ends the iteration. */
  async *items({ signal } = {}) {
    await this.#accept;
    const from = { place: this.#place, turnId: this.#isIn ? this.id : undefined, signal };
    for await (const { item, turnId, place } of follow(this.#transport, this.conversationId, from)) {
      if (turnId !== this.id) continue;
      // The end is not passed, so that whoever reads on from here learns of it.
      if (item.type !== "end") [this.#isIn, this.#place] = [true, place];
      if (item.type === "message" && item.message.role === "assistant") this.#last = item.message;
      yield item;
      if (item.type === "end") return;
    }
  }

  /** Waits until the turn has completed, for at most `timeout` ms: `{text, object, message, usage}`.
   *
   * Throws `TurnHaltedError`, `TurnFailedError` or `TurnCancelledError` if it ended otherwise,
   * `WaitingError` if it rests until somebody answers, and `DeadlineError` if the time is over. It may be
   * called again after the last two. */
  async result({ signal, timeout } = {}) {
    const late = new AbortController();
    const end = Date.now() + (timeout ?? Infinity);
    const isLate = () => new DeadlineError(`the turn has not ended after ${timeout} ms`);
    const timer = timeout === undefined ? undefined : setTimeout(() => late.abort(isLate()), timeout);
    const any = signal ? AbortSignal.any([signal, late.signal]) : late.signal;
    try {
      await Promise.race([this.#accept, abortOf(any)]);
      return await (this.#body ? this.#waitForResult(end, any) : this.#readResult(any));
    } finally {
      clearTimeout(timer);
    }
  }

  async #waitForResult(end, signal) {
    const path = `${pathOf(this.conversationId)}/messages`;
    for (;;) {
      const wait = Math.max(1, Math.min(MAX_WAIT_MS, end - Date.now()));
      const params = { wait: `${Math.ceil(wait)}ms` };
      const began = Date.now();
      const report = await this.#transport.request("POST", path, { body: this.#body, params, wait, signal });
      const answer = report.outcome && this.#answer(report);
      if (answer) return answer;
      // A node with too many requests that wait answers at once; so it does while a client tool runs.
      await pause(Math.max(0, MIN_PAUSE_MS - (Date.now() - began)), signal);
    }
  }

  /** Reads the result from the stream, for a turn whose message is not known. */
  async #readResult(signal) {
    for await (const item of this.items({ signal })) {
      if (item.type === "end") {
        const message = this.#last ?? (await this.#readLast());
        return this.#answer({ ...item, message });
      }
      if (item.type === "suspended" || item.type === "result") await this.#throwIfResting();
    }
  }

  /** The model's newest message of this turn: it may have been told before the cursor. */
  async #readLast() {
    const { messages } = await this.#transport.request("GET", `${pathOf(this.conversationId)}/messages`);
    return messages.findLast(({ turn_id, role }) => turn_id === this.id && role === "assistant");
  }

  async #throwIfResting() {
    const snapshot = await this.#transport.request("GET", pathOf(this.conversationId));
    const calls = this.#calls([...snapshot.pending, ...snapshot.child_pending]);
    const runs = snapshot.in_flight.some(({ child_conversation_id: child }) => !child);
    const goesOn = runs || BUSY.includes(snapshot.state) || calls.some(this.#executes);
    if (snapshot.turn?.id === this.id && calls.length > 0 && !goesOn) throw new WaitingError(this.id, calls);
  }

  #calls(entries) {
    return entries.map((entry) => new Call(this.#transport, this.conversationId, entry));
  }

  /** The answer of a turn that has ended; undefined while only this program's own tools run. */
  #answer({ outcome, reason, message, object = message?.object, pending, usage }) {
    if (outcome === "awaiting_input") {
      const calls = this.#calls(pending ?? []);
      if (calls.some(this.#executes)) return undefined;
      throw new WaitingError(this.id, calls);
    }
    if (outcome !== "completed") throw TurnError.of(outcome, this.id, reason);
    return { text: textOf(message), object, message, usage, turnId: this.id };
  }
}

/** A promise that rejects when the signal is aborted. */
const abortOf = (signal) =>
  new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
