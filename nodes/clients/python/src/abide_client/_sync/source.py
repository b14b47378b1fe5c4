"""What is sent in pieces, and is never in memory as a whole."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from typing import BinaryIO, Union, cast

#: How much of a file is read at a time.
PIECE_BYTES = 1 << 20

#: What can be sent: bytes, a binary file, or pieces of bytes that come one after the other; or a function
#: that returns one of these, and is called for each attempt.
Body = Union[bytes, BinaryIO, Iterable[bytes]]
Given = Union[Body, Callable[[], Body]]


class Source:
    """A body that is sent once, or again from its beginning if that can be done."""

    def __init__(self, body: Given) -> None:
        is_given = isinstance(body, Iterable) or hasattr(body, "read") or callable(body)
        if not is_given or isinstance(body, str):
            raise TypeError("body: must be bytes, a file opened with 'rb', or an iterable of bytes")
        self._body = body
        self._start = _place(body)
        self._is_begun = False
        self.is_repeatable = callable(body) or _is_bytes(body) or self._start is not None
        #: What the pieces raised.
        self.failure: Exception | None = None

    @property
    def may_repeat(self) -> bool:
        """Whether there may be another attempt."""
        return self.is_repeatable or not self._is_begun

    def pieces(self) -> Generator[bytes, None, None]:
        """Yields the pieces of an attempt."""
        self._is_begun = True
        try:
            body = self._body() if callable(self._body) else self._body
            if self._start is not None:
                cast(BinaryIO, body).seek(self._start)
            with closing(_pieces(body)) as pieces:
                for piece in pieces:
                    if not _is_bytes(piece):
                        raise TypeError("body: must be bytes; open a file with 'rb'")
                    yield piece
        except Exception as error:
            self.failure = error
            raise


def _pieces(body: Body) -> Generator[bytes, None, None]:
    if _is_bytes(body):
        yield bytes(cast(bytes, body))
    elif hasattr(body, "read"):
        while piece := body.read(PIECE_BYTES):
            yield piece
    else:
        for piece in cast("Iterable[bytes]", body):
            yield piece


def _is_bytes(body: object) -> bool:
    return isinstance(body, (bytes, bytearray, memoryview))


def _place(body: Given) -> int | None:
    """Where a file is, if it can go back there."""
    if hasattr(body, "seekable") and hasattr(body, "tell") and body.seekable():
        return int(body.tell())
    return None
