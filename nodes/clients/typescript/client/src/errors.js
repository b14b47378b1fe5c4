// Errors, by type. Those that a node answered with carry its problem document.
import { Problem } from "./core.js";

/** Every error of this package but those of a node's answer, which are `ProblemError`s. */
export class AbideError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** No node answered in time. Whether a request was carried out is unknown: repeat it with its id. */
export class NoAnswerError extends AbideError {}
/** The time that the caller gave is over. The turn goes on. */
export class DeadlineError extends AbideError {}
/** An answer is not what a node of Abide sends. */
export class ProtocolError extends AbideError {}
/** An answer ended before its end: what came of it is not whole. Ask for it again. */
export class CutOffError extends AbideError {}

/** A node refused a request. `problem` is its RFC 9457 document, `type` the name of the problem. */
export class ProblemError extends Problem {
  constructor(status, problem, retryAfter) {
    super(status, problem);
    this.name = new.target.name;
    this.problem = problem;
    this.detail = this.message;
    this.retryAfter = retryAfter;
  }

  /** The error for a problem document, or for an answer without one. */
  static of(status, document, retryAfter) {
    const problem = document !== null && typeof document === "object" ? document : {};
    const type = String(problem.type ?? "").replace("/problems/", "");
    const Kind = BY_TYPE[type] ?? BY_STATUS[status] ?? ProblemError;
    return new Kind(status, problem, retryAfter);
  }
}

/** A field is wrong; `detail` begins with its name. */
export class InvalidRequestError extends ProblemError {}
/** The credential is missing, malformed, expired, revoked or unknown. */
export class UnauthorizedError extends ProblemError {}
/** The credential may not do this; `problem` has `needs` or `because`. */
export class ForbiddenError extends ProblemError {}
/** There is no such conversation, agent, call, decision or path. */
export class NotFoundError extends ProblemError {}
/** The request does not fit the present state. */
export class ConflictError extends ProblemError {}
/** A turn runs: send with `ifBusy` `queue` or `interrupt`. */
export class BusyError extends ConflictError {}
/** The call has its answer, or waits for another one. */
export class StaleError extends ConflictError {}
/** The request is too large. */
export class TooLargeError extends ProblemError {}
/** A bound on work in progress, or a quota, is reached; see `retryAfter`. */
export class OverloadedError extends ProblemError {}
/** No node could carry out the request; whether a write was carried out is unknown. */
export class UnavailableError extends ProblemError {}

const BY_TYPE = { __proto__: null, "turn-in-flight": BusyError, "call-not-open": StaleError };
const BY_STATUS = {
  400: InvalidRequestError,
  401: UnauthorizedError,
  403: ForbiddenError,
  404: NotFoundError,
  405: InvalidRequestError,
  409: ConflictError,
  413: TooLargeError,
  422: InvalidRequestError,
  429: OverloadedError,
  431: InvalidRequestError,
  502: UnavailableError,
  503: UnavailableError,
  504: UnavailableError,
};

/** A turn ended without an answer. */
export class TurnError extends AbideError {
  constructor(outcome, turnId, reason) {
    super(`the turn was ${outcome}${reason ? `: ${reason}` : ""}`);
    this.outcome = outcome;
    this.turnId = turnId;
    this.reason = reason;
  }

  /** The error for an outcome other than `completed`. */
  static of(outcome, turnId, reason) {
    const Kind = { cancelled: TurnCancelledError, halted: TurnHaltedError }[outcome] ?? TurnFailedError;
    return new Kind(outcome, turnId, reason);
  }
}

/** Somebody cancelled the turn. */
export class TurnCancelledError extends TurnError {}
/** A bound, a hook or a tool ended the turn; `reason` says which. */
export class TurnHaltedError extends TurnError {}
/** The model failed, or its answer did not fit the schema. */
export class TurnFailedError extends TurnError {}

/** The turn waits for somebody. `pending` has the calls; answer them and ask for the result again. */
export class WaitingError extends AbideError {
  constructor(turnId, pending) {
    const names = pending.slice(0, 5).map(({ tool, kind }) => `${tool} (${kind})`);
    super(`the turn waits for ${names.join(", ") || "somebody"}`);
    this.turnId = turnId;
    this.pending = pending;
  }
}
