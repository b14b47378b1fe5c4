"""Requests to one node after another until one answers, and streams that go on where they were cut."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import httpx

from ..errors import DeadlineError, NoAnswerError, ProblemError, ProtocolError
from ..frames import FrameParser, RawFrame

#: The largest answer that is read.
MAX_ANSWER_BYTES = 64 << 20
#: A node answers in milliseconds; a stopped one never does, but another may.
REQUEST_TIMEOUT = 10.0
#: A node sends a line every 15 s; a stream that is silent for this long is dead.
SILENCE_TIMEOUT = 40.0
#: The first delay before a retry, and the longest.
RETRY_DELAY = 0.1
MAX_RETRY_DELAY = 5.0
#: The statuses with which a node, or a proxy before it, asks for a later retry.
RETRY_STATUSES = (429, 502, 503, 504)

Token = str | Callable[[], str] | None


class Frame(NamedTuple):
    """A frame of an event stream."""

    name: str
    id: str | None
    data: dict[str, Any]


def retry_delay(tries: int, urls: int) -> float:
    """The delay before the next try: it grows after every URL was tried once."""
    grown = RETRY_DELAY * 2.0 ** min(tries // urls, 16)
    return min(grown, MAX_RETRY_DELAY) * (0.5 + random.random() / 2)


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
        tries, lies, refused = 0, 0, False
        while True:
            delay = retry_delay(tries, len(self._urls))
            url = self._urls[self._at % len(self._urls)] + path
            problem: Exception
            try:
                call = self._http.stream(
                    method, url, content=content, params=_present(params),
                    headers={**headers, **self._standing(refused)}, timeout=timeout,
                )  # fmt: skip
                with call as response:
                    return _json(response)
            except ProblemError as error:
                if error.status == 401 and callable(self._token) and not refused:
                    refused = True
                    continue
                if error.status not in RETRY_STATUSES:
                    raise
                delay, problem = max(delay, error.retry_after or 0.0), error
            except ProtocolError as error:
                lies += 1
                if lies >= len(self._urls):
                    raise
                problem = error
            except httpx.TransportError as error:
                # Without a complete answer, whether the node acted is unknown: try again.
                problem = NoAnswerError(f"no node answered in time: {_describe(error)}")
                problem.__cause__ = error
            tries += 1
            self._at += 1
            if time.monotonic() + delay >= end:
                raise problem
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
                problem = NoAnswerError(f"no node streams: {_describe(error)}")
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
        url = self._urls[self._at % len(self._urls)] + path
        call = self._http.stream(
            "GET", url, params={"cursor": "chars"}, headers=headers, timeout=timeout
        )
        with call as response:
            if response.status_code != 200:
                _json(response)
            if _media_type(response) != "text/event-stream":
                raise ProtocolError(f"a stream of the type {_media_type(response)!r}")
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


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _media_type(response: httpx.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def _frame(frame: RawFrame) -> Frame:
    try:
        data = json.loads(frame.data)
    except ValueError as error:
        raise ProtocolError(f"the data of a frame {frame.name!r} is not JSON") from error
    if not isinstance(data, dict):
        raise ProtocolError(f"the data of a frame {frame.name!r} is no object")
    return Frame(frame.name, frame.id, data)


def _json(response: httpx.Response) -> Any:
    """The JSON of a 2xx. Raises a problem for any other status."""
    body, size = [], 0
    for chunk in response.iter_raw():
        size += len(chunk)
        if size > MAX_ANSWER_BYTES:
            raise ProtocolError(f"an answer has more than {MAX_ANSWER_BYTES} bytes")
        body.append(chunk)
    is_json = _media_type(response).endswith("json")
    document, error = None, None
    try:
        document = json.loads(b"".join(body)) if is_json else None
    except ValueError as it:
        error = it
    if response.is_success:
        if response.status_code == 204:
            return None
        if error is not None or not is_json:
            raise ProtocolError(f"an answer of the type {_media_type(response)!r} is not JSON") from error
        return document
    try:
        retry_after = float(response.headers.get("retry-after", ""))
    except ValueError:
        retry_after = 0.0
    raise ProblemError.of(response.status_code, document, max(retry_after, 0.0) or None)
