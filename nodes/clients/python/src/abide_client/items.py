"""What the iteration of a turn yields besides calls that wait."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from .types import CallRef, Message, Outcome, Usage


def text_of(message: Message | None) -> str:
    """The text of a message: its text blocks, joined."""
    blocks = message["content"] if message else []
    return "".join(str(it.get("text", "")) for it in blocks if it.get("type") == "text")


@dataclass(frozen=True)
class Text:
    """The next piece of a message."""

    text: str
    message_id: str
    type: Literal["text"] = "text"


@dataclass(frozen=True)
class Thinking:
    """The next piece of the model's thoughts."""

    text: str
    message_id: str
    type: Literal["thinking"] = "thinking"


@dataclass(frozen=True)
class Restart:
    """The pieces of this message so far are void: its node died, or a hook refused it. Another follows."""

    message_id: str
    type: Literal["restart"] = "restart"


@dataclass(frozen=True)
class Complete:
    """A message is complete."""

    message: Message
    type: Literal["message"] = "message"

    @property
    def text(self) -> str:
        """The text of the message."""
        return text_of(self.message)

    @property
    def object(self) -> Any:
        """The value of a structured turn, or None."""
        return self.message.get("object")

    @property
    def tool_calls(self) -> list[CallRef]:
        """The calls that the message makes."""
        return self.message.get("tool_calls") or []


@dataclass(frozen=True)
class Start:
    """A call was handed to its executor."""

    call_id: str
    tool: str
    args: Any
    attempt: int
    type: Literal["start"] = "start"


@dataclass(frozen=True)
class Progress:
    """What a running tool reports; such reports may be lost."""

    call_id: str
    payload: Any
    type: Literal["progress"] = "progress"


@dataclass(frozen=True)
class Result:
    """The one result of a call: a value, or an error."""

    call_id: str
    ok: bool
    value: Any = None
    error: str | None = None
    error_type: str | None = None
    type: Literal["result"] = "result"


@dataclass(frozen=True)
class End:
    """The turn has ended."""

    turn_id: str
    outcome: Outcome
    reason: str | None = None
    usage: Usage = field(default_factory=lambda: Usage())
    type: Literal["end"] = "end"


@dataclass(frozen=True)
class Answer:
    """What a completed turn has come to."""

    text: str
    object: Any
    message: Message | None
    usage: Usage
    turn_id: str

    def __str__(self) -> str:
        return self.text
