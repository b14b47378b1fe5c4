"""What nodes send and read, as typed dictionaries. More members may be added: ignore unknown ones."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

Json = Any
IfBusy = Literal["reject", "queue", "interrupt", "steer"]
Kind = Literal["approval", "elicitation", "client_exec", "in_doubt"]
Outcome = Literal["completed", "cancelled", "halted", "failed"]
State = Literal["idle", "preparing", "streaming", "executing_tools", "awaiting_input"]


class Problem(TypedDict, total=False):
    """An RFC 9457 problem document."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[dict[str, Json]]
    needs: str
    because: str
    quota: str
    retry_after: int


class Usage(TypedDict, total=False):
    """What model calls have cost."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    cost_usd: float


class CallRef(TypedDict):
    """A call as the model made it."""

    id: str
    name: str
    args: Json


class _Message(TypedDict):
    id: str
    role: Literal["user", "assistant", "tool"]
    content: list[dict[str, Json]]


class Message(_Message, total=False):
    """A message of a conversation."""

    status: Literal["complete", "cancelled", "error"] | None
    tool_calls: list[CallRef]
    tool_call_id: str | None
    object: Json


class ListedMessage(Message, total=False):
    """A message in a list."""

    seq: int
    at: str
    turn_id: str | None
    client_id: str | None


class MessagePage(TypedDict):
    """A page of messages, the oldest first; `cursor` leads to the page above."""

    messages: list[ListedMessage]
    cursor: str | None
    more: bool


class _PendingCall(TypedDict):
    call_id: str
    tool: str
    executor: str
    kind: Kind
    args: Json
    message: str
    intent: str
    suspension: int
    expires_at: str


class PendingCall(_PendingCall, total=False):
    """A call that waits."""

    suspended_at: str
    answer_schema: dict[str, Json] | None
    requests: Json
    needed: int | None
    votes: list[dict[str, Json]]
    policy: dict[str, Json] | None
    requesters: list[dict[str, Json]]
    original_args: Json


class PendingEntry(PendingCall, total=False):
    """A call that waits, as the inbox lists it."""

    conversation_id: str
    agent: str
    root_conversation_id: str | None
    may_answer: bool


class OpenTurn(TypedDict):
    """The turn that runs."""

    id: str
    step: int
    started_at: str


class InFlight(TypedDict, total=False):
    """A call that its executor has."""

    call_id: str
    tool: str
    executor: str
    attempt: int
    started_at: str
    progress: Json
    child_conversation_id: str | None


class _Snapshot(TypedDict):
    id: str
    agent: str
    revision: str | None
    state: State
    last_seq: int
    turn: OpenTurn | None
    streaming_message: dict[str, Json] | None
    in_flight: list[InFlight]
    pending: list[PendingCall]
    child_pending: list[PendingEntry]
    queued: int
    todos: list[dict[str, Json]]
    phase: str | None
    usage: Usage
    holder: dict[str, Json] | None
    metadata: dict[str, Json]
    created_at: str | None


class Snapshot(_Snapshot, total=False):
    """What a conversation is like now."""

    canary: bool
    owner: str | None
    members: list[str]
    expires_at: str


class _JournalEvent(TypedDict):
    seq: int
    type: str
    at: str
    data: dict[str, Json]


class JournalEvent(_JournalEvent, total=False):
    """An event of a journal; skip types that you do not know."""

    turn_id: str | None


class _TurnReport(TypedDict):
    conversation_id: str
    turn_id: str


class TurnReport(_TurnReport, total=False):
    """What a turn has come to; without `outcome`, it goes on."""

    seq: int
    outcome: Outcome | Literal["awaiting_input"]
    message: Message | None
    object: Json
    reason: str | None
    pending: list[PendingEntry] | None
    usage: Usage


class _ResolutionReply(TypedDict):
    status: Literal["accepted", "recorded"]
    seq: int


class ResolutionReply(_ResolutionReply, total=False):
    """That an answer is in the journal; `recorded`: further approvers are needed."""

    votes: int | None
    needed: int | None




Remember = TypedDict(
    "Remember",
    {"for": str, "scope": Literal["conversation", "agent"], "match": Literal["exact", "tool"]},
    total=False,
)


class Created(TypedDict):
    """A conversation that was made."""

    id: str
    agent: str
    revision: str


class AgentDefined(TypedDict):
    """An agent that was defined."""

    name: str
    revision: str
    warnings: list[Json]


class Me(TypedDict, total=False):
    """Who the caller is."""

    tenant: str | None
    subject: str
    name: str | None
    roles: list[str]
    groups: list[str]
    auth: str
    expires_at: str | None


class _ConversationRow(TypedDict):
    id: str
    agent: str
    state: State
    owner: str | None
    last_seq: int
    created_at: str
    active_at: str
    metadata: dict[str, Json]
    pending: int
    turns: int
    usage: Usage


class ConversationRow(_ConversationRow, total=False):
    """A conversation in a list."""

    parent: str
    title: str
    expires_at: str


class _NamedBlob(TypedDict):
    id: str
    seq: int


class NamedBlob(_NamedBlob, total=False):
    """A blob that an event names; without a type and a size, it was deleted."""

    media_type: str
    size: int


class Scheduled(TypedDict):
    """A message that is delivered later."""

    conversation_id: str
    scheduled_id: str
    deliver_at: str


class _ScheduledMessage(TypedDict):
    scheduled_id: str
    deliver_at: str
    message: Message
    principal: str
    if_busy: IfBusy


class _QueuedTurn(TypedDict):
    turn_id: str
    seq: int
    at: str
    message: Message
    principal: str


class QueuedTurn(_QueuedTurn, total=False):
    """A turn that waits for the turns before it."""

    message_id: str


class ScheduledMessage(_ScheduledMessage, total=False):
    """A message that waits for its time."""

    message_id: str
