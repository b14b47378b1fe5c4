// Types of the helper that serves HTTP tools.
import type { IncomingMessage, ServerResponse } from "node:http";

import { AbideError } from "./index.js";

export class SignatureError extends AbideError {}
export class Rejection extends AbideError {
  constructor(message: string, options?: { errorType?: string; halt?: string });
}
export class Reply {
  constructor(result: unknown, options?: { ui?: { kind: string; payload: unknown }; halt?: string });
}

/** One attempt of a call. */
export interface ToolRequest {
  tool: string;
  args: any;
  conversationId: string;
  callId: string;
  turnId: string | null;
  attempt: number;
  principal: string | null;
  /** The same for every attempt, and never the same for another call. */
  idempotencyKey: string;
  assigns: Record<string, unknown>;
  approvals: { iss: string; sub: string; at: string }[];
}

export function verify(
  headers: Headers | Record<string, string | undefined>,
  body: Uint8Array,
  secrets: string[],
  options?: { tolerance?: number; now?: number },
): Promise<void>;

export class HttpTools {
  constructor(options: { secrets: string[] | null; tolerance?: number });
  tool(name: string, fn: (args: any, request: ToolRequest) => unknown): this;
  readonly fetch: (request: Request) => Promise<Response>;
  readonly listener: (request: IncomingMessage, response: ServerResponse) => Promise<void>;
}
