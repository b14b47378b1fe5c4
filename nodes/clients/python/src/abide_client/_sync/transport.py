"""Requests to one node after another until one answers, and streams that go on where they were cut."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import httpx

from ..attempts import Attempts, describe, retry_delay
from ..errors import (
    AbideError,
    CutOffError,
    DeadlineError,
    NoAnswerError,
    ProblemError,
    ProtocolError,
)
from ..frames import FrameParser, RawFrame
from .answers import media_type, read_json
from .source import Source

#: A node answers in milliseconds; a stopped one never does, but another may.
REQUEST_TIMEOUT = 10.0
#: A node sends a line every 15 s; a stream that is silent for this long is dead.
SILENCE_TIMEOUT = 40.0
#: How long a node may take for the next piece of a body; it writes what it reads.
PIECE_TIMEOUT = 60.0
#: How long a node may take for its answer after the last piece.
ANSWER_TIMEOUT = 300.0

Token = str | Callable[[], str] | None


class Frame(NamedTuple):
    """A frame of an event stream."""

    name: str
    id: str | None
    data: dict[str, Any]


class Transport:
    """Speaks HTTP to the nodes of one cluster."""

    def __init__(
        self,
        urls: Sequence[str],
        token: Token,
        headers: Mapping[str, str],
        retry_for: float,
        http: httpx.Client | None,
    ) -> None:
        self._urls = [url.rstrip("/") for url in urls]
        self._token = token
        self._credential: str | None = None
        self._headers = dict(headers)
        self.retry_for = retry_for
        self._owns = http is None
        self._http = http or httpx.Client(limits=httpx.Limits(max_connections=None))
        #: The place of the URL that answered last.
        self._at = 0

    def close(self) -> None:
        """Closes all connections."""
        if self._owns:
            self._http.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, Any] | None = None,
        key: str | None = None,
        wait: float = 0.0,
        deadline: float | None = None,
    ) -> Any:
        """Repeats a request until a node answers, for `retry_for` seconds or up to `deadline`, a time
        of the monotonic clock. `key` makes it safe to repeat. Returns the JSON of a 2xx."""
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = {"content-type": "application/json"} if method != "GET" else {}
        if key is not None:
            headers["idempotency-key"] = key
        timeout = httpx.Timeout(REQUEST_TIMEOUT + wait, connect=REQUEST_TIMEOUT)
        end = time.monotonic() + self.retry_for if deadline is None else deadline
        attempts = self._attempts(end)
        while True:
            try:
                call = self._http.stream(
                    method, self._url(path), content=content, params=_present(params),
                    headers={**headers, **self._standing(attempts.refused)}, timeout=timeout,
                )  # fmt: skip
                with call as response:
                    return read_json(response)
            except (AbideError, httpx.TransportError) as error:
                delay = attempts.delay_after(error)
            self._go_on(delay)

    def download(self, path: str, kind: str) -> Generator[bytes, None, None]:
        """Yields the pieces of an answer of this media type, as they come. A node that does not answer is
        left for another until the first piece is there; an answer that is cut after it raises
        `CutOffError`."""
        timeout = httpx.Timeout(REQUEST_TIMEOUT, read=SILENCE_TIMEOUT)
        attempts = self._attempts(time.monotonic() + self.retry_for)
        begun = False
        while True:
            try:
                headers = self._standing(attempts.refused)
                call = self._http.stream("GET", self._url(path), headers=headers, timeout=timeout)
                with call as response:
                    if response.status_code != 200:
                        read_json(response)
                    if media_type(response) != kind:
                        raise ProtocolError(
                            f"an answer of the type {media_type(response)!r} is not {kind}"
                        )
                    for piece in response.iter_raw():
                        begun = True
                        yield piece
                    return
            except (AbideError, httpx.TransportError) as error:
                if begun:
                    raise CutOffError(f"the answer was cut off: {describe(error)}") from error
                delay = attempts.delay_after(error)
            self._go_on(delay)

    def upload(
        self, path: str, source: Source, *, kind: str, params: Mapping[str, Any], key: str
    ) -> Any:
        """Sends a source with POST, in pieces, and returns the JSON of a 2xx. `key` makes the request
        safe to repeat; what the source can give only once is sent once."""
        if not source.is_repeatable:
            # A request that may be repeated finds a node that answers, and a credential that it accepts.
            self.request("GET", "/v1/me")
        timeout = httpx.Timeout(REQUEST_TIMEOUT, write=PIECE_TIMEOUT, read=ANSWER_TIMEOUT)
        attempts = self._attempts(time.monotonic() + self.retry_for)
        given = {"content-type": kind, "idempotency-key": key}
        while True:
            try:
                headers = {**given, **self._standing(attempts.refused)}
                with closing(source.pieces()) as pieces:
                    call = self._http.stream(
                        "POST", self._url(path), content=pieces, params=_present(params),
                        headers=headers, timeout=timeout,
                    )  # fmt: skip
                    with call as response:
                        return read_json(response)
            except (AbideError, httpx.TransportError) as error:
                if source.failure is not None:
                    raise source.failure
                delay = attempts.delay_after(error, source.may_repeat)
            self._go_on(delay)

    def _attempts(self, end: float) -> Attempts:
        return Attempts(len(self._urls), end, renews=callable(self._token))

    def _url(self, path: str) -> str:
        return self._urls[self._at % len(self._urls)] + path

    def _go_on(self, delay: float | None) -> None:
        """Goes on to the next node after a delay, or at once to the same one."""
        if delay is not None:
            self._at += 1
            time.sleep(delay)

    def frames(
        self, path: str, after: str | None, deadline: float | None = None
    ) -> Generator[Frame, None, None]:
        """Yields the frames of a stream after this place without an end, over any node. Raises if no
        node could stream for `retry_for` seconds, and at `deadline`."""
        tries, refused, end = 0, False, time.monotonic() + self.retry_for
        while True:
            delay = retry_delay(tries, len(self._urls))
            problem: Exception = NoAnswerError("the stream ended before its first frame")
            try:
                stream = self._stream(path, after, refused, deadline)
                with closing(stream):
                    for frame in stream:
                        tries, refused, end = 0, False, time.monotonic() + self.retry_for
                        yield frame
                        end = time.monotonic() + self.retry_for
                        if frame.id is not None:
                            after = frame.id
                        elif after is None and frame.name == "snapshot":
                            after = snapshot_place(frame.data)
            except ProblemError as error:
                if error.status == 401 and callable(self._token) and not refused:
                    refused = True
                    continue
                if error.status < 500 and error.status != 429:
                    raise
                delay, problem = max(delay, error.retry_after or 0.0), error
            except ProtocolError as error:
                problem = error
            except httpx.TransportError as error:
                problem = NoAnswerError(f"no node streams: {describe(error)}")
                problem.__cause__ = error
            tries += 1
            self._at += 1
            now = time.monotonic()
            if deadline is not None and now + delay >= deadline:
                raise DeadlineError("the turn has not ended in time") from problem
            if now + delay >= end:
                raise problem
            time.sleep(delay)

    def _stream(
        self, path: str, after: str | None, refused: bool, deadline: float | None
    ) -> Generator[Frame, None, None]:
        """Yields the frames of one stream up to its end. With a deadline, a stream that has nothing to
        tell ends early, so that the next one is read for the time that is left."""
        headers = {"accept": "text/event-stream", **self._standing(refused)}
        if after is not None:
            headers["last-event-id"] = after
        left = SILENCE_TIMEOUT if deadline is None else deadline - time.monotonic()
        timeout = httpx.Timeout(REQUEST_TIMEOUT, read=max(0.01, min(SILENCE_TIMEOUT, left)))
        call = self._http.stream(
            "GET", self._url(path), params={"cursor": "chars"}, headers=headers, timeout=timeout
        )
        with call as response:
            if response.status_code != 200:
                read_json(response)
            if media_type(response) != "text/event-stream":
                raise ProtocolError(f"a stream of the type {media_type(response)!r}")
            parser = FrameParser()
            for chunk in response.iter_raw():
                is_empty = True
                for frame in parser.feed(chunk):
                    is_empty = False
                    yield _frame(frame)
                if deadline is not None and is_empty and chunk.startswith(b":"):
                    return

    def _standing(self, renew: bool) -> dict[str, str]:
        """The headers of every request. No compression, so that an answer is as long as it looks."""
        if callable(self._token):
            if renew or self._credential is None:
                token = self._token()
                self._credential = token
        else:
            self._credential = self._token
        headers = {**self._headers, "accept-encoding": "identity"}
        if self._credential is not None:
            headers["authorization"] = f"Bearer {self._credential}"
        return headers


def snapshot_place(snapshot: dict[str, Any]) -> str:
    """The place that a snapshot shows: after its last event, or within the message that is streamed."""
    message = snapshot.get("streaming_message")
    if not message:
        return str(snapshot["last_seq"])
    thinking = len(message["thinking"])
    chars = len(message["text"]) + thinking
    return f"{snapshot['last_seq']}.{chars}.{thinking}.{message['id']}"


def _present(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value is not None}


def _frame(frame: RawFrame) -> Frame:
    try:
        data = json.loads(frame.data)
    except ValueError as error:
        raise ProtocolError(f"the data of a frame {frame.name!r} is not JSON") from error
    if not isinstance(data, dict):
        raise ProtocolError(f"the data of a frame {frame.name!r} is no object")
    return Frame(frame.name, frame.id, data)
