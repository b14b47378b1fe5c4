"""Calls that wait, and their answers."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from ..types import Kind, PendingEntry, Remember, ResolutionReply

if TYPE_CHECKING:
    from .transport import Transport

_UNSET: Any = object()


class Call:
    """A call that waits, or a handle of one, made of its ids.

    `entry` is what the node said of it; the other members are empty where only the ids are known.
    Each answer raises `StaleError` if somebody was quicker or the call waits no more, and
    `InvalidRequestError` (the call stays open) if the answer breaks its schema.
    """

    type: Literal["suspended"] = "suspended"

    def __init__(self, transport: Transport, conversation: str, entry: PendingEntry) -> None:
        self._transport = transport
        self.entry = entry
        self.conversation_id = entry.get("conversation_id", conversation)
        self.call_id = entry["call_id"]
        self.suspension = entry.get("suspension")
        self.tool = entry.get("tool", "")
        self.kind: Kind | Literal[""] = entry.get("kind", "")
        self.args: Any = entry.get("args")
        self.message = entry.get("message", "")
        self.expires_at = entry.get("expires_at")
        self.answer_schema = entry.get("answer_schema")

    def __repr__(self) -> str:
        return f"<Call {self.conversation_id}/{self.call_id} {self.tool} {self.kind}>"

    def approve(
        self,
        *,
        reason: str | None = None,
        args: Any = _UNSET,
        remember: str | Remember | None = None,
    ) -> ResolutionReply:
        """Approves the call, with edited arguments if there are any. `remember` answers later calls,
        too: a duration such as `"24h"`, or `{"for", "scope", "match"}`."""
        answer: dict[str, Any] = {"approved": True} if args is _UNSET else {"approved": True, "args": args}
        return self._resolve(_with(answer, reason, remember))

    def deny(
        self, *, reason: str | None = None, remember: str | Remember | None = None
    ) -> ResolutionReply:
        """Denies the call; the model reads the reason."""
        return self._resolve(_with({"approved": False}, reason, remember))

    def answer(self, result: Any) -> ResolutionReply:
        """Answers a question, or reports what a client tool returned."""
        return self._resolve({"result": result})

    def fail(self, error: str) -> ResolutionReply:
        """Ends a question or a client call as an error, which the model reads."""
        return self._resolve({"error": error[:2000] or "failed"})

    def retry(self) -> ResolutionReply:
        """Has a call that is in doubt run once more."""
        return self._resolve({"outcome": "retry"})

    def extend(self, duration: str | None = None, *, until: str | None = None) -> str:
        """Lets the call wait longer: for a duration such as `"1h"`, or until a time. Returns until when
        it may wait."""
        body = {"until": until} if duration is None else {"for": duration}
        return str((self._post("extend", body))["expires_at"])

    def _resolve(self, answer: dict[str, Any]) -> ResolutionReply:
        if self.suspension is not None:
            answer["suspension"] = self.suspension
        reply: ResolutionReply = self._post("resolution", answer)
        return reply

    def _post(self, verb: str, body: dict[str, Any]) -> Any:
        ids = quote(self.conversation_id, safe=""), quote(self.call_id, safe="")
        path = "/v1/conversations/{}/calls/{}/".format(*ids) + verb
        return self._transport.request("POST", path, body=body, key=uuid.uuid4().hex)


def _with(
    answer: dict[str, Any], reason: str | None, remember: str | Remember | None
) -> dict[str, Any]:
    if reason is not None:
        answer["reason"] = reason
    if remember is not None:
        answer["remember"] = {"for": remember} if isinstance(remember, str) else remember
    return answer
