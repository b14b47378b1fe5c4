// Types of workers.
import type { ToolRequest } from "./http-tools.js";
import type { Options } from "./index.js";

export { Rejection, Reply } from "./http-tools.js";

export interface WorkerOptions extends Omit<Options, "retryFor"> {
  /** Shown to operators. */
  name?: string;
  /** How many calls run at a time; 1 by default. */
  concurrency?: number;
  /** For how many ms a call stays with a worker that has died or is frozen; 60,000 by default. */
  lease?: number;
}

/** One attempt of a call. */
export interface WorkRequest extends ToolRequest {
  /** Aborted when the call is lost. */
  signal: AbortSignal;
}

/** Takes calls from one queue, and only those of its tools. */
export class Worker {
  constructor(queue: string, options?: WorkerOptions);
  tool(name: string, fn: (args: any, request: WorkRequest) => unknown): this;
  /** Works until `stop`; resolves when the calls that it has are done. */
  run(): Promise<void>;
  /** Takes no more calls, and lets those that run end. */
  stop(): void;
}
