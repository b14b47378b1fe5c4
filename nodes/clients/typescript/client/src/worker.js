// Takes the calls of tools from a queue and runs them, from behind any firewall.
import { AbideError, ProblemError } from "./errors.js";
import { Rejection, Reply } from "./http-tools.js";
import { pause, randomName, Transport } from "./transport.js";

export { Rejection, Reply };

/** How long a request waits at a node for a call. */
const WAIT_MS = 30_000;
/** The delay before asking again when no node answered. */
const AWAY_DELAY_MS = 1_000;

const variable = (name) => globalThis.process?.env?.[name];

/** Takes calls from one queue, as many at a time as `concurrency` says, and only those of its tools. */
export class Worker {
  #transport;
  #queue;
  #name;
  #concurrency;
  #lease;
  #tools = new Map();
  #stop = new AbortController();

  /** `url`, `urls`, `token`, `headers`, `fetch`: as of `Abide`. `name`: shown to operators. `lease`: for how
   * many ms a call stays with a worker that has died or is frozen; one that lives extends it while a tool
   * runs. */
  constructor(queue, { name, concurrency = 1, lease = 60_000, url, urls, token, headers, fetch } = {}) {
    if (!(concurrency >= 1)) throw new TypeError("concurrency: must be at least 1");
    if (!(lease >= 1_000 && lease <= 3_600_000)) throw new TypeError("lease: must be from 1,000 to 3,600,000 ms");
    const nodes = urls ?? (url ? [url] : (variable("ABIDE_URL") ?? "http://127.0.0.1:8080").split(","));
    const credential = token ?? variable("ABIDE_TOKEN");
    this.#transport = new Transport({ urls: nodes, token: credential, headers, fetch });
    this.#queue = queue;
    this.#name = name ?? `worker-${globalThis.process?.pid ?? randomName().slice(0, 8)}`;
    [this.#concurrency, this.#lease] = [concurrency, lease];
  }

  /** Adds a tool: `fn(args, request)` returns the result as JSON or a `Reply`, or a promise of it. An async
   * generator yields its progress, and returns the result. `request.signal` is aborted when the call is
   * lost. The same function may serve HTTP tools. */
  tool(name, fn) {
    this.#tools.set(name, fn);
    return this;
  }

  /** Takes no more calls, and lets those that run end. */
  stop() {
    this.#stop.abort(new AbideError("the worker was stopped"));
  }

  /** Works until `stop`; resolves when the calls that it has are done. Rejects with what a node refuses for
   * good. */
  async run() {
    if (this.#tools.size === 0) throw new TypeError("the worker has no tool");
    const running = new Set();
    const { signal } = this.#stop;
    try {
      while (!signal.aborted) {
        const free = this.#concurrency - running.size;
        if (free === 0) {
          await Promise.race(running);
          continue;
        }
        for (const work of await this.#take(free, signal)) {
          const task = this.#work(work).finally(() => running.delete(task));
          running.add(task);
        }
      }
    } finally {
      await Promise.all(running);
    }
  }

  async #take(max, signal) {
    const tools = [...this.#tools.keys()];
    const body = { tools, max, wait: `${WAIT_MS / 1_000}s`, lease: `${this.#lease}ms`, worker: this.#name };
    try {
      const path = `/v1/queues/${encodeURIComponent(this.#queue)}/lease`;
      return (await this.#transport.request("POST", path, { body, wait: WAIT_MS, signal })).work;
    } catch (error) {
      if (signal.aborted) return [];
      const isRefused = error instanceof ProblemError && error.status < 500 && error.status !== 429;
      if (isRefused || !(error instanceof AbideError || error instanceof ProblemError)) throw error;
      await pause(AWAY_DELAY_MS, signal).catch(() => {});
      return [];
    }
  }

  /** Runs one call and completes it, unless its lease is lost. Never rejects. */
  async #work(work) {
    const lease = `/v1/leases/${work.lease_id}`;
    const lost = new AbortController();
    const extending = this.#extend(lease, lost);
    try {
      const body = await this.#run(lease, work, lost.signal);
      if (lost.signal.aborted) return;
      try {
        await this.#complete(lease, work, body, "");
      } catch (error) {
        if (!(error instanceof ProblemError) || ![413, 422].includes(error.status)) throw error;
        // What does not fit is told to the model, for nobody else can mend it.
        await this.#complete(lease, work, { error: error.detail || error.message }, "-refused");
      }
    } catch (error) {
      console.warn(`${work.call_id} was not completed: ${error.message}`);
    } finally {
      extending();
    }
  }

  /** A completion whose answer was lost is repeated under the same key. */
  #complete(lease, work, body, more) {
    const key = work.lease_id.slice(0, 200) + more;
    return this.#transport.request("POST", `${lease}/complete`, { body, key });
  }

  /** Keeps a call until the function that it returns is called. Aborts `lost` when the lease is lost. */
  #extend(lease, lost) {
    const over = new AbortController();
    const keep = async () => {
      while (!over.signal.aborted) {
        await pause(this.#lease / 3, over.signal);
        const request = { body: { lease: `${this.#lease}ms` }, signal: over.signal };
        await this.#transport.request("POST", `${lease}/extend`, request).catch((error) => {
          if (error.status === 409) throw error;
        });
      }
    };
    keep().catch((error) => {
      if (!over.signal.aborted) lost.abort(error);
    });
    return () => over.abort();
  }

  /** The body of the completion. Only what a `Rejection` says is told; a bug's text stays here. */
  async #run(lease, work, signal) {
    const request = {
      tool: work.tool,
      args: work.args,
      conversationId: work.conversation_id,
      callId: work.call_id,
      turnId: work.turn_id,
      attempt: work.attempt,
      principal: work.principal ?? null,
      idempotencyKey: work.idempotency_key,
      assigns: work.assigns ?? {},
      approvals: work.approvals ?? [],
      signal,
    };
    try {
      const fn = this.#tools.get(work.tool);
      if (!fn) throw new Rejection(`the worker has no tool ${JSON.stringify(work.tool)}`);
      const result = await this.#steps(lease, await fn(request.args, request), signal);
      const reply = result instanceof Reply ? result : new Reply(result);
      const body = { result: reply.result ?? null, ui: reply.ui, halt: reply.halt };
      // A value that is not JSON is a bug of the tool, and found here.
      JSON.stringify(body);
      return body;
    } catch (error) {
      if (error instanceof Rejection) return { error: error.message, halt: error.halt };
      if (!signal.aborted) console.error(error);
      return { error: "the tool failed" };
    }
  }

  /** Publishes the progress of a tool that is a generator; its result. */
  async #steps(lease, result, signal) {
    if (typeof result?.next !== "function" || !result[Symbol.asyncIterator]) return result;
    for (;;) {
      const { value, done } = await result.next();
      if (done) return value;
      if (signal.aborted) {
        await result.return();
        return null;
      }
      const request = { body: { progress: value ?? null }, signal };
      // What is lost is only progress.
      await this.#transport.request("POST", `${lease}/progress`, request).catch(() => {});
    }
  }
}
