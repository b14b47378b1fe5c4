// What belongs to a tenant and not to one conversation: agents, schedules, webhooks and erasures.
import { randomName } from "./transport.js";

/** Things of one kind that have names. */
class Named {
  #transport;
  #path;

  constructor(transport, path) {
    this.#transport = transport;
    this.#path = path;
  }

  /** Puts one, also in place of the one before. */
  put(name, body) {
    return this._send("PUT", name, "", { body });
  }

  get(name) {
    return this._read(name, "");
  }

  _read(name, below) {
    return this.#transport.request("GET", this.#at(name) + below);
  }

  delete(name) {
    return this._send("DELETE", name);
  }

  /** Sends a request about one of them, repeated as the same request. */
  _send(method, name, below = "", { body, params } = {}) {
    return this.#transport.request(method, this.#at(name) + below, { body, params, key: randomName() });
  }

  /** Yields the items of all pages. */
  async *_pages(member, below = "", params = {}) {
    let cursor;
    do {
      const page = await this.#transport.request("GET", this.#path + below, { params: { ...params, cursor } });
      yield* page[member];
      cursor = page.cursor ?? undefined;
    } while (cursor !== undefined);
  }

  /** Makes one whose name the nodes choose; repeated as the same request. */
  _create(body) {
    return this.#transport.request("POST", this.#path, { body, key: randomName() });
  }

  #at(name) {
    return `${this.#path}/${encodeURIComponent(name)}`;
  }
}

/** Agents and their revisions. */
export class Agents extends Named {
  constructor(transport) {
    super(transport, "/v1/agents");
  }

  /** Yields the agents, by name. */
  list() {
    return this._pages("agents");
  }

  /** Yields the revisions of an agent, the one that was put last first. */
  revisions(name) {
    return this._pages("revisions", `/${encodeURIComponent(name)}/revisions`);
  }

  /** The definition as of a revision. */
  revision(name, revision) {
    return this._read(name, `/revisions/${encodeURIComponent(revision)}`);
  }

  /** What has changed from one revision to another. */
  compare(name, from, to) {
    return this._read(name, `/revisions/${encodeURIComponent(from)}/diff/${encodeURIComponent(to)}`);
  }

  /** Makes an earlier revision the one with which turns begin. */
  rollBack(name, revision) {
    return this._send("POST", name, "/rollback", { body: { revision } });
  }

  /** Lets a share of the conversations, in percent, run on a revision in place of the newest one. */
  rollOut(name, revision, percent) {
    return this._send("PUT", name, "/rollout", { body: { revision, percent } });
  }

  /** The rollout of an agent; a 404 if all its conversations run on the newest revision. */
  rollout(name) {
    return this._read(name, "/rollout");
  }

  /** Ends the rollout of an agent. */
  endRollout(name) {
    return this._send("DELETE", name, "/rollout", {});
  }
}

/** Messages that come at set times. */
export class Schedules extends Named {
  constructor(transport) {
    super(transport, "/v1/schedules");
  }

  /** Yields the schedules, by name. */
  list() {
    return this._pages("schedules");
  }

  /** Sends the message of a schedule now. */
  trigger(name) {
    return this._send("POST", name, "/trigger", { body: {} });
  }

  pause(name) {
    return this._send("POST", name, "/pause", { body: {} });
  }

  resume(name) {
    return this._send("POST", name, "/resume", { body: {} });
  }
}

/** Who is told of what happens. */
export class Webhooks extends Named {
  constructor(transport) {
    super(transport, "/v1/webhooks");
  }

  /** Yields the webhooks, by name. */
  list() {
    return this._pages("webhooks");
  }

  /** Makes another secret; for a while, `overlap`, both sign. */
  rotate(name, { overlap } = {}) {
    return this._send("POST", name, "/rotate", { body: { overlap } });
  }

  /** Sends the receiver a notice, and says what became of it. */
  test(name) {
    return this._send("POST", name, "/test", { body: {} });
  }

  /** Yields what is owed, or with `dead` what nobody tries any more. */
  deliveries(name, { state = "owed" } = {}) {
    return this._pages("deliveries", `/${encodeURIComponent(name)}/deliveries`, { state });
  }

  /** Sends a notice once more. */
  redeliver(name, id) {
    return this._send("POST", name, `/deliveries/${encodeURIComponent(id)}/redeliver`, { body: {} });
  }
}

/** People who are erased. */
export class Erasures {
  #named;

  constructor(transport) {
    this.#named = new Named(transport, "/v1/erasures");
  }

  /** Begins to erase a person: `{ id }`. While one of the same person runs, it is that one. */
  start(owner) {
    return this.#named._create({ owner });
  }

  /** How far an erasure has come, or its report. */
  get(id) {
    return this.#named.get(id);
  }

  /** Yields those that run, and then those that are done, without the ids of conversations. */
  list() {
    return this.#named._pages("erasures");
  }
}
