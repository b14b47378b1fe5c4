// The time that a node may take.

/** Ends a request by its `signal`: when the caller's signal is aborted, or when a node is silent. */
export class Watch {
  #over = new AbortController();
  #alarm;

  constructor(signal) {
    this.signal = signal ? AbortSignal.any([signal, this.#over.signal]) : this.#over.signal;
  }

  /** Gives the node this many ms from now on, unless the request has ended. */
  await(ms) {
    this.rest();
    if (this.#over.signal.aborted) return;
    this.#alarm = setTimeout(() => this.#over.abort(new Error("the node is silent")), ms);
  }

  /** Nothing is awaited of the node. */
  rest() {
    clearTimeout(this.#alarm);
  }

  /** Ends the request, unless it has ended. */
  end() {
    this.rest();
    this.#over.abort();
  }
}
