// One conversation, known by its id.
import { Call, pathOf } from "./calls.js";
import { ConversationState } from "./conversation-state.js";
import { connect } from "./core.js";
import { exported } from "./transfer.js";
import { follow, Turn } from "./turn.js";
import { randomName } from "./transport.js";

/** A handle of one conversation. */
export class Conversation {
  #transport;
  #tools = new Set();
  #live;

  constructor(transport, id, agent) {
    this.#transport = transport;
    this.id = id;
    this.agent = agent;
    /** What clients and tools note in the conversation, by key. */
    this.state = new ConversationState(transport, this.#path);
  }

  /** Creates the conversation with more than an agent; a message alone creates it without. */
  create({ metadata, assigns, tools, owner, members, title, expiresAt: expires_at } = {}) {
    const { id, agent } = this;
    const body = { id, agent, metadata, assigns, tools, owner, members, title, expires_at };
    return this.#post("/v1/conversations", body);
  }

  /** Sends a text, or content blocks, and returns the turn that it starts. The request is repeated as the
   * same message until a node has it; give `messageId` to repeat it yourself later. */
  send(content, options = {}) {
    const body = this.#message(content, options);
    const request = { body, signal: options.signal };
    const accept = this.#transport.request("POST", `${this.#path}/messages`, request);
    return this.#turn(accept.then(({ turn_id, seq }) => `${turn_id}/${seq}`), body);
  }

  #message(content, { ifBusy: if_busy, schema, assigns, context, tools, messageId = randomName() }) {
    const message = typeof content === "string" ? { text: content } : { content };
    return { ...message, agent: this.agent, message_id: messageId, if_busy, schema, assigns, context, tools };
  }

  /** Sends a message later: `in` a duration such as `"2h"`, or `at` a time. It is delivered once, by
   * whichever node lives then. Returns its `scheduled_id`. */
  schedule(content, { in: deliver_in, at: deliver_at, ...options }) {
    const body = { ...this.#message(content, options), deliver_in, deliver_at };
    return this.#transport.request("POST", `${this.#path}/messages`, { body, signal: options.signal });
  }

  /** The messages that wait for their time. */
  async scheduled() {
    return (await this.#transport.request("GET", `${this.#path}/scheduled`)).scheduled;
  }

  /** Withdraws a message that waits for its time. */
  withdraw(scheduledId) {
    const path = `${this.#path}/scheduled/${encodeURIComponent(scheduledId)}`;
    return this.#transport.request("DELETE", path, { key: randomName() });
  }

  /** A turn that was begun earlier, to go on from this `turn.cursor`. */
  turn(cursor) {
    return this.#turn(Promise.resolve(cursor));
  }

  #turn(accept, body) {
    const executes = ({ kind, tool }) => kind === "client_exec" && this.#tools.has(tool);
    return new Turn(this.#transport, this.id, accept, executes, body);
  }

  /** Executes the client tool of this name from now on: `fn(args, call)` returns its result, or a promise
   * of it; `call.signal` is aborted when the call is no longer open. Ends with `close()`. */
  tool(name, fn) {
    this.#tools.add(name);
    this.live().tool(name, fn);
    return this;
  }

  /** The live view of the conversation, which `abide.js` keeps: `state`, `on("change", …)`. One is kept
   * until `close()`. */
  live() {
    const { urls, fetch } = this.#transport;
    if (this.#live?.closed) this.#live = undefined;
    return (this.#live ??= connect({ urls, conversation: this.id, agent: this.agent, fetch }));
  }

  /** Yields the items of all turns from now on, or after the event of this `seq`, without an end. */
  async *follow({ after, signal } = {}) {
    const place = after === undefined ? undefined : String(after);
    for await (const { item } of follow(this.#transport, this.id, { place, signal })) yield item;
  }

  /** A handle of a call, made of its id, or of an entry of the live state. */
  call(call, suspension) {
    const entry = typeof call === "string" ? { call_id: call, suspension } : call;
    return new Call(this.#transport, this.id, entry);
  }

  /** The calls that wait here, and in the children that work for this conversation. */
  async pending() {
    const { pending, child_pending } = await this.snapshot();
    return [...pending, ...child_pending].map((entry) => this.call(entry));
  }

  /** What the conversation is like now. */
  snapshot() {
    return this.#transport.request("GET", this.#path);
  }

  /** The newest page of messages, or the one before a page's `cursor`. */
  messages({ before, limit } = {}) {
    return this.#transport.request("GET", `${this.#path}/messages`, { params: { before, limit } });
  }

  /** Yields the events of the journal, the oldest first. */
  async *journal({ after = 0 } = {}) {
    for (;;) {
      const params = { after, limit: 1_000 };
      const page = await this.#transport.request("GET", `${this.#path}/journal`, { params });
      yield* page.events;
      after = page.events.at(-1)?.seq ?? page.last_seq;
      if (after >= page.last_seq) return;
    }
  }

  /** Yields the blobs that the journal names, in its order; one that is named again may come again. */
  async *blobs() {
    for (let after = 0; after !== undefined; ) {
      const params = { conversation: this.id, after, limit: 1_000 };
      const page = await this.#transport.request("GET", "/v1/blobs", { params });
      yield* page.blobs;
      after = page.cursor ?? undefined;
    }
  }

  /** Cancels the running turn; false if there was none. */
  async cancel() {
    return (await this.#post(`${this.#path}/cancel`, {})).cancelled;
  }

  /** The turns that wait, the next one first. */
  async queue() {
    return (await this.#transport.request("GET", `${this.#path}/queue`)).queued;
  }

  /** Withdraws a turn that waits: it never starts. */
  withdrawTurn(turnId) {
    const path = `${this.#path}/queue/${encodeURIComponent(turnId)}`;
    return this.#transport.request("DELETE", path, { key: randomName() });
  }

  /** Goes on from the event of this `seq`: what came after it counts no longer. Returns the `seq` of the
   * event that says so. */
  async rewind(seq) {
    return (await this.#post(`${this.#path}/rewind`, { to_seq: seq })).seq;
  }

  /** Begins the last turn anew, or the one with this id, and returns the new turn's id: `follow()` and
   * `live()` tell of it. */
  async regenerate(turnId) {
    return (await this.#post(`${this.#path}/regenerate`, { turn_id: turnId })).turn_id;
  }

  /** Makes a conversation with the events of this one up to `at`, or all of them. */
  async fork({ at: at_seq, id } = {}) {
    const made = await this.#post(`${this.#path}/fork`, { at_seq, id });
    return new Conversation(this.#transport, made.id, made.agent);
  }

  /** Yields the bytes of an export of the conversation as it is now, in pieces as they come: lines of JSON
   * that `importConversation()` reads. Throws a `CutOffError` if the end is missing. */
  export({ signal } = {}) {
    return exported(this.#transport, `${this.#path}/export`, signal);
  }

  /** Writes an export into a `WritableStream` as fast as it takes it, and closes it; aborts it unless the
   * export is whole. */
  async exportTo(writable, options) {
    const writer = writable.getWriter();
    try {
      for await (const piece of this.export(options)) await writer.write(piece);
      await writer.close();
    } catch (error) {
      await writer.abort(error).catch(() => {});
      throw error;
    }
  }

  /** Runs a server tool without the model. Returns the envelope of its result. */
  dispatch(tool, input, { approved } = {}) {
    return this.#post(`${this.#path}/dispatch`, { tool, input, approved });
  }

  /** Merges metadata, where null removes a member, and replaces the members, the title and the end, of which
   * null removes the last two. */
  update({ metadata, members, title, expiresAt: expires_at }) {
    const request = { body: { metadata, members, title, expires_at }, key: randomName() };
    return this.#transport.request("PATCH", this.#path, request);
  }

  /** Deletes the conversation and all that it holds. */
  delete() {
    return this.#transport.request("DELETE", this.#path, { key: randomName() });
  }

  /** Ends the live view and the execution of client tools. */
  close() {
    this.#live?.close();
    this.#tools.clear();
  }

  [Symbol.dispose ?? Symbol.for("Symbol.dispose")]() {
    this.close();
  }

  get #path() {
    return pathOf(this.id);
  }

  #post(path, body) {
    return this.#transport.request("POST", path, { body, key: randomName() });
  }
}
