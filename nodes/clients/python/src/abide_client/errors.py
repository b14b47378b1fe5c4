"""Errors, by type. Those that a node answered with carry its problem document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from .types import Problem


class AbideError(Exception):
    """Every error of this package."""


class NoAnswerError(AbideError):
    """No node answered in time. Whether a request was carried out is unknown: repeat it with its id."""


class DeadlineError(AbideError, TimeoutError):
    """The time that the caller gave is over. The turn goes on."""


class ProtocolError(AbideError):
    """An answer is not what a node of Abide sends."""


class CutOffError(AbideError):
    """An answer ended before its end: what came of it is not whole. Ask for it again."""


class ProblemError(AbideError):
    """A node refused a request. `problem` is its RFC 9457 document, `type` the name of the problem."""

    def __init__(self, status: int, problem: Problem, retry_after: float | None = None) -> None:
        super().__init__(problem.get("detail") or problem.get("title") or f"HTTP {status}")
        self.status = status
        self.problem = problem
        self.type = str(problem.get("type", "")).replace("/problems/", "")
        self.detail = str(self)
        self.retry_after = retry_after

    @staticmethod
    def of(status: int, document: Any, retry_after: float | None = None) -> ProblemError:
        """The error for a problem document, or for an answer without one."""
        problem = cast("Problem", document if isinstance(document, dict) else {})
        name = str(problem.get("type", "")).replace("/problems/", "")
        kind = _BY_TYPE.get(name) or _BY_STATUS.get(status) or ProblemError
        return kind(status, problem, retry_after)


class InvalidRequestError(ProblemError):
    """A field is wrong; `detail` begins with its name."""


class UnauthorizedError(ProblemError):
    """The credential is missing, malformed, expired, revoked or unknown."""


class ForbiddenError(ProblemError):
    """The credential may not do this; `problem` has `needs` or `because`."""


class NotFoundError(ProblemError):
    """There is no such conversation, agent, call, decision or path."""


class ConflictError(ProblemError):
    """The request does not fit the present state."""


class BusyError(ConflictError):
    """A turn runs: send with `if_busy` `queue` or `interrupt`."""


class StaleError(ConflictError):
    """The call has its answer, or waits for another one."""


class TooLargeError(ProblemError):
    """The request is too large."""


class OverloadedError(ProblemError):
    """A bound on work in progress, or a quota, is reached; see `retry_after`."""


class UnavailableError(ProblemError):
    """No node could carry out the request; whether a write was carried out is unknown."""


_BY_TYPE: dict[str, type[ProblemError]] = {
    "turn-in-flight": BusyError,
    "call-not-open": StaleError,
}
_BY_STATUS: dict[int, type[ProblemError]] = {
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
}


class TurnError(AbideError):
    """A turn ended without an answer."""

    def __init__(self, outcome: str, turn_id: str, reason: str | None) -> None:
        super().__init__(f"the turn was {outcome}" + (f": {reason}" if reason else ""))
        self.outcome = outcome
        self.turn_id = turn_id
        self.reason = reason

    @staticmethod
    def of(outcome: str, turn_id: str, reason: str | None) -> TurnError:
        """The error for an outcome other than `completed`."""
        kind = {"cancelled": TurnCancelledError, "halted": TurnHaltedError}.get(outcome, TurnFailedError)
        return kind(outcome, turn_id, reason)


class TurnCancelledError(TurnError):
    """Somebody cancelled the turn."""


class TurnHaltedError(TurnError):
    """A bound, a hook or a tool ended the turn; `reason` says which."""


class TurnFailedError(TurnError):
    """The model failed, or its answer did not fit the schema."""


class WaitingError(AbideError):
    """The turn waits for somebody. `pending` has the calls; answer them and ask for the result again."""

    def __init__(self, turn_id: str, pending: list[Any]) -> None:
        names = ", ".join(f"{call.tool} ({call.kind})" for call in pending[:5]) or "somebody"
        super().__init__(f"the turn waits for {names}")
        self.turn_id = turn_id
        self.pending = pending
