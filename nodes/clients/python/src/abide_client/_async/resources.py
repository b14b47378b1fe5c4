"""What belongs to a tenant and not to one conversation: agents, schedules, webhooks, erasures."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from .transport import AsyncTransport


class _AsyncNamed:
    """Things of one kind that have names."""

    def __init__(self, transport: AsyncTransport, path: str) -> None:
        self._transport = transport
        self._path = path

    async def put(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Puts one, also in place of the one before."""
        return await self._send("PUT", name, "", body)

    async def get(self, name: str) -> dict[str, Any]:
        """Reads one."""
        return await self._read(name, "")

    async def delete(self, name: str) -> None:
        """Deletes one."""
        await self._send("DELETE", name, "", None)

    async def _read(self, name: str, below: str) -> dict[str, Any]:
        read: dict[str, Any] = await self._transport.request("GET", self._at(name) + below)
        return read

    async def _send(
        self, method: str, name: str, below: str, body: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        path, key = self._at(name) + below, uuid.uuid4().hex
        sent: dict[str, Any] = await self._transport.request(method, path, body=body, key=key)
        return sent

    async def _pages(
        self, member: str, below: str, params: Mapping[str, Any]
    ) -> AsyncIterator[dict[str, Any]]:
        cursor: str | None = None
        while True:
            page = {**params, "cursor": cursor}
            answer = await self._transport.request("GET", self._path + below, params=page)
            for item in answer[member]:
                yield item
            cursor = answer.get("cursor")
            if cursor is None:
                return

    def _at(self, name: str) -> str:
        return f"{self._path}/{quote(name, safe='')}"


class AsyncAgents(_AsyncNamed):
    """Agents and their revisions."""

    def __init__(self, transport: AsyncTransport) -> None:
        super().__init__(transport, "/v1/agents")

    def list(self) -> AsyncIterator[dict[str, Any]]:
        """Yields the agents, by name."""
        return self._pages("agents", "", {})

    def revisions(self, name: str) -> AsyncIterator[dict[str, Any]]:
        """Yields the revisions of an agent, the one that was put last first."""
        return self._pages("revisions", f"/{quote(name, safe='')}/revisions", {})

    async def revision(self, name: str, revision: str) -> dict[str, Any]:
        """Reads the definition as of a revision."""
        return await self._read(name, f"/revisions/{quote(revision, safe='')}")

    async def compare(self, name: str, before: str, after: str) -> dict[str, Any]:
        """Reads what has changed from one revision to another."""
        below = f"/revisions/{quote(before, safe='')}/diff/{quote(after, safe='')}"
        return await self._read(name, below)

    async def roll_back(self, name: str, revision: str) -> dict[str, Any]:
        """Makes an earlier revision the one with which turns begin."""
        return await self._send("POST", name, "/rollback", {"revision": revision})

    async def roll_out(self, name: str, revision: str, percent: int) -> dict[str, Any]:
        """Lets a share of the conversations run on a revision in place of the newest one."""
        body = {"revision": revision, "percent": percent}
        return await self._send("PUT", name, "/rollout", body)

    async def rollout(self, name: str) -> dict[str, Any]:
        """Reads the rollout of an agent; a 404 if all run on the newest revision."""
        return await self._read(name, "/rollout")

    async def end_rollout(self, name: str) -> None:
        """Ends the rollout of an agent."""
        await self._send("DELETE", name, "/rollout", None)


class AsyncSchedules(_AsyncNamed):
    """Messages that come at set times."""

    def __init__(self, transport: AsyncTransport) -> None:
        super().__init__(transport, "/v1/schedules")

    def list(self) -> AsyncIterator[dict[str, Any]]:
        """Yields the schedules, by name."""
        return self._pages("schedules", "", {})

    async def trigger(self, name: str) -> dict[str, Any]:
        """Sends the message of a schedule now."""
        return await self._send("POST", name, "/trigger", {})

    async def pause(self, name: str) -> dict[str, Any]:
        """Pauses a schedule."""
        return await self._send("POST", name, "/pause", {})

    async def resume(self, name: str) -> dict[str, Any]:
        """Resumes a schedule with the first tick after now."""
        return await self._send("POST", name, "/resume", {})


class AsyncWebhooks(_AsyncNamed):
    """Who is told of what happens."""

    def __init__(self, transport: AsyncTransport) -> None:
        super().__init__(transport, "/v1/webhooks")

    def list(self) -> AsyncIterator[dict[str, Any]]:
        """Yields the webhooks, by name."""
        return self._pages("webhooks", "", {})

    async def rotate(self, name: str, *, overlap: str | None = None) -> dict[str, Any]:
        """Makes another secret; for a while, `overlap`, both sign."""
        return await self._send("POST", name, "/rotate", {"overlap": overlap})

    async def test(self, name: str) -> dict[str, Any]:
        """Sends the receiver a notice, and says what became of it."""
        return await self._send("POST", name, "/test", {})

    def deliveries(self, name: str, *, state: str = "owed") -> AsyncIterator[dict[str, Any]]:
        """Yields what is owed, or with the state `dead` what nobody tries any more."""
        return self._pages("deliveries", f"/{quote(name, safe='')}/deliveries", {"state": state})

    async def redeliver(self, name: str, id: str) -> dict[str, Any]:
        """Sends a notice once more."""
        below = f"/deliveries/{quote(id, safe='')}/redeliver"
        return await self._send("POST", name, below, {})


class AsyncErasures:
    """People who are erased."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._named = _AsyncNamed(transport, "/v1/erasures")

    async def start(self, owner: str) -> dict[str, Any]:
        """Begins to erase a person, and gives `id`. While one of them runs, it is that one."""
        key = uuid.uuid4().hex
        begun: dict[str, Any] = await self._transport.request(
            "POST", "/v1/erasures", body={"owner": owner}, key=key
        )
        return begun

    async def get(self, id: str) -> dict[str, Any]:
        """Reads how far an erasure has come, or its report."""
        return await self._named.get(id)

    def list(self) -> AsyncIterator[dict[str, Any]]:
        """Yields those that run, and then those that are done, without the ids of conversations."""
        return self._named._pages("erasures", "", {})
