"""Serves HTTP tools: a WSGI and an ASGI application that believes only what a node has signed.

    tools = HttpTools(secrets=["whsec_…"])

    @tools.tool("price")
    def price(args, request):
        return {"price": 12.5}

    app = tools.asgi    # or tools.wsgi
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .errors import AbideError
from .signatures import TOLERANCE, SignatureError, verify, key_of

#: The largest request that is read: more than a node sends.
MAX_BODY_BYTES = 4 << 20
#: How many results are remembered, so that a call that is repeated after a crash does not run again.
MAX_RESULTS = 1_000

__all__ = ["HttpTools", "Rejection", "Reply", "Request", "SignatureError", "verify"]


class Rejection(AbideError):
    """Raise it in a tool: the call ends as an error, which the model reads. `halt` ends the turn, too."""

    def __init__(self, message: str, *, error_type: str = "TOOL_ERROR", halt: str | None = None) -> None:
        super().__init__(message)
        self.error_type = error_type
        self.halt = halt


@dataclass(frozen=True)
class Request:
    """One attempt of a call."""

    tool: str
    args: Any
    conversation_id: str
    call_id: str
    turn_id: str | None
    attempt: int
    principal: str | None
    #: The same for every attempt, and never the same for another call.
    idempotency_key: str
    assigns: Mapping[str, Any] = field(default_factory=dict)
    approvals: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Reply:
    """A result with something that is shown to people and never to the model."""

    result: Any
    ui: Mapping[str, Any] | None = None
    halt: str | None = None


Handler = Callable[[Any, Request], Any]
_Handler = TypeVar("_Handler", bound=Handler)


@dataclass(frozen=True)
class _Answer:
    status: int
    body: bytes


class HttpTools:
    """The tools of one server, by name. A request may go to any path: its body names the tool.

    `secrets`: those that nodes sign with; several while one is replaced. None: requests are not
    verified, for a server that nobody else can reach. Several attempts of one call run once: the
    results of the last 1,000 calls are remembered while this process lives. A server of more
    processes, or one that must not forget, honours `request.idempotency_key` itself.
    """

    def __init__(self, *, secrets: Sequence[str] | None, tolerance: float = TOLERANCE) -> None:
        if secrets is not None and not secrets:
            raise ValueError("secrets: give at least one, or None")
        for secret in secrets or ():
            key_of(secret)
        self._secrets = secrets
        self._tolerance = tolerance
        self._tools: dict[str, Handler] = {}
        self._lock = threading.Lock()
        self._results: OrderedDict[str, Future[_Answer]] = OrderedDict()

    def tool(self, name: str) -> Callable[[_Handler], _Handler]:
        """Decorates a function: `fn(args, request)` returns the result as JSON, or a `Reply`. A generator
        yields its progress, and returns the result; an asynchronous one yields a `Reply` at its end."""

        def register(handler: _Handler) -> _Handler:
            self._tools[name] = handler
            return handler

        return register

    def handle(self, method: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Answers one request: the status and the JSON. For servers with neither WSGI nor ASGI."""
        answer = self._refuse(method, headers, body) or self._run_once(self._read(headers, body))
        return answer.status, answer.body

    def _runs_in_lines(self, method: str, headers: Mapping[str, str], body: bytes) -> Request | None:
        """The request, if it is to be answered in lines: its tool reports progress, and it runs now."""
        if self._refuse(method, headers, body) is not None:
            return None
        request = self._read(headers, body)
        handler = self._tools[request.tool]
        kinds = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        with self._lock:
            is_new = request.idempotency_key not in self._results
        return request if is_new and any(is_kind(handler) for is_kind in kinds) else None

    def _lines(self, request: Request) -> Generator[bytes, None, None]:
        """The lines of a call whose tool is a generator, made as they are read."""
        future, known = self._claim_or_wait(request.idempotency_key)
        if known is not None:
            yield known.body + b"\n"
            return
        answer, is_kept = _STOPPED, False
        try:
            steps = _steps(self._tools[request.tool], request)
            try:
                while True:
                    yield _line({"progress": next(steps)})
            except StopIteration as end:
                answer, is_kept = _answer(end.value), True
        except Exception as error:
            answer = _failure(error)
        finally:
            self._end(request.idempotency_key, future, answer, is_kept=is_kept)
        yield answer.body + b"\n"

    def wsgi(
        self, environ: Mapping[str, Any], start_response: Callable[[str, list[tuple[str, str]]], Any]
    ) -> Iterable[bytes]:
        """The WSGI application."""
        names = ("webhook-id", "webhook-timestamp", "webhook-signature", "idempotency-key")
        fields = {name: environ.get("HTTP_" + name.upper().replace("-", "_"), "") for name in names}
        try:
            length = int(environ.get("CONTENT_LENGTH") or 0)
        except ValueError:
            length = 0
        if not 0 <= length <= MAX_BODY_BYTES:
            status, text = 413, _error("the request is too large")
        else:
            body = environ["wsgi.input"].read(length)
            method = str(environ["REQUEST_METHOD"])
            streamed = self._runs_in_lines(method, fields, body)
            if streamed is not None:
                start_response("200 OK", _STREAM_HEADERS)
                return self._lines(streamed)
            status, text = self.handle(method, fields, body)
        start_response(f"{status} {_REASONS[status]}", [*_HEADERS, ("content-length", str(len(text)))])
        return [text]

    async def asgi(
        self,
        scope: Mapping[str, Any],
        receive: Callable[[], Awaitable[Mapping[str, Any]]],
        send: Callable[[Mapping[str, Any]], Awaitable[None]],
    ) -> None:
        """The ASGI application. Functions that are no coroutines run in a thread."""
        if scope["type"] == "lifespan":
            while True:
                event = (await receive())["type"]
                await send({"type": f"{event}.complete"})
                if event == "lifespan.shutdown":
                    return
        if scope["type"] != "http":
            raise ValueError(f"not a scope of HTTP tools: {scope['type']}")
        fields = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        chunks, size, more = [], 0, True
        while more and size <= MAX_BODY_BYTES:
            event = await receive()
            if event["type"] == "http.disconnect":
                return
            chunks.append(event.get("body", b""))
            size, more = size + len(chunks[-1]), event.get("more_body", False)
        if size > MAX_BODY_BYTES:
            status, text = 413, _error("the request is too large")
        else:
            method, whole = str(scope["method"]), b"".join(chunks)
            streamed = self._runs_in_lines(method, fields, whole)
            if streamed is not None:
                await self._send_lines(streamed, send)
                return
            status, text = await self._handle_async(method, fields, whole)
        fields_out = [(name.encode(), value.encode()) for name, value in _HEADERS]
        fields_out.append((b"content-length", str(len(text)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": fields_out})
        await send({"type": "http.response.body", "body": text})

    async def _send_lines(
        self, request: Request, send: Callable[[Mapping[str, Any]], Awaitable[None]]
    ) -> None:
        """Sends the lines of a generator, which runs in a thread."""
        headers = [(name.encode(), value.encode()) for name, value in _STREAM_HEADERS]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        lines, loop = self._lines(request), asyncio.get_running_loop()
        try:
            while line := await loop.run_in_executor(None, next, lines, b""):
                await send({"type": "http.response.body", "body": line, "more_body": True})
        finally:
            await loop.run_in_executor(None, lines.close)
        await send({"type": "http.response.body", "body": b""})

    async def _handle_async(
        self, method: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, bytes]:
        refusal = self._refuse(method, headers, body)
        if refusal is not None:
            return refusal.status, refusal.body
        request = self._read(headers, body)
        handler = self._tools[request.tool]
        if not inspect.iscoroutinefunction(handler):
            answer = await asyncio.get_running_loop().run_in_executor(None, self._run_once, request)
            return answer.status, answer.body
        while True:
            future, is_first = self._claim(request.idempotency_key)
            if is_first:
                break
            answer = await asyncio.wrap_future(future)
            if answer is not _STOPPED:
                return answer.status, answer.body
        try:
            answer = _answer(await handler(request.args, request))
        except BaseException as error:
            is_stopped = not isinstance(error, Exception)
            answer = _STOPPED if is_stopped else _failure(error)
            self._end(request.idempotency_key, future, answer, is_kept=False)
            if is_stopped:
                raise
        else:
            self._end(request.idempotency_key, future, answer, is_kept=True)
        return answer.status, answer.body

    def _refuse(self, method: str, headers: Mapping[str, str], body: bytes) -> _Answer | None:
        """Why a request is not carried out, if it is not."""
        if method != "POST":
            return _Answer(405, _error("a tool is called by POST"))
        if self._secrets is not None:
            try:
                verify(headers, body, self._secrets, tolerance=self._tolerance)
            except SignatureError as error:
                return _Answer(401, _error(str(error)))
        try:
            request = self._read(headers, body)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return _Answer(400, _error("the body is not that of a call"))
        if request.tool not in self._tools:
            return _Answer(404, _error(f"there is no tool {request.tool!r}"))
        return None

    def _read(self, headers: Mapping[str, str], body: bytes) -> Request:
        call = json.loads(body)
        tool, conversation, id = call["tool"], call["conversation_id"], call["call_id"]
        key = headers.get("idempotency-key") or f"{conversation}/{id}/{call.get('turn_id')}"
        if not isinstance(tool, str):
            raise TypeError("tool is no text")
        return Request(
            tool, call.get("args"), str(conversation), str(id), call.get("turn_id"),
            int(call.get("attempt", 1)), call.get("principal"), key,
            call.get("assigns") or {}, call.get("approvals") or (),
        )  # fmt: skip

    def _run_once(self, request: Request) -> _Answer:
        """Runs a call, or waits for the attempt that runs it."""
        future, known = self._claim_or_wait(request.idempotency_key)
        if known is not None:
            return known
        try:
            steps = _steps(self._tools[request.tool], request)
            try:
                while True:
                    next(steps)
            except StopIteration as end:
                answer = _answer(end.value)
        except Exception as error:
            answer = _failure(error)
            self._end(request.idempotency_key, future, answer, is_kept=False)
        else:
            self._end(request.idempotency_key, future, answer, is_kept=True)
        return answer

    def _claim(self, key: str) -> tuple[Future[_Answer], bool]:
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return self._results[key], False
            future = self._results[key] = Future()
            for old in _oldest_ended(self._results, len(self._results) - MAX_RESULTS):
                del self._results[old]
            return future, True

    def _claim_or_wait(self, key: str) -> tuple[Future[_Answer], _Answer | None]:
        """Claims a call, or waits for the answer of the attempt that has it. If that was stopped, as when its
        node died, this attempt is the one that runs."""
        while True:
            future, is_first = self._claim(key)
            known = None if is_first else future.result()
            if known is not _STOPPED:
                return future, known

    def _end(self, key: str, future: Future[_Answer], answer: _Answer, *, is_kept: bool) -> None:
        with self._lock:
            if not is_kept:
                self._results.pop(key, None)
        future.set_result(answer)


def _oldest_ended(results: OrderedDict[str, Future[_Answer]], count: int) -> list[str]:
    """The oldest calls that have ended; those that run are bounded by the server."""
    ended: Iterator[str] = (key for key, future in results.items() if future.done())
    return [key for key, _ in zip(ended, range(max(count, 0)))]


def _steps(handler: Handler, request: Request) -> Generator[Any, None, Any]:
    """Runs a tool of any kind: yields its progress, and returns its result."""
    result: Any = handler(request.args, request)
    if inspect.isasyncgen(result):
        values: Any = result
        result = _in_turn(values)
    if inspect.isgenerator(result):
        while True:
            try:
                value = next(result)
            except StopIteration as end:
                return end.value
            if isinstance(value, Reply):
                result.close()
                return value
            yield value
    return asyncio.run(_await(result)) if inspect.isawaitable(result) else result


def _in_turn(values: AsyncGenerator[Any, None]) -> Generator[Any, None, None]:
    """The values of an asynchronous generator, in an event loop of its own."""
    loop = asyncio.new_event_loop()
    try:
        while True:
            try:
                yield loop.run_until_complete(values.__anext__())
            except StopAsyncIteration:
                return
    finally:
        loop.run_until_complete(values.aclose())
        loop.close()


async def _await(result: Awaitable[Any]) -> Any:
    return await result


def _line(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False).encode() + b"\n"


def _answer(result: Any) -> _Answer:
    """The envelope of a result, so that no value can be mistaken for one."""
    reply = result if isinstance(result, Reply) else Reply(result)
    envelope: dict[str, Any] = {"ok": True, "result": reply.result}
    if reply.ui is not None:
        envelope["ui"] = reply.ui
    if reply.halt is not None:
        envelope["halt"] = reply.halt
    return _Answer(200, json.dumps(envelope, allow_nan=False).encode())


def _failure(error: BaseException) -> _Answer:
    """The envelope of an error. Only what a `Rejection` says is told; a bug's text stays here."""
    if isinstance(error, Rejection):
        envelope = {"ok": False, "error": str(error), "error_type": error.error_type}
        if error.halt is not None:
            envelope["halt"] = error.halt
        return _Answer(200, json.dumps(envelope).encode())
    logging.getLogger("abide_client").error("a tool raised", exc_info=error)
    return _Answer(500, _error("the tool failed"))


def _error(text: str) -> bytes:
    return json.dumps({"ok": False, "error": text, "error_type": "TOOL_ERROR"}).encode()


#: The answer of a call whose node has closed the connection.
_STOPPED = _failure(Rejection("the call was stopped"))
_HEADERS = [("content-type", "application/json"), ("cache-control", "no-store")]
_STREAM_HEADERS = [("content-type", "application/x-ndjson"), ("cache-control", "no-store")]
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    500: "Internal Server Error",
}
