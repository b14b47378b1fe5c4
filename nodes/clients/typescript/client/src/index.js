// The nodes of a cluster, and what concerns no single conversation.
import { Call } from "./calls.js";
import { Conversation } from "./conversation.js";
import { Agents, Erasures, Schedules, Webhooks } from "./resources.js";
import { LINES, Source } from "./transfer.js";
import { pause, randomName, Transport } from "./transport.js";

export { connect } from "./core.js";
export * from "./errors.js";
export { Call } from "./calls.js";
export { Conversation } from "./conversation.js";
export { ConversationState } from "./conversation-state.js";
export { Turn } from "./turn.js";

const ID = /^(?!\.{1,2}$)[A-Za-z0-9_.:-]{1,128}$/;

/** A variable of the environment, where there is one. */
const variable = (name) => globalThis.process?.env?.[name];

/** The nodes of a cluster. Nothing is sent before something is asked for. */
export class Abide {
  #transport;

  /** `urls`: the public addresses of the nodes; else, in a program, those of `ABIDE_URL`, which commas
   * separate, and in a page its own origin. `token`: a credential, else that of `ABIDE_TOKEN`, or a
   * function that returns one, as a text or as `{token, expires_at}`. `headers`: sent with every request.
   * `retryFor`: how many ms a request is repeated until a node answers. `fetch`: replaces the global one. */
  constructor({ url, urls, token = variable("ABIDE_TOKEN"), headers, retryFor, fetch } = {}) {
    const own = globalThis.location?.origin ?? "http://127.0.0.1:8080";
    const nodes = urls ?? (url ? [url] : (variable("ABIDE_URL") ?? own).split(","));
    const wrong = nodes.find((it) => !/^https?:\/\//.test(it));
    if (wrong !== undefined) throw new TypeError(`urls: ${JSON.stringify(wrong)} is no http or https URL`);
    this.#transport = new Transport({ urls: nodes, token, headers, retryFor, fetch });
    this.agents = new Agents(this.#transport);
    this.schedules = new Schedules(this.#transport);
    this.webhooks = new Webhooks(this.#transport);
    this.erasures = new Erasures(this.#transport);
  }

  /** A handle of a conversation; no request is made. Without an id it is a new one. With an agent, the
   * first message creates it if it does not exist. */
  conversation(id = `conv_${randomName()}`, { agent } = {}) {
    if (!ID.test(id)) throw new TypeError(`id: ${JSON.stringify(id)} is not of the form [A-Za-z0-9_.:-]{1,128}`);
    return new Conversation(this.#transport, id, agent);
  }

  /** Yields conversations, the one that was active last first: those of this agent, state, owner and parent,
   * with this metadata, created and active in these times; `rootOnly: false` yields children, too. */
  async *conversations({ agent, state, owner, parent, rootOnly, metadata = {}, createdAfter, createdBefore, activeAfter, activeBefore, order = "active", dir, limit = 200, signal } = {}) {
    const params = { agent, state, owner, parent, root_only: rootOnly, created_after: createdAfter, created_before: createdBefore, active_after: activeAfter, active_before: activeBefore, order, dir, limit };
    for (const [key, value] of Object.entries(metadata)) params[`metadata.${key}`] = value;
    let cursor;
    do {
      const page = await this.#transport.request("GET", "/v1/conversations", { params: { ...params, cursor }, signal });
      yield* page.conversations;
      cursor = page.cursor ?? undefined;
    } while (cursor !== undefined);
  }

  /** Reads an export into a conversation, which is there when all of it was read, and returns it: a copy with
   * another id whose open work is cancelled, or with `keepId` the very one, which goes on. The body is a
   * text, bytes, a `Blob`, or pieces: a `ReadableStream` or an iterable, of which no more than one piece
   * is in memory. Pieces are sent once; a function that returns the body is called for each attempt. Give
   * a `key` to repeat the import yourself later: it is carried out once. */
  async importConversation(body, { keepId, key = randomName(), signal } = {}) {
    const params = { keep_id: keepId ? true : undefined };
    const options = { kind: LINES, params, key, signal };
    const { id } = await this.#transport.upload("/v1/conversations/import", new Source(body), options);
    return this.conversation(id);
  }

  /** Yields the calls that wait in the whole cluster, the earliest deadline first. With `follow` it goes
   * on without an end, asks every `interval` ms, and yields each call that begins to wait once. */
  async *inbox({ kind, agent, tool, conversation, mine, follow = false, interval = 2_000, signal } = {}) {
    const params = { kind, agent, tool, conversation, mine: mine ? true : undefined, limit: 200 };
    for (let seen = new Set(); ; ) {
      const listed = new Set();
      let cursor;
      do {
        const request = { params: { ...params, cursor }, signal };
        const page = await this.#transport.request("GET", "/v1/pending", request);
        for (const entry of page.pending) {
          const name = `${entry.conversation_id}/${entry.call_id}/${entry.suspension}`;
          listed.add(name);
          if (!seen.has(name)) yield new Call(this.#transport, "", entry);
        }
        cursor = page.cursor ?? undefined;
      } while (cursor !== undefined);
      if (!follow) return;
      // What is listed no more is forgotten, so that the set does not grow.
      seen = listed;
      await pause(interval, signal);
    }
  }

  /** Defines an agent, or its next revision. */
  define(name, definition) {
    const request = { body: definition, key: randomName() };
    return this.#transport.request("PUT", `/v1/agents/${encodeURIComponent(name)}`, request);
  }

  /** Who the caller is. */
  me() {
    return this.#transport.request("GET", "/v1/me");
  }

  /** Makes any other request of the API with the same retries: `{body, params, key, signal}`. Give a `key`
   * to one that changes something, so that it can be repeated. */
  request(method, path, options) {
    return this.#transport.request(method, path, options);
  }

  /** A `fetch` of a path at any node that answers, with the credential: for streams of other protocols. The
   * request must be safe to repeat. */
  fetch(path, init) {
    return this.#transport.open(path, init);
  }
}
