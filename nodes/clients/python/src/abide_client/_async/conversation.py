"""One conversation, known by its id."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import quote

from ..types import (
    Created,
    IfBusy,
    JournalEvent,
    MessagePage,
    NamedBlob,
    PendingEntry,
    QueuedTurn,
    Scheduled,
    ScheduledMessage,
    Snapshot,
    TurnReport,
)
from ..whole_file import WholeFile
from .calls import AsyncCall
from .state import AsyncConversationState
from .transfer import exported
from .turn import AsyncTurn, Handler, Item, follow

if TYPE_CHECKING:
    from .transport import AsyncTransport

_Handler = TypeVar("_Handler", bound=Handler)


class AsyncConversation:
    """A handle of one conversation."""

    def __init__(self, transport: AsyncTransport, id: str, agent: str | None) -> None:
        self._transport = transport
        self._path = f"/v1/conversations/{quote(id, safe='')}"
        self._tools: dict[str, Handler] = {}
        self.id = id
        self.agent = agent
        #: What clients and tools note in the conversation, by key.
        self.state = AsyncConversationState(transport, self._path)

    async def create(
        self,
        *,
        metadata: Mapping[str, Any] | None = None,
        assigns: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        owner: str | None = None,
        members: Sequence[str] | None = None,
        title: str | None = None,
        expires_at: str | None = None,
    ) -> Created:
        """Creates the conversation with more than an agent; a message alone creates it without. At
        `expires_at`, a time in RFC 3339, it is deleted."""
        body = _given(
            id=self.id, agent=self.agent, metadata=metadata, assigns=assigns, tools=tools,
            owner=owner, members=members, title=title, expires_at=expires_at,
        )  # fmt: skip
        return cast(Created, await self._post("/v1/conversations", body))

    async def send(
        self,
        content: str | Sequence[Mapping[str, Any]],
        *,
        if_busy: IfBusy | None = None,
        schema: Mapping[str, Any] | bool | None = None,
        assigns: Mapping[str, Any] | None = None,
        context: Sequence[Mapping[str, Any]] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        message_id: str | None = None,
    ) -> AsyncTurn:
        """Sends a text, or content blocks, and returns the turn that it starts. The request is repeated
        as the same message until a node has it; give `message_id` to repeat it yourself later."""
        body = _given(
            agent=self.agent, message_id=message_id or uuid.uuid4().hex, if_busy=if_busy,
            schema=schema, assigns=assigns, context=context, tools=tools,
        )  # fmt: skip
        body.update(_content(content))
        sent: TurnReport = await self._transport.request("POST", f"{self._path}/messages", body=body)
        cursor = f"{sent['turn_id']}/{sent['seq']}"
        return AsyncTurn(self._transport, self.id, cursor, self._tools, body)

    async def schedule(
        self,
        content: str | Sequence[Mapping[str, Any]],
        *,
        delay: str | None = None,
        at: str | None = None,
        if_busy: IfBusy | None = None,
        message_id: str | None = None,
    ) -> Scheduled:
        """Sends a message later: after a delay such as `"2h"`, or at a time. It is delivered once, by
        whichever node lives then. Returns its `scheduled_id`."""
        body = _given(
            agent=self.agent, message_id=message_id or uuid.uuid4().hex, if_busy=if_busy,
            deliver_in=delay, deliver_at=at,
        )  # fmt: skip
        body.update(_content(content))
        sent = await self._transport.request("POST", f"{self._path}/messages", body=body)
        return cast(Scheduled, sent)

    async def scheduled(self) -> list[ScheduledMessage]:
        """The messages that wait for their time."""
        listed = await self._transport.request("GET", f"{self._path}/scheduled")
        return cast("list[ScheduledMessage]", listed["scheduled"])

    async def withdraw(self, scheduled_id: str) -> None:
        """Withdraws a message that waits for its time."""
        path = f"{self._path}/scheduled/{quote(scheduled_id, safe='')}"
        await self._transport.request("DELETE", path, key=uuid.uuid4().hex)

    def turn(self, cursor: str) -> AsyncTurn:
        """A turn that was begun earlier, to go on from this `turn.cursor`."""
        return AsyncTurn(self._transport, self.id, cursor, self._tools)

    def tool(self, name: str) -> Callable[[_Handler], _Handler]:
        """Decorates a function that executes the client tool of this name: `fn(args, call)` returns the
        result. It runs while somebody iterates a turn, waits for its result, or follows."""

        def register(handler: _Handler) -> _Handler:
            self._tools[name] = handler
            return handler

        return register

    async def follow(self, after: int | None = None) -> AsyncIterator[Item]:
        """Yields what happens in all turns from now on, or after the event of this `seq`, without an
        end, and executes client tools meanwhile."""
        place = None if after is None else str(after)
        told = follow(self._transport, self.id, self._tools, place)
        async with aclosing(told):
            async for item, _, _ in told:
                yield item

    def call(self, call_id: str, suspension: int | None = None) -> AsyncCall:
        """A handle of a call, made of its id."""
        entry: dict[str, Any] = _given(call_id=call_id, suspension=suspension)
        return AsyncCall(self._transport, self.id, cast(PendingEntry, entry))

    async def pending(self) -> list[AsyncCall]:
        """The calls that wait here, and in the children that work for this conversation."""
        snapshot = await self.snapshot()
        entries = [*snapshot["pending"], *snapshot["child_pending"]]
        return [AsyncCall(self._transport, self.id, cast(PendingEntry, it)) for it in entries]

    async def snapshot(self) -> Snapshot:
        """What the conversation is like now."""
        return cast(Snapshot, await self._transport.request("GET", self._path))

    async def messages(self, *, before: str | None = None, limit: int | None = None) -> MessagePage:
        """The newest page of messages, or the one before a page's `cursor`."""
        params = {"before": before, "limit": limit}
        path = f"{self._path}/messages"
        return cast(MessagePage, await self._transport.request("GET", path, params=params))

    async def journal(self, after: int = 0) -> AsyncIterator[JournalEvent]:
        """Yields the events of the journal, the oldest first."""
        while True:
            params = {"after": after, "limit": 1000}
            page = await self._transport.request("GET", f"{self._path}/journal", params=params)
            for event in page["events"]:
                yield cast(JournalEvent, event)
                after = event["seq"]
            if not page["events"] or after >= page["last_seq"]:
                return

    async def blobs(self) -> AsyncIterator[NamedBlob]:
        """Yields the blobs that the journal names, in its order; one that is named again may come again."""
        after: int | None = 0
        while after is not None:
            params = {"conversation": self.id, "after": after, "limit": 1000}
            page = await self._transport.request("GET", "/v1/blobs", params=params)
            for blob in page["blobs"]:
                yield cast(NamedBlob, blob)
            after = page.get("cursor")

    async def cancel(self) -> bool:
        """Cancels the running turn; false if there was none."""
        return bool((await self._post(f"{self._path}/cancel", {}))["cancelled"])

    async def queue(self) -> list[QueuedTurn]:
        """The turns that wait, the next one first."""
        listed = await self._transport.request("GET", f"{self._path}/queue")
        return cast("list[QueuedTurn]", listed["queued"])

    async def withdraw_turn(self, turn_id: str) -> None:
        """Withdraws a turn that waits: it never starts."""
        path = f"{self._path}/queue/{quote(turn_id, safe='')}"
        await self._transport.request("DELETE", path, key=uuid.uuid4().hex)

    async def rewind(self, seq: int) -> int:
        """Goes on from the event of this `seq`: what came after it counts no longer. Returns the `seq`
        of the event that says so."""
        return int((await self._post(f"{self._path}/rewind", {"to_seq": seq}))["seq"])

    async def regenerate(self, turn_id: str | None = None) -> str:
        """Begins the last turn anew, or the one with this id, and returns the new turn's id: `follow`
        tells of it."""
        made = await self._post(f"{self._path}/regenerate", _given(turn_id=turn_id))
        return str(made["turn_id"])

    async def fork(self, *, at: int | None = None, id: str | None = None) -> AsyncConversation:
        """Makes a conversation with the events of this one up to `at`, or all of them."""
        made = await self._post(f"{self._path}/fork", _given(at_seq=at, id=id))
        return AsyncConversation(self._transport, made["id"], made["agent"])

    def export(self) -> AsyncGenerator[bytes, None]:
        """Yields the bytes of an export of the conversation as it is now, in pieces as they come: lines of
        JSON that `import_conversation` reads. Raises `CutOffError` if the end is missing."""
        return exported(self._transport, f"{self._path}/export")

    async def export_to(self, path: str | os.PathLike[str]) -> None:
        """Writes an export into a file, which is there only when the export is whole; one that was there
        before stays until then."""
        with WholeFile(path) as file:
            async with aclosing(self.export()) as pieces:
                async for piece in pieces:
                    await asyncio.to_thread(file.write, piece)

    async def dispatch(self, tool: str, input: Any, *, approved: bool | None = None) -> Any:
        """Runs a server tool without the model. Returns the envelope of its result."""
        body = _given(tool=tool, input=input, approved=approved)
        return await self._post(f"{self._path}/dispatch", body)

    async def update(
        self,
        *,
        metadata: Mapping[str, Any] | None = None,
        members: Sequence[str] | None = None,
        title: str | None = None,
        expires_at: str | None = None,
    ) -> Snapshot:
        """Merges metadata, where None removes a member, and replaces the members, the title and the end; the
        title "" and the end "never" remove them."""
        body, key = _given(metadata=metadata, members=members), uuid.uuid4().hex
        if title is not None:
            body["title"] = title or None
        if expires_at is not None:
            body["expires_at"] = None if expires_at == "never" else expires_at
        return cast(Snapshot, await self._transport.request("PATCH", self._path, body=body, key=key))

    async def delete(self) -> None:
        """Deletes the conversation and all that it holds."""
        await self._transport.request("DELETE", self._path, key=uuid.uuid4().hex)

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        return await self._transport.request("POST", path, body=body, key=uuid.uuid4().hex)


def _content(content: str | Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"text": content} if isinstance(content, str) else {"content": list(content)}


def _given(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
