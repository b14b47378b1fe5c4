"""The helper that serves HTTP tools. The vector of a signature is that of Standard Webhooks."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import io
import json
import sys
import threading
import time
import unittest
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent.parent / "src")]

from abide_client.http_tools import (  # noqa: E402
    HttpTools,
    Rejection,
    Reply,
    Request,
    SignatureError,
    verify,
)

SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
OTHER = "whsec_" + base64.b64encode(b"another secret of some length").decode()


def signed(body: bytes, secret: str = SECRET, id: str = "c/k/turn_1", at: float | None = None) -> dict[str, str]:
    stamp = str(int(time.time() if at is None else at))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    mac = hmac.new(key, f"{id}.{stamp}.".encode() + body, hashlib.sha256).digest()
    return {
        "idempotency-key": id,
        "webhook-id": id,
        "webhook-timestamp": stamp,
        "webhook-signature": "v1," + base64.b64encode(mac).decode(),
    }


def call(tool: str = "price", **members: Any) -> bytes:
    body = {"conversation_id": "c", "turn_id": "turn_1", "call_id": "k", "attempt": 1, "tool": tool, "args": {}}
    return json.dumps({**body, **members}).encode()


class Signatures(unittest.TestCase):
    def test_a_signature_of_any_known_secret_is_good_and_no_other(self) -> None:
        body = call()
        verify(signed(body), body, [OTHER, SECRET])
        good = signed(body)
        good["webhook-signature"] = "v1,AAAA v2,x v1,%% " + good["webhook-signature"]
        verify(good, body, [SECRET])
        for headers, text in (
            (signed(body), body + b" "),
            (signed(body, OTHER), body),
            ({**signed(body), "webhook-id": "c/other"}, body),
            (signed(body, at=time.time() - 301), body),
            (signed(body, at=time.time() + 301), body),
            ({**signed(body), "webhook-timestamp": "1e9"}, body),
            ({**signed(body), "webhook-timestamp": "٣"}, body),
            ({**signed(body), "webhook-signature": ""}, body),
            ({**signed(body), "webhook-signature": "v1,ä"}, body),
            ({}, body),
        ):
            with self.assertRaises(SignatureError):
                verify(headers, text, [SECRET])

    def test_a_secret_that_is_none_is_refused_at_once(self) -> None:
        for secrets in ([], ["whsec_not base64!"]):
            with self.assertRaisesRegex(ValueError, "^secrets: "):
                HttpTools(secrets=secrets)


class Answers(unittest.TestCase):
    def setUp(self) -> None:
        self.tools = HttpTools(secrets=[SECRET])
        self.runs: list[Request] = []

        @self.tools.tool("price")
        def price(args: Any, request: Request) -> Any:
            self.runs.append(request)
            return {"ok": False}

        @self.tools.tool("refuse")
        def refuse(args: Any, request: Request) -> Any:
            self.runs.append(request)
            raise Rejection("sold out", error_type="VALIDATION_ERROR", halt="no use")

        @self.tools.tool("bug")
        def bug(args: Any, request: Request) -> Any:
            raise KeyError("a secret")

        @self.tools.tool("show")
        async def show(args: Any, request: Request) -> Any:
            return Reply(1, ui={"kind": "map", "payload": 2})

    def ask(self, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        status, text = self.tools.handle("POST", signed(body) if headers is None else headers, body)
        return status, json.loads(text)

    def test_a_result_is_an_envelope_also_if_it_looks_like_one(self) -> None:
        self.assertEqual(self.ask(call()), (200, {"ok": True, "result": {"ok": False}}))
        body = call("show", call_id="s")
        self.assertEqual(
            self.ask(body, signed(body, id="s")),
            (200, {"ok": True, "result": 1, "ui": {"kind": "map", "payload": 2}}),
        )

    def test_a_rejection_is_told_and_a_bug_is_not(self) -> None:
        status, body = self.ask(call("refuse"))
        self.assertEqual((status, body["error"], body["halt"]), (200, "sold out", "no use"))
        with self.assertLogs("abide_client", "ERROR"):
            status, body = self.ask(call("bug"))
        self.assertEqual((status, body["error"]), (500, "the tool failed"))

    def test_requests_that_are_no_call_run_nothing(self) -> None:
        for body, status in ((b"{", 400), (b"[]", 400), (b"[" * 100_000, 400), (b'{"tool": 1}', 400), (call("no"), 404)):
            self.assertEqual(self.ask(body)[0], status, body[:20])
        self.assertEqual(self.ask(call(), {})[0], 401)
        self.assertEqual(self.tools.handle("GET", {}, b"")[0], 405)
        self.assertEqual(self.runs, [])

    def test_several_attempts_of_a_call_run_once_unless_it_failed(self) -> None:
        self.ask(call())
        second = call(attempt=2)
        self.assertEqual(self.ask(second, signed(second))[0], 200)
        self.assertEqual([it.attempt for it in self.runs], [1])
        self.ask(call("refuse"), signed(call("refuse"), id="r"))
        self.ask(call("refuse"), signed(call("refuse"), id="r"))
        self.assertEqual(len(self.runs), 3)

    def test_an_attempt_waits_for_the_one_that_runs(self) -> None:
        entered, leave, runs = threading.Event(), threading.Event(), []

        @self.tools.tool("slow")
        def slow(args: Any, request: Request) -> Any:
            runs.append(request.attempt)
            entered.set()
            leave.wait(10)
            return "done"

        answers: list[Any] = []
        body = call("slow")
        threads = [threading.Thread(target=lambda: answers.append(self.ask(body))) for _ in range(2)]
        threads[0].start()
        entered.wait(10)
        threads[1].start()
        leave.set()
        for thread in threads:
            thread.join(10)
        self.assertEqual((answers, runs), ([(200, {"ok": True, "result": "done"})] * 2, [1]))

    def test_the_memory_of_results_is_bounded(self) -> None:
        for number in range(1_100):
            body = call(call_id=str(number))
            self.ask(body, signed(body, id=str(number)))
        self.assertEqual(len(self.tools._results), 1_000)


class Servers(unittest.TestCase):
    def setUp(self) -> None:
        self.tools = HttpTools(secrets=[SECRET])

        @self.tools.tool("price")
        async def price(args: Any, request: Request) -> Any:
            return 12.5

        self.ended: list[int] = []

        @self.tools.tool("slow")
        def slow(args: Any, request: Request) -> Any:
            try:
                yield {"percent": 50}
                if args.get("fail"):
                    raise Rejection("no")
                return "done"
            finally:
                self.ended.append(request.attempt)

        @self.tools.tool("slow_async")
        async def slow_async(args: Any, request: Request) -> Any:
            await asyncio.sleep(0)
            yield 1
            yield Reply(2)

    def test_wsgi_answers(self) -> None:
        body, got = call(), []
        environ = {"HTTP_" + k.upper().replace("-", "_"): v for k, v in signed(body).items()}
        environ.update({"REQUEST_METHOD": "POST", "CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body)})
        text = b"".join(self.tools.wsgi(environ, lambda status, headers: got.append(status)))
        self.assertEqual((got, json.loads(text)), (["200 OK"], {"ok": True, "result": 12.5}))
        environ["CONTENT_LENGTH"] = str(5 << 20)
        self.tools.wsgi(environ, lambda status, headers: got.append(status))
        self.assertEqual(got[-1], "413 Content Too Large")

    def lines(self, tool: str, id: str, **members: Any) -> Any:
        body = call(tool, call_id=id, **members)
        environ = {"HTTP_" + k.upper().replace("-", "_"): v for k, v in signed(body, id=id).items()}
        environ.update({"REQUEST_METHOD": "POST", "CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body)})
        return iter(self.tools.wsgi(environ, lambda status, headers: None))

    def test_progress_is_lines_of_ndjson_and_a_stopped_call_ends_its_tool_and_runs_again(self) -> None:
        told = [json.loads(it) for it in self.lines("slow", "a")]
        self.assertEqual(told, [{"progress": {"percent": 50}}, {"ok": True, "result": "done"}])
        self.assertEqual([json.loads(it) for it in self.lines("slow", "a")], told[1:])
        told = [json.loads(it) for it in self.lines("slow", "b", args={"fail": True})]
        self.assertEqual(told[1]["error"], "no")
        stopped = self.lines("slow", "c")
        next(stopped)
        stopped.close()
        self.assertEqual(len(self.ended), 3)
        self.assertEqual(len(list(self.lines("slow", "c", attempt=2))), 2)
        told = [json.loads(it) for it in self.lines("slow_async", "d")]
        self.assertEqual(told, [{"progress": 1}, {"ok": True, "result": 2}])

    def test_an_attempt_that_waits_for_one_that_is_stopped_runs_itself(self) -> None:
        stopped, told = self.lines("slow", "w"), []
        next(stopped)
        second = threading.Thread(target=lambda: told.extend(self.lines("slow", "w", attempt=2)))
        second.start()
        waits = self.tools._results["w"]._condition
        while not waits._waiters:  # type: ignore[attr-defined]
            time.sleep(0.001)
        stopped.close()
        second.join(10)
        self.assertEqual(json.loads(told[-1]), {"ok": True, "result": "done"})

    def ask(self, parts: list[bytes], headers: dict[str, str]) -> tuple[int, Any]:
        events = [{"type": "http.request", "body": it, "more_body": True} for it in parts]
        events.append({"type": "http.request"})
        sent: list[Any] = []
        fields = [(name.encode(), value.encode()) for name, value in headers.items()]

        async def receive() -> Any:
            return events.pop(0)

        async def send(event: Any) -> None:
            sent.append(event)

        scope = {"type": "http", "method": "POST", "headers": fields}
        asyncio.run(self.tools.asgi(scope, receive, send))
        return sent[0]["status"], json.loads(b"".join(it["body"] for it in sent[1:]).splitlines()[-1])

    def test_asgi_answers(self) -> None:
        body = call()
        parts = [body[:9], body[9:]]
        self.assertEqual(self.ask(parts, signed(body)), (200, {"ok": True, "result": 12.5}))
        self.assertEqual(self.ask([b"x" * (1 << 20)] * 6, {})[0], 413)
        for tool, result in (("slow", "done"), ("slow_async", 2)):
            body = call(tool)
            self.assertEqual(self.ask([body], signed(body, id=tool)), (200, {"ok": True, "result": result}))


if __name__ == "__main__":
    unittest.main()
