"""A server that answers as a test says: bytes on a socket, so that it can lie in every way."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Union

Answer = Union[bytes, Callable[[socket.socket], None]]


class LyingServer:
    """Answers the connections in turn; the last answer is that of all later ones, too."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.requests: list[bytes] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
            threading.Thread(target=self._answer, args=(connection, answer), daemon=True).start()

    def _answer(self, connection: socket.socket, answer: Answer) -> None:
        with connection:
            try:
                self.requests.append(_read(connection))
                if callable(answer):
                    answer(connection)
                else:
                    connection.sendall(answer)
            except OSError:
                pass

    def close(self) -> None:
        self._listener.close()


def _read(connection: socket.socket) -> bytes:
    """A request with its body; one that comes in pieces is left to the answer."""
    data = b""
    # Not a byte more than the head is taken from the pieces after it.
    while not data.endswith(b"\r\n\r\n"):
        data += _receive(connection, 1)
    for line in data.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            end = len(data) + int(line.split(b":")[1])
            while len(data) < end:
                data += _receive(connection, 65536)
    return data


def _receive(connection: socket.socket, most: int) -> bytes:
    received = connection.recv(most)
    if not received:
        raise ConnectionError("the client has left")
    return received


def answer(status: int, body: str, *, kind: str = "application/json", more: str = "") -> bytes:
    """A whole answer, after which the connection is closed."""
    text = body.encode()
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(text)}\r\n{more}"
    return (head + "connection: close\r\n\r\n").encode() + text


def stream(*frames: str) -> bytes:
    """The beginning of an event stream, cut when the connection is closed."""
    head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    return (head + "".join(frames)).encode()


def chunks(total: int, chunk: bytes) -> Iterator[bytes]:
    """Bytes without a line end, this many of them."""
    for _ in range(total // len(chunk)):
        yield chunk
