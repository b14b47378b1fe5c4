"""The small state that clients and tools of a conversation share."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .transport import AsyncTransport

_KEY = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


class AsyncConversationState:
    """Values by key, all of them together with at most 64 KiB."""

    def __init__(self, transport: AsyncTransport, path: str) -> None:
        self._transport = transport
        self._path = path

    async def get(self, key: str) -> Any:
        """Reads the value of a key. Raises `NotFoundError` without one."""
        return await self._transport.request("GET", self._at(key))

    async def put(self, key: str, value: Any) -> None:
        """Sets a key to a value: any JSON but null."""
        if value is None:
            raise ValueError("value: must not be None: delete() removes a key")
        path = self._at(key)
        await self._transport.request("PUT", path, body=value, key=uuid.uuid4().hex)

    async def delete(self, key: str) -> None:
        """Removes a key, if it is there."""
        await self._transport.request("DELETE", self._at(key), key=uuid.uuid4().hex)

    def _at(self, key: str) -> str:
        if not _KEY.fullmatch(key) or key in (".", ".."):
            raise ValueError(f"key: {key!r} is not of the form [A-Za-z0-9_.:-]{{1,128}}")
        return f"{self._path}/state/{key}"
