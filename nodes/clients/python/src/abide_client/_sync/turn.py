"""A turn, whose items one iterates or whose answer one waits for."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple, Union
from urllib.parse import quote

from ..errors import DeadlineError, InvalidRequestError, NoAnswerError, NotFoundError, StaleError
from ..errors import TurnError, WaitingError
from ..items import Answer, Complete, End, Progress, Restart, Result, Start, Text, Thinking, text_of
from ..types import Message, MessagePage, TurnReport, Usage
from .calls import Call
from .fold import Fold

if TYPE_CHECKING:
    from .transport import Transport

#: The longest that one request waits for an outcome; a node waits for 10 minutes at most.
MAX_WAIT = 30.0
#: The shortest time between two requests for an outcome that is not there.
MIN_PAUSE = 0.25

#: `TURN/PLACE` before the turn has begun, `TURN/in/PLACE` in it.
_CURSOR = re.compile(r"(?P<turn>[A-Za-z0-9_-]+)/(?P<in>in/)?(?P<place>\d+(\.\d+\.\d+\.[\w-]+)?)")
#: The states in which a turn goes on by itself.
_BUSY = ("preparing", "streaming")

Item = Union[Text, Thinking, Restart, Complete, Start, Call, Progress, Result, End]
Handler = Callable[[Any, Call], Any]


class Told(NamedTuple):
    """An item, the turn that it belongs to, and the place after it."""

    item: Item
    turn_id: str | None
    place: str | None


def follow(
    transport: Transport,
    conversation: str,
    tools: dict[str, Handler],
    place: str | None = None,
    turn_id: str | None = None,
    end: float | None = None,
) -> Generator[Told, None, None]:
    """Yields what happens after a place, which stands in this turn, or from now on."""
    path = f"/v1/conversations/{quote(conversation, safe='')}/events"
    fold = Fold(transport, conversation, place, turn_id)
    seq = int(place.partition(".")[0]) if place else 0
    frames = transport.frames(path, place, end)
    with closing(frames):
        for frame in frames:
            if frame.name == "snapshot" and frame.data.get("last_seq", seq) < seq:
                detail = "the turn is gone: another conversation has its id"
                raise NotFoundError(404, {"detail": detail, "status": 404})
            items, before = list(fold.take(frame)), fold.turn_id
            for item in items[:-1]:
                yield Told(item, before, fold.place)
            fold.place = frame.id or fold.place
            for item in items[-1:]:
                yield Told(item, item.turn_id if isinstance(item, End) else before, fold.place)
            for call in fold.client_calls():
                if call.tool in tools:
                    _execute(call, tools[call.tool])


def _execute(call: Call, handler: Handler) -> None:
    """Runs a client tool and reports its result. Whoever else does so first wins."""
    failure: str | None = None
    result: Any = None
    try:
        result = handler(call.args, call)
    except Exception as error:
        failure = str(error) or type(error).__name__
    try:
        if failure is not None:
            call.fail(failure)
        else:
            call.answer(result)
    except StaleError:
        pass
    except InvalidRequestError as error:
        call.fail(f"the result was refused: {error.detail}")


class Turn:
    """A turn. Iterating it, at any time and more than once, yields its items after `cursor`."""

    def __init__(
        self,
        transport: Transport,
        conversation: str,
        cursor: str,
        tools: dict[str, Handler],
        body: dict[str, Any] | None = None,
    ) -> None:
        match = _CURSOR.fullmatch(cursor)
        if match is None:
            raise ValueError(f"cursor: {cursor!r} is not the cursor of a turn")
        self._transport = transport
        self._tools = tools
        self._body = body
        self._is_in = match["in"] is not None
        self._place = match["place"]
        self._last: Message | None = None
        self.conversation_id = conversation
        self.id: str = match["turn"]

    @property
    def cursor(self) -> str:
        """Where the iteration stands, as an opaque text: `conversation.turn(cursor)` goes on after the
        item that was yielded last, also in another process."""
        return f"{self.id}/{'in/' if self._is_in else ''}{self._place}"

    @property
    def message_id(self) -> str | None:
        """The id of the message; a message with the same id is the same message."""
        return self._body["message_id"] if self._body else None

    def __iter__(self) -> Iterator[Item]:
        items = self._items()
        with closing(items):
            for item in items:
                yield item

    def _items(self, end: float | None = None) -> Generator[Item, None, None]:
        now_in = self.id if self._is_in else None
        told = follow(
            self._transport, self.conversation_id, self._tools, self._place, now_in, end
        )
        with closing(told):
            for item, turn_id, place in told:
                if turn_id != self.id:
                    continue
                # The end is not passed, so that whoever reads on from here learns of it.
                if isinstance(item, End):
                    yield item
                    return
                self._is_in, self._place = True, place or self._place
                if isinstance(item, Complete) and item.message["role"] == "assistant":
                    self._last = item.message
                yield item

    def result(self, timeout: float | None = None) -> Answer:
        """Waits until the turn has completed, for at most `timeout` seconds.

        Raises `TurnHaltedError`, `TurnFailedError` or `TurnCancelledError` if it ended otherwise,
        `WaitingError` if it rests until somebody answers, and `DeadlineError` if the time is over. It
        may be called again after the last two.
        """
        end = None if timeout is None else time.monotonic() + timeout
        if self._body is None or self._tools:
            return self._read_result(end)
        path = f"/v1/conversations/{quote(self.conversation_id, safe='')}/messages"
        while True:
            left = MAX_WAIT if end is None else min(MAX_WAIT, end - time.monotonic())
            if left <= 0.0:
                raise DeadlineError(f"the turn has not ended after {timeout} s")
            wait, began = f"{max(1, int(left * 1000))}ms", time.monotonic()
            report: TurnReport = self._transport.request(
                "POST", path, body=self._body, params={"wait": wait}, wait=left
            )
            if "outcome" in report:
                return self._answer(report)
            # A node with too many requests that wait answers at once.
            time.sleep(max(0.0, min(MIN_PAUSE, left) - (time.monotonic() - began)))

    def _read_result(self, end: float | None) -> Answer:
        """Reads the result from the stream, which executes client tools meanwhile."""
        items = self._items(end)
        with closing(items):
            for item in items:
                if isinstance(item, End):
                    message = self._last or self._read_last()
                    report = {"message": message, "reason": item.reason, "usage": item.usage}
                    return self._answer({"outcome": item.outcome, **report})
                if isinstance(item, (Call, Result)):
                    self._raise_if_resting()
        raise NoAnswerError("the stream of the turn ended")

    def _read_last(self) -> Message | None:
        """The model's newest message of this turn: it may have been told before the cursor."""
        path = f"/v1/conversations/{quote(self.conversation_id, safe='')}/messages"
        page: MessagePage = self._transport.request("GET", path)
        told = [it for it in page["messages"] if it.get("turn_id") == self.id]
        return next((it for it in reversed(told) if it["role"] == "assistant"), None)

    def _raise_if_resting(self) -> None:
        """Raises if nothing goes on until somebody else answers."""
        path = f"/v1/conversations/{quote(self.conversation_id, safe='')}"
        snapshot = self._transport.request("GET", path)
        pending = [*snapshot["pending"], *snapshot["child_pending"]]
        calls = [Call(self._transport, self.conversation_id, entry) for entry in pending]
        is_open = (snapshot["turn"] or {}).get("id") == self.id
        runs = [it for it in snapshot["in_flight"] if not it.get("child_conversation_id")]
        own = [it for it in calls if it.kind == "client_exec" and it.tool in self._tools]
        if is_open and calls and not runs and not own and snapshot["state"] not in _BUSY:
            raise WaitingError(self.id, calls)

    def _answer(self, report: Any) -> Answer:
        outcome, message = report["outcome"], report.get("message")
        if outcome == "awaiting_input":
            entries = report.get("pending") or []
            calls = [Call(self._transport, self.conversation_id, it) for it in entries]
            raise WaitingError(self.id, calls)
        if outcome != "completed":
            raise TurnError.of(outcome, self.id, report.get("reason"))
        value = report.get("object", (message or {}).get("object"))
        return Answer(text_of(message), value, message, report.get("usage") or Usage(), self.id)
