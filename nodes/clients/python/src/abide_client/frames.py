"""Server-sent events, read from chunks of bytes that are cut anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .errors import ProtocolError

#: The largest frame that is read: larger than the largest snapshot.
MAX_FRAME_BYTES = 64 << 20


class RawFrame(NamedTuple):
    """A frame: its name, its id or None, and its data."""

    name: str
    id: str | None
    data: str


class FrameParser:
    """Makes frames of chunks. Memory is bounded by `max_bytes`, whatever comes."""

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_bytes = max_bytes
        self._line: list[bytes] = []
        self._size = 0
        self._after_return = False
        self._clear()

    def _clear(self) -> None:
        self._name = ""
        self._id: str | None = None
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[RawFrame]:
        """Yields the frames that end in this chunk."""
        # A line ends with \r, \n or \r\n, whose halves may come in two chunks.
        if self._after_return and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        if chunk:
            self._after_return = chunk.endswith(b"\r")
        *ends, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for end in ends:
            self._count(end)
            line = b"".join((*self._line, end))
            self._line = []
            yield from self._take(line)
        self._count(rest)
        if rest:
            self._line.append(rest)

    def _count(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._max_bytes:
            raise ProtocolError(f"a frame of the stream has more than {self._max_bytes} bytes")

    def _take(self, line: bytes) -> Iterator[RawFrame]:
        if line:
            try:
                name, _, value = line.decode("utf-8").partition(":")
            except UnicodeDecodeError as error:
                raise ProtocolError("the stream is not UTF-8") from error
            value = value.removeprefix(" ")
            if name == "event":
                self._name = value
            elif name == "id":
                self._id = value
            elif name == "data":
                self._data.append(value)
            else:
                # Comments keep a stream alive and take no memory.
                self._size -= len(line)
            return
        if self._data:
            yield RawFrame(self._name, self._id, "\n".join(self._data))
        self._size = 0
        self._clear()
