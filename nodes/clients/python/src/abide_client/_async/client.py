"""The nodes of a cluster, and what concerns no single conversation."""

from __future__ import annotations

import asyncio
import os
import re
import uuid
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Literal
from urllib.parse import quote

import httpx

from ..types import AgentDefined, ConversationRow, Kind, Me, State
from .calls import AsyncCall
from .conversation import AsyncConversation
from .resources import AsyncAgents, AsyncErasures, AsyncSchedules, AsyncWebhooks
from .source import AsyncSource, Given
from .transfer import LINES
from .transport import AsyncTransport, Token

_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


class AsyncAbide:
    """The nodes of a cluster. Nothing is sent before something is asked for.

    `urls`: the public addresses of the nodes, else those of `ABIDE_URL`, which commas separate; a
    request goes to another when one does not answer. `token`: an API key, a JWT or a conversation
    token, else that of `ABIDE_TOKEN`, or a function that returns one, which is called again when a
    node refuses it. `headers`: sent with every request. `retry_for`: how many seconds a
    request is repeated until a node answers. `http`: an httpx client to use, which stays open.
    """

    def __init__(
        self,
        *urls: str,
        token: Token = None,
        headers: Mapping[str, str] | None = None,
        retry_for: float = 60.0,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        nodes = urls or tuple(os.environ.get("ABIDE_URL", "http://127.0.0.1:8080").split(","))
        for url in nodes:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"urls: {url!r} is no http or https URL")
        if token is None:
            token = os.environ.get("ABIDE_TOKEN")
        self._transport = AsyncTransport(nodes, token, headers or {}, retry_for, http)
        self.agents = AsyncAgents(self._transport)
        self.schedules = AsyncSchedules(self._transport)
        self.webhooks = AsyncWebhooks(self._transport)
        self.erasures = AsyncErasures(self._transport)

    async def __aenter__(self) -> AsyncAbide:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes all connections."""
        await self._transport.aclose()

    def conversation(self, id: str | None = None, *, agent: str | None = None) -> AsyncConversation:
        """A handle of a conversation; no request is made. Without an id it is a new one. With an agent,
        the first message creates it if it does not exist."""
        id = f"conv_{uuid.uuid4().hex}" if id is None else id
        if not _ID.fullmatch(id) or id in (".", ".."):
            raise ValueError(f"id: {id!r} is not of the form [A-Za-z0-9_.:-]{{1,128}}")
        return AsyncConversation(self._transport, id, agent)

    async def conversations(
        self,
        *,
        agent: str | None = None,
        state: State | None = None,
        owner: str | None = None,
        parent: str | None = None,
        root_only: bool = True,
        metadata: Mapping[str, str] | None = None,
        created_after: str | None = None,
        created_before: str | None = None,
        active_after: str | None = None,
        active_before: str | None = None,
        order: Literal["active", "created"] = "active",
        dir: Literal["asc", "desc"] = "desc",
    ) -> AsyncIterator[ConversationRow]:
        """Yields conversations, the one that was active last first: those of this agent, state, owner and
        parent, with this metadata, created and active in these times. Times are those of RFC 3339."""
        params: dict[str, Any] = {"agent": agent, "state": state, "owner": owner, "parent": parent}
        params |= {"root_only": "true" if root_only else "false", "order": order, "dir": dir}
        params |= {"created_after": created_after, "created_before": created_before}
        params |= {"active_after": active_after, "active_before": active_before}
        params |= {f"metadata.{key}": value for key, value in (metadata or {}).items()}
        cursor: str | None = None
        while True:
            page = {**params, "cursor": cursor, "limit": "200"}
            answer = await self._transport.request("GET", "/v1/conversations", params=page)
            for row in answer["conversations"]:
                yield row
            cursor = answer.get("cursor")
            if cursor is None:
                return

    async def import_conversation(
        self, body: Given, *, keep_id: bool = False, key: str | None = None
    ) -> AsyncConversation:
        """Reads an export into a conversation, which is there when all of it was read, and returns it: a copy
        with another id whose open work is cancelled, or with `keep_id` the very one, which goes on.

        The body is bytes, a binary file, or an iterable of bytes such as an export, of which no more than
        a piece is in memory. What cannot go back to its beginning is sent once; a function that returns
        the body is called for each attempt. Give a `key` to repeat the import yourself later: it is carried
        out once."""
        imported = await self._transport.upload(
            "/v1/conversations/import", AsyncSource(body), kind=LINES,
            params={"keep_id": "true" if keep_id else None}, key=key or uuid.uuid4().hex,
        )  # fmt: skip
        return self.conversation(imported["id"])

    async def inbox(
        self,
        *,
        kind: Kind | None = None,
        agent: str | None = None,
        tool: str | None = None,
        conversation: str | None = None,
        mine: bool = False,
        follow: bool = False,
        interval: float = 2.0,
    ) -> AsyncIterator[AsyncCall]:
        """Yields the calls that wait in the whole cluster, the earliest deadline first. With `follow`
        it goes on without an end, and yields each call that begins to wait once."""
        params = {"kind": kind, "agent": agent, "tool": tool, "conversation": conversation}
        params["mine"] = "true" if mine else None
        seen: set[tuple[str, str, int]] = set()
        while True:
            listed: set[tuple[str, str, int]] = set()
            cursor: str | None = None
            while True:
                page = {**params, "cursor": cursor, "limit": "200"}
                answer = await self._transport.request("GET", "/v1/pending", params=page)
                for entry in answer["pending"]:
                    name = (entry["conversation_id"], entry["call_id"], entry["suspension"])
                    listed.add(name)
                    if name not in seen:
                        yield AsyncCall(self._transport, "", entry)
                cursor = answer.get("cursor")
                if cursor is None:
                    break
            if not follow:
                return
            # What is listed no more is forgotten, so that the set does not grow.
            seen = listed
            await asyncio.sleep(interval)

    async def define(self, name: str, definition: Mapping[str, Any]) -> AgentDefined:
        """Defines an agent, or its next revision."""
        path = f"/v1/agents/{quote(name, safe='')}"
        key = uuid.uuid4().hex
        reply: AgentDefined = await self._transport.request("PUT", path, body=definition, key=key)
        return reply

    async def me(self) -> Me:
        """Who the caller is."""
        reply: Me = await self._transport.request("GET", "/v1/me")
        return reply

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Any:
        """Makes any other request of the API with the same retries. Give a `key` to one that changes
        something, so that it can be repeated."""
        return await self._transport.request(method, path, body=body, params=params, key=key)
