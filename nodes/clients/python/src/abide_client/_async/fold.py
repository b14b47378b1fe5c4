"""What the frames of a stream tell, as items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from ..errors import ProtocolError
from ..items import Complete, End, Progress, Restart, Result, Start, Text, Thinking, text_of
from ..types import Message, Outcome, PendingEntry, Usage
from .calls import AsyncCall
from .transport import snapshot_place

if TYPE_CHECKING:
    from .transport import AsyncTransport, Frame
    from .turn import Item

_OUTCOMES = ("completed", "cancelled", "halted", "failed")


class Fold:
    """Makes items of frames, and remembers what they need."""

    def __init__(
        self, transport: AsyncTransport, conversation: str, place: str | None, turn_id: str | None
    ) -> None:
        self._transport = transport
        self._conversation = conversation
        #: The turn that the frames belong to, and the place of the last frame that has one.
        self.turn_id = turn_id
        self.place = place
        self._snapshot_seq = 0
        #: The calls that waited when the stream began, by id and suspension.
        self._open: set[tuple[str, int]] = set()
        #: The message whose pieces came last, and how many characters of its text those are.
        self._streaming: str | None = None
        self._told = 0
        if place is not None and place.count(".") == 3:
            _, chars, thinking, self._streaming = place.split(".")
            self._told = int(chars) - int(thinking)
        self._client_calls: list[AsyncCall] = []
        #: The client calls that have been handed out; a reconnect tells of them again.
        self._known: set[tuple[str, str, int]] = set()

    def client_calls(self) -> list[AsyncCall]:
        """The calls that began to wait for a client since this was asked last."""
        calls, self._client_calls = self._client_calls, []
        return calls

    def take(self, frame: Frame) -> Iterator[Item]:
        """Yields the items of a frame. Frames that are not known are skipped."""
        name, place, data = frame
        try:
            if name == "snapshot":
                yield from self._take_snapshot(data)
            elif name == "turn_started":
                self.turn_id = data["turn_id"]
            elif name in ("text_delta", "thinking_delta"):
                yield from self._take_delta(name, data)
            elif name == "message_completed":
                yield from self._take_message(cast(Message, data["message"]))
            elif name == "message_refused":
                self._streaming, self._told = None, 0
                yield Restart(data["message_id"])
            elif name == "tool_call_started":
                yield Start(data["call_id"], data["tool"], data.get("args"), data.get("attempt", 1))
            elif name == "tool_progress":
                yield Progress(data["call_id"], data.get("payload"))
            elif name in ("tool_call_resolved", "tool_call_errored"):
                yield _result(data)
            elif name in ("suspended", "child_suspended"):
                yield from self._take_suspended(name, place, data)
            elif name == "turn_withdrawn":
                # It never started: another turn may run.
                yield End(data["turn_id"], "cancelled", "withdrawn", Usage())
            elif name.startswith("turn_") and name[5:] in _OUTCOMES:
                self.turn_id = None
                self._streaming, self._told = None, 0
                outcome = cast(Outcome, name[5:])
                yield End(data["turn_id"], outcome, data.get("reason"), data.get("usage") or Usage())
        except (KeyError, TypeError) as error:
            raise ProtocolError(f"a frame {name!r} lacks {error}") from error

    def _take_snapshot(self, data: dict[str, Any]) -> Iterator[Item]:
        self._snapshot_seq = data["last_seq"]
        self._open = {(it["call_id"], it["suspension"]) for it in data["pending"]}
        known = {(it["conversation_id"], it["call_id"], it["suspension"]) for it in data["child_pending"]}
        own = {(self._conversation, *it) for it in self._open}
        self._known &= known | own
        # Without a place to go on from, the stream begins in the middle of this turn.
        if self.place is None:
            self.turn_id = (data["turn"] or {}).get("id")
            self.place = snapshot_place(data)
            message = data.get("streaming_message") or {}
            for kind in ("thinking", "text") if message else ():
                delta = {"message_id": message["id"], "text": message[kind]}
                yield from self._take_delta(f"{kind}_delta", delta)
        for entry in [*data["pending"], *data["child_pending"]]:
            self._note_client_call(AsyncCall(self._transport, self._conversation, entry))

    def _take_delta(self, name: str, data: dict[str, Any]) -> Iterator[Item]:
        message = data["message_id"]
        yield from self._restart_unless(message)
        self._streaming = message
        text = data["text"]
        if name == "thinking_delta":
            if text:
                yield Thinking(text, message)
        elif text:
            self._told += len(text)
            yield Text(text, message)

    def _take_message(self, message: Message) -> Iterator[Item]:
        """The message, after what no piece has told of it, such as all of it if it was complete
        before the stream began."""
        if message["role"] == "assistant":
            yield from self._restart_unless(message["id"])
            rest = text_of(message)[self._told :]
            if rest:
                yield Text(rest, message["id"])
        self._streaming, self._told = None, 0
        yield Complete(message)

    def _restart_unless(self, message: str) -> Iterator[Item]:
        if self._streaming not in (None, message):
            yield Restart(str(self._streaming))
            self._told = 0

    def _take_suspended(self, name: str, place: str | None, data: dict[str, Any]) -> Iterator[Item]:
        call = AsyncCall(self._transport, self._conversation, cast(PendingEntry, data))
        is_old = place is not None and int(place.partition(".")[0]) <= self._snapshot_seq
        # The snapshot knows that an old call was answered meanwhile.
        if is_old and name == "suspended" and (call.call_id, call.suspension) not in self._open:
            return
        self._note_client_call(call)
        yield call

    def _note_client_call(self, call: AsyncCall) -> None:
        key = (call.conversation_id, call.call_id, call.suspension or 0)
        if call.kind == "client_exec" and key not in self._known:
            self._known.add(key)
            self._client_calls.append(call)


def _result(data: dict[str, Any]) -> Result:
    envelope = data["result"]
    error, kind = envelope.get("error"), envelope.get("error_type")
    return Result(data["call_id"], bool(envelope.get("ok")), envelope.get("result"), error, kind)
