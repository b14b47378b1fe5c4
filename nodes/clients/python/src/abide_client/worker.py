"""Takes the calls of tools from a queue and runs them, from behind any firewall.

    worker = Worker("mail", concurrency=4)

    @worker.tool("send_mail")
    def send_mail(args, request):
        return {"sent": True}

    worker.run()
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import httpx

from ._async.client import AsyncAbide
from ._async.transport import Token
from .errors import AbideError, ProblemError
from .http_tools import Handler, Rejection, Reply, Request, _steps

#: How long a request waits at a node for a call, in seconds.
WAIT = 30.0
#: The delay before asking again when no node answered.
AWAY_DELAY = 1.0

__all__ = ["Rejection", "Reply", "Request", "Worker"]

_Handler = TypeVar("_Handler", bound=Handler)
_log = logging.getLogger("abide_client")


class Worker:
    """Takes calls from one queue, as many at a time as `concurrency` says, and only those of its tools.

    `urls`, `token`, `headers`, `http`: as of `AsyncAbide`. `name`: shown to operators; the host and the
    process if absent. `lease`: how many seconds a call stays with a worker that has died or is frozen;
    one that lives extends it while a tool runs.
    """

    def __init__(
        self,
        queue: str,
        *urls: str,
        name: str | None = None,
        concurrency: int = 1,
        lease: float = 60.0,
        token: Token = None,
        headers: Mapping[str, str] | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        if concurrency < 1:
            raise ValueError("concurrency: must be at least 1")
        if not 1.0 <= lease <= 3600.0:
            raise ValueError("lease: must be from 1 to 3600 seconds")
        self._queue = queue
        self._name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._concurrency = concurrency
        self._lease = lease
        self._abide: Callable[[], AsyncAbide] = lambda: AsyncAbide(
            *urls, token=token, headers=headers, http=http
        )
        self._tools: dict[str, Handler] = {}
        self._stop: Callable[[], None] | None = None
        self._is_stopped = False

    def tool(self, name: str) -> Callable[[_Handler], _Handler]:
        """Decorates a function: `fn(args, request)` returns the result as JSON, or a `Reply`. One that is
        no coroutine runs in a thread. A generator yields its progress, and returns the result; an
        asynchronous one yields a `Reply` at its end. The same function may serve HTTP tools."""

        def register(handler: _Handler) -> _Handler:
            self._tools[name] = handler
            return handler

        return register

    def run(self) -> None:
        """Works until `stop`, or until the process is interrupted or terminated: then it takes no more
        calls, and returns when those that it has are done."""

        async def work() -> None:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                try:
                    loop.add_signal_handler(number, self.stop)
                except (NotImplementedError, RuntimeError, ValueError):
                    # Not the main thread, or a system without such signals.
                    break
            await self.serve()

        asyncio.run(work())

    def stop(self) -> None:
        """Takes no more calls, and lets those that run end. From any thread."""
        self._is_stopped = True
        if self._stop is not None:
            self._stop()

    async def serve(self) -> None:
        """Works until `stop`, in the running loop. Raises what a node refuses for good."""
        if not self._tools:
            raise ValueError("the worker has no tool")
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()

        def stop_soon() -> None:
            loop.call_soon_threadsafe(stopping.set)

        self._stop = stop_soon
        if self._is_stopped:
            return
        running: set[asyncio.Task[None]] = set()
        with ThreadPoolExecutor(self._concurrency, "abide-worker") as threads:
            async with self._abide() as abide:
                stop = asyncio.ensure_future(stopping.wait())
                try:
                    while not stopping.is_set():
                        free = self._concurrency - len(running)
                        if free == 0:
                            await asyncio.wait({*running, stop}, return_when=asyncio.FIRST_COMPLETED)
                        for work in await self._take(abide, free, stop) if free else ():
                            running.add(asyncio.ensure_future(self._work(abide, threads, work)))
                        running = {task for task in running if not task.done()}
                finally:
                    stop.cancel()
                    if running:
                        await asyncio.wait(running)

    async def _take(self, abide: AsyncAbide, free: int, stop: asyncio.Future[Any]) -> list[Any]:
        body = {
            "tools": sorted(self._tools), "max": free, "wait": f"{WAIT:g}s",
            "lease": _seconds(self._lease), "worker": self._name,
        }  # fmt: skip
        path = f"/v1/queues/{self._queue}/lease"
        asked = asyncio.ensure_future(abide._transport.request("POST", path, body=body, wait=WAIT))
        await asyncio.wait({asked, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            # The closed connection tells the node that nobody waits.
            asked.cancel()
            await asyncio.wait({asked})
            return []
        try:
            work: list[Any] = asked.result()["work"]
            return work
        except ProblemError as error:
            if error.status < 500 and error.status != 429:
                raise
            _log.warning("no calls: %s", error)
        except AbideError as error:
            _log.warning("no calls: %s", error)
        await asyncio.wait({stop}, timeout=AWAY_DELAY)
        return []

    async def _work(self, abide: AsyncAbide, threads: ThreadPoolExecutor, work: Mapping[str, Any]) -> None:
        """Runs one call and completes it, unless its lease is lost."""
        lease = f"/v1/leases/{work['lease_id']}"
        run = asyncio.ensure_future(self._run(abide, threads, lease, work))
        extending = asyncio.ensure_future(self._extend(abide, lease))
        try:
            await asyncio.wait({run, extending}, return_when=asyncio.FIRST_COMPLETED)
            if not run.done():
                _log.warning("the lease of %s is lost", work["call_id"])
                run.cancel()
                await asyncio.wait({run})
                return
            body = _body(run)
            try:
                await self._complete(abide, lease, work, body)
            except ProblemError as error:
                if error.status not in (413, 422):
                    raise
                # What does not fit is told to the model, for nobody else can mend it.
                await self._complete(abide, lease, work, {"error": str(error.detail)}, "-refused")
        except ProblemError as error:
            _log.warning("%s was not completed: %s", work["call_id"], error)
        except AbideError as error:
            _log.warning("%s was not completed: %s", work["call_id"], error)
        finally:
            extending.cancel()

    async def _complete(
        self, abide: AsyncAbide, lease: str, work: Mapping[str, Any], body: Any, more: str = ""
    ) -> None:
        # A completion whose answer was lost is repeated under the same key.
        key = f"{work['lease_id'][:200]}{more}"
        await abide._transport.request("POST", f"{lease}/complete", body=body, key=key)

    async def _extend(self, abide: AsyncAbide, lease: str) -> None:
        """Keeps a call; returns when its lease is lost."""
        while True:
            await asyncio.sleep(self._lease / 3)
            body = {"lease": _seconds(self._lease)}
            try:
                await abide._transport.request("POST", f"{lease}/extend", body=body)
            except ProblemError as error:
                if error.status == 409:
                    return
                _log.warning("a lease was not extended: %s", error)
            except AbideError as error:
                _log.warning("a lease was not extended: %s", error)

    async def _run(
        self, abide: AsyncAbide, threads: ThreadPoolExecutor, lease: str, work: Mapping[str, Any]
    ) -> Any:
        handler = self._tools.get(work["tool"])
        if handler is None:
            raise Rejection(f"the worker has no tool {work['tool']!r}")
        request = Request(
            work["tool"], work["args"], work["conversation_id"], work["call_id"], work["turn_id"],
            work["attempt"], work.get("principal"), work["idempotency_key"],
            work.get("assigns") or {}, work.get("approvals") or (),
        )  # fmt: skip
        if inspect.iscoroutinefunction(handler):
            return await handler(request.args, request)
        loop = asyncio.get_running_loop()

        def report(progress: Any) -> None:
            sent = abide._transport.request("POST", f"{lease}/progress", body={"progress": progress})
            # A tool that reports faster than a node listens waits; what is lost is only progress.
            try:
                asyncio.run_coroutine_threadsafe(sent, loop).result()
            except AbideError as error:
                _log.info("progress was not published: %s", error)

        def steps() -> Any:
            running = _steps(handler, request)
            try:
                while True:
                    report(next(running))
            except StopIteration as end:
                return end.value

        return await loop.run_in_executor(threads, steps)


def _body(run: asyncio.Future[Any]) -> dict[str, Any]:
    """The body of a completion. Only what a `Rejection` says is told; a bug's text stays here."""
    error = run.exception()
    if isinstance(error, Rejection):
        halt = {} if error.halt is None else {"halt": error.halt}
        return {"error": str(error), **halt}
    if error is not None:
        _log.error("a tool raised", exc_info=error)
        return {"error": "the tool failed"}
    result = run.result()
    reply = result if isinstance(result, Reply) else Reply(result)
    body: dict[str, Any] = {"result": reply.result}
    if reply.ui is not None:
        body["ui"] = reply.ui
    if reply.halt is not None:
        body["halt"] = reply.halt
    return body


def _seconds(seconds: float) -> str:
    return f"{round(seconds * 1_000)}ms"
