"""Conversations that move: their lines are read and sent in pieces."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from ..errors import CutOffError

if TYPE_CHECKING:
    from .transport import AsyncTransport

#: The media type of an export.
LINES = "application/x-ndjson"
#: The last line of an export is shorter than this.
MAX_END_BYTES = 256


async def exported(transport: AsyncTransport, path: str) -> AsyncGenerator[bytes, None]:
    """Yields the bytes of an export, in pieces as they come. Raises `CutOffError` unless the last line says
    that it is whole: a connection may end early in a way that looks like the end."""
    tail = b""
    async with aclosing(transport.download(path, LINES)) as pieces:
        async for piece in pieces:
            tail = (tail + piece[-MAX_END_BYTES:])[-MAX_END_BYTES:]
            yield piece
    if not _is_end(tail):
        raise CutOffError("the export was cut off: its last line is missing")


def _is_end(tail: bytes) -> bool:
    try:
        last = json.loads(tail.rstrip().rpartition(b"\n")[2])
    except ValueError:
        return False
    return isinstance(last, dict) and last.get("abide") == "end"
