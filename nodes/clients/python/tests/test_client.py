"""The client against servers that are away, refuse, or lie. `python -m unittest discover tests`."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
import time
import tracemalloc
import unittest
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

import abide_client as client  # noqa: E402
from abide_client.frames import FrameParser  # noqa: E402
from lying_server import LyingServer, answer, chunks, stream  # noqa: E402

SENT = answer(202, '{"conversation_id": "c", "turn_id": "turn_1", "seq": 2}')
OPEN = {"last_seq": 3, "pending": [], "child_pending": [], "turn": {"id": "turn_1"}, "in_flight": [], "state": "streaming"}


def frame(name: str, data: Any, place: str | None = None) -> str:
    id = f"id: {place}\n" if place else ""
    return f"event: {name}\ndata: {json.dumps(data)}\n{id}\n"


def problem(status: int, name: str, more: str = "", **members: Any) -> bytes:
    document = {"type": f"/problems/{name}", "status": status, "detail": f"about {name}", **members}
    return answer(status, json.dumps(document), kind="application/problem+json", more=more)


def abide(*servers: LyingServer, retry_for: float = 5.0, **options: Any) -> client.Abide:
    return client.Abide(*(server.url for server in servers), retry_for=retry_for, **options)


class Refusals(unittest.TestCase):
    def test_each_problem_is_an_error_of_its_type_that_carries_the_document(self) -> None:
        cases = [
            (401, "unauthorized", client.UnauthorizedError),
            (403, "forbidden", client.ForbiddenError),
            (403, "approval-forbidden", client.ForbiddenError),
            (404, "not-found", client.NotFoundError),
            (409, "call-not-open", client.StaleError),
            (409, "turn-in-flight", client.BusyError),
            (409, "agent-missing", client.ConflictError),
            (413, "payload-too-large", client.TooLargeError),
            (422, "invalid-request", client.InvalidRequestError),
        ]
        for status, name, kind in cases:
            server = LyingServer(problem(status, name, because="owner"))
            with self.assertRaises(kind) as caught:
                abide(server).conversation("c").call("call_1").approve()
            error = caught.exception
            assert isinstance(error, client.ProblemError)
            self.assertEqual((error.status, error.type, error.detail), (status, name, f"about {name}"))
            self.assertEqual(error.problem["because"], "owner")
            self.assertEqual(len(server.requests), 1, "it is not repeated")

    def test_a_429_is_repeated_after_its_time_with_the_same_key(self) -> None:
        busy = problem(429, "overloaded", "retry-after: 1\r\n")
        server = LyingServer(busy, answer(200, '{"status": "accepted", "seq": 4}'))
        began = time.monotonic()
        reply = abide(server).conversation("c").call("call_1").approve()
        self.assertEqual(reply["seq"], 4)
        self.assertGreaterEqual(time.monotonic() - began, 1.0)
        keys = [line for it in server.requests for line in it.split(b"\r\n") if b"idempotency" in line]
        self.assertEqual(len(keys), 2)
        self.assertEqual(keys[0], keys[1])

    def test_a_retry_after_beyond_the_time_for_retries_raises_at_once(self) -> None:
        server = LyingServer(problem(429, "quota-exceeded", "retry-after: 3600\r\n", retry_after=3600))
        with self.assertRaises(client.OverloadedError) as caught:
            abide(server).conversation("c").snapshot()
        self.assertEqual(caught.exception.retry_after, 3600.0)
        self.assertEqual(len(server.requests), 1)

    def test_a_message_that_nobody_answers_is_the_same_message_at_the_next_node(self) -> None:
        away, here = LyingServer(lambda connection: connection.close()), LyingServer(SENT)
        turn = abide(away, here).conversation("c", agent="demo").send("Hello")
        bodies = [json.loads(it.partition(b"\r\n\r\n")[2]) for it in away.requests + here.requests]
        self.assertEqual(turn.id, "turn_1")
        self.assertEqual(len(bodies), 2)
        self.assertEqual(bodies[0], bodies[1])
        self.assertEqual(bodies[0]["message_id"], turn.message_id)

    def test_nodes_that_are_away_are_an_error_in_time(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        began = time.monotonic()
        with self.assertRaises(client.NoAnswerError):
            client.Abide(url, retry_for=1.0).conversation("c").snapshot()
        self.assertLess(time.monotonic() - began, 3.0)

    def test_a_credential_that_is_refused_is_asked_for_once_more(self) -> None:
        server = LyingServer(problem(401, "unauthorized"), answer(200, '{"subject": "ann"}'))
        tokens = iter(["old", "new"])
        self.assertEqual(abide(server, token=lambda: next(tokens)).me()["subject"], "ann")
        self.assertIn(b"Bearer old", server.requests[0])
        self.assertIn(b"Bearer new", server.requests[1])


class Lies(unittest.TestCase):
    def test_what_is_not_an_answer_of_a_node_is_an_error(self) -> None:
        for lie in (
            answer(200, '{"id": "c", "sta'),
            answer(200, "<html>", kind="text/html"),
            answer(200, '{"id": "c"}', kind="text/plain"),
        ):
            server = LyingServer(lie)
            with self.assertRaises(client.ProtocolError):
                abide(server).conversation("c").snapshot()
            self.assertEqual(len(server.requests), 1)

    def test_a_lying_node_is_left_for_another(self) -> None:
        lie, truth = LyingServer(answer(200, "<html>", kind="text/html")), LyingServer(answer(200, '{"id": "c"}'))
        self.assertEqual(abide(lie, truth).conversation("c").snapshot()["id"], "c")

    def test_a_body_that_is_cut_is_asked_for_again(self) -> None:
        cut = b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"
        server = LyingServer(cut, answer(200, '{"id": "c"}'))
        self.assertEqual(abide(server).conversation("c").snapshot()["id"], "c")

    def test_an_answer_of_a_gigabyte_is_read_up_to_its_bound(self) -> None:
        sent = 0

        def endless(connection: socket.socket) -> None:
            nonlocal sent
            connection.sendall(b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\n\r\n\"")
            for chunk in chunks(1 << 30, b"x" * (1 << 20)):
                connection.sendall(chunk)
                sent += len(chunk)

        with self.assertRaisesRegex(client.ProtocolError, "more than 67108864 bytes"):
            abide(LyingServer(endless)).conversation("c").snapshot()
        self.assertLess(sent, 100 << 20)

    def test_a_line_of_a_gigabyte_is_read_up_to_its_bound(self) -> None:
        parser, fed = FrameParser(), 0
        tracemalloc.start()
        with self.assertRaisesRegex(client.ProtocolError, "more than 67108864 bytes"):
            for chunk in chunks(1 << 30, b"x" * (1 << 16)):
                fed += len(chunk)
                list(parser.feed(b"data: " + chunk if fed == len(chunk) else chunk))
        self.assertLess(fed, 65 << 20)
        self.assertLess(tracemalloc.get_traced_memory()[1], 100 << 20)
        tracemalloc.stop()

    def test_frames_are_the_same_wherever_the_chunks_are_cut(self) -> None:
        text = 'event: a\r\ndata: {"x":\rdata: "ä"}\nid: 3\n\n: comment\n\ndata: {}\n\nunknown: 1\n\n'.encode()
        whole = list(FrameParser().feed(text))
        self.assertEqual([(it.name, it.id, it.data) for it in whole], [("a", "3", '{"x":\n"ä"}'), ("", None, "{}")])
        for size in range(1, len(text)):
            parser, parts = FrameParser(), [text[at : at + size] for at in range(0, len(text), size)]
            self.assertEqual([it for part in parts for it in parser.feed(part)], whole, size)


class Streams(unittest.TestCase):
    def read(self, *answers: Any) -> tuple[list[Any], LyingServer]:
        server = LyingServer(SENT, *answers)
        return list(abide(server).conversation("c").send("Hello")), server

    def test_a_stream_that_is_cut_in_a_frame_goes_on_after_the_last_whole_one(self) -> None:
        started = frame("turn_started", {"turn_id": "turn_1"}, "3")
        delta = frame("text_delta", {"message_id": "m", "text": "Hel", "delta_seq": 1}, "3.3.0.m")
        cut = 'event: text_delta\ndata: {"message_id": "m", "te'
        rest = frame("text_delta", {"message_id": "m", "text": "lo", "delta_seq": 2}, "3.5.0.m")
        message = {"id": "m", "role": "assistant", "content": [{"type": "text", "text": "Hello"}]}
        end = frame("message_completed", {"turn_id": "turn_1", "message": message}, "4")
        end += frame("turn_completed", {"turn_id": "turn_1"}, "5")
        snapshot = frame("snapshot", OPEN)
        items, server = self.read(
            stream(snapshot, started, delta, cut), stream(snapshot, rest, end)
        )
        self.assertEqual([it.type for it in items], ["text", "text", "message", "end"])
        self.assertEqual("".join(it.text for it in items if isinstance(it, client.Text)), "Hello")
        self.assertIn(b"last-event-id: 2\r\n", server.requests[1].lower())
        self.assertIn(b"last-event-id: 3.3.0.m\r\n", server.requests[2].lower())

    def test_unknown_frames_and_members_are_skipped(self) -> None:
        items, _ = self.read(
            stream(
                frame("snapshot", {**OPEN, "novelty": 1}),
                frame("turn_started", {"turn_id": "turn_1", "novelty": []}, "3"),
                frame("novelty", {"x": 1}, "4"),
                frame("turn_novelty", {"turn_id": "turn_1"}, "5"),
                frame("turn_completed", {"turn_id": "turn_1", "novelty": None}, "6"),
            )
        )
        self.assertEqual([it.type for it in items], ["end"])

    def test_a_message_that_was_begun_anew_is_told_so(self) -> None:
        message = {"id": "n", "role": "assistant", "content": [{"type": "text", "text": "Bye"}]}
        items, _ = self.read(
            stream(
                frame("snapshot", OPEN),
                frame("turn_started", {"turn_id": "turn_1"}, "3"),
                frame("text_delta", {"message_id": "m", "text": "Hel", "delta_seq": 1}),
                frame("text_delta", {"message_id": "n", "text": "B", "delta_seq": 1}),
                frame("message_completed", {"turn_id": "turn_1", "message": message}, "4"),
                frame("turn_completed", {"turn_id": "turn_1"}, "5"),
            )
        )
        self.assertEqual([it.type for it in items], ["text", "restart", "text", "text", "message", "end"])
        self.assertEqual(items[3].text, "ye", "what no piece has told follows")

    def test_a_stream_of_another_type_or_of_nonsense_is_an_error_in_time(self) -> None:
        for lie in (
            answer(200, "hello", kind="text/html"),
            stream("event: snapshot\ndata: {not json\n\n"),
            stream("event: snapshot\ndata: 7\n\n"),
            stream(frame("snapshot", {})),
        ):
            server = LyingServer(SENT, lie)
            with self.assertRaises(client.ProtocolError):
                list(abide(server, retry_for=0.5).conversation("c").send("Hello"))

    def test_other_turns_are_left_out_and_a_turn_that_is_over_ends(self) -> None:
        items, _ = self.read(
            stream(
                frame("snapshot", OPEN),
                frame("turn_started", {"turn_id": "turn_0"}, "3"),
                frame("text_delta", {"message_id": "m", "text": "no", "delta_seq": 1}),
                frame("turn_completed", {"turn_id": "turn_0"}, "4"),
                frame("turn_started", {"turn_id": "turn_1"}, "5"),
                frame("turn_halted", {"turn_id": "turn_1", "reason": "max_steps"}, "6"),
            )
        )
        self.assertEqual([(it.type, it.outcome) for it in items], [("end", "halted")])

    def test_a_call_that_was_answered_before_the_stream_began_is_left_out(self) -> None:
        def call(id: str) -> dict[str, Any]:
            return {"call_id": id, "tool": "t", "kind": "approval", "suspension": 1, "args": {}}

        items, _ = self.read(
            stream(
                frame("snapshot", {**OPEN, "last_seq": 5, "pending": [call("open")]}),
                frame("turn_started", {"turn_id": "turn_1"}, "3"),
                frame("suspended", call("answered"), "4"),
                frame("suspended", call("open"), "5"),
                frame("suspended", call("new"), "6"),
                frame("turn_completed", {"turn_id": "turn_1"}, "7"),
            )
        )
        self.assertEqual([it.call_id for it in items if isinstance(it, client.Call)], ["open", "new"])

    def test_a_conversation_that_is_another_one_is_an_error(self) -> None:
        with self.assertRaises(client.NotFoundError):
            self.read(stream(frame("snapshot", {**OPEN, "last_seq": 1})))


    def test_whoever_begins_in_mid_message_reads_all_of_it_over_a_cut(self) -> None:
        streaming = {"id": "m", "text": "H\U0001f600", "thinking": "hm", "delta_seq": 2}
        message = {"id": "m", "role": "assistant", "content": [{"type": "text", "text": "H\U0001f600llo"}]}
        server = LyingServer(
            stream(frame("snapshot", {**OPEN, "streaming_message": streaming})),
            stream(
                frame("snapshot", {**OPEN, "streaming_message": streaming}),
                frame("text_delta", {"message_id": "m", "text": "l", "delta_seq": 3}, "3.5.2.m"),
                frame("message_completed", {"turn_id": "turn_1", "message": message}, "4"),
                frame("turn_completed", {"turn_id": "turn_1"}, "5"),
            ),
        )
        items = []
        for item in abide(server).conversation("c").follow():
            items.append(item)
            if isinstance(item, client.End):
                break
        self.assertEqual([it.type for it in items], ["thinking", "text", "text", "text", "message", "end"])
        self.assertEqual("".join(it.text for it in items if isinstance(it, client.Text)), "H\U0001f600llo")
        self.assertIn(b"last-event-id: 3.4.2.m\r\n", server.requests[1].lower())


class Cancellation(unittest.IsolatedAsyncioTestCase):
    async def test_a_task_that_is_cancelled_closes_its_stream(self) -> None:
        opened, closed = threading.Event(), threading.Event()

        def silent(connection: socket.socket) -> None:
            connection.sendall(stream(frame("snapshot", OPEN)))
            opened.set()
            while connection.recv(1):
                pass
            closed.set()

        server = LyingServer(SENT, silent)
        async with client.AsyncAbide(server.url) as abide:
            turn = await abide.conversation("c").send("Hello")

            async def read() -> None:
                async for _ in turn:
                    pass

            task = asyncio.create_task(read())
            self.assertTrue(await asyncio.to_thread(opened.wait, 10))
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertTrue(await asyncio.to_thread(closed.wait, 10))

    async def test_both_clients_are_one(self) -> None:
        server = LyingServer(SENT, problem(409, "call-not-open"))
        async with client.AsyncAbide(server.url) as abide:
            conversation = abide.conversation("c")
            self.assertEqual((await conversation.send("Hello")).id, "turn_1")
            with self.assertRaises(client.StaleError):
                await conversation.call("k").deny(reason="no")


class Results(unittest.TestCase):
    def result(self, report: dict[str, Any], **options: Any) -> client.Answer:
        server = LyingServer(SENT, answer(200, json.dumps({"turn_id": "turn_1", "seq": 2, **report})))
        return abide(server).conversation("c").send("Hello").result(**options)

    def test_every_outcome_is_an_answer_or_an_error_of_its_type(self) -> None:
        message = {"id": "m", "role": "assistant", "content": [{"type": "text", "text": "Hi"}]}
        done = self.result({"outcome": "completed", "message": message, "object": {"a": 1}, "usage": {}})
        self.assertEqual((done.text, done.object, str(done)), ("Hi", {"a": 1}, "Hi"))
        for outcome, kind in (
            ("halted", client.TurnHaltedError),
            ("failed", client.TurnFailedError),
            ("cancelled", client.TurnCancelledError),
        ):
            with self.assertRaisesRegex(kind, "why"):
                self.result({"outcome": outcome, "reason": "why"})

    def test_a_turn_that_rests_says_for_what(self) -> None:
        call = {"call_id": "k", "tool": "mail", "kind": "approval", "conversation_id": "child", "suspension": 1}
        with self.assertRaisesRegex(client.WaitingError, r"mail \(approval\)") as caught:
            self.result({"outcome": "awaiting_input", "pending": [call]})
        self.assertEqual(caught.exception.pending[0].conversation_id, "child")

    def test_the_time_of_the_caller_is_kept(self) -> None:
        server = LyingServer(SENT)
        turn, began = abide(server).conversation("c").send("Hello"), time.monotonic()
        with self.assertRaises(client.DeadlineError):
            turn.result(timeout=1.0)
        self.assertLess(time.monotonic() - began, 3.0)
        self.assertLess(len(server.requests), 8, "a node that answers at once is not asked in a loop")

    def test_a_stream_without_news_is_read_for_the_time_of_the_caller(self) -> None:
        def silent(connection: socket.socket) -> None:
            connection.sendall(stream(frame("snapshot", OPEN)))
            connection.recv(1)

        turn, began = abide(LyingServer(silent)).conversation("c").turn("turn_1/2"), time.monotonic()
        with self.assertRaises(client.DeadlineError):
            turn.result(timeout=1.0)
        self.assertLess(time.monotonic() - began, 3.0)


class Arguments(unittest.TestCase):
    def test_what_cannot_be_meant_is_refused_before_a_request(self) -> None:
        abide = client.Abide("http://127.0.0.1:1")
        for id in ("", "..", "a/b", "x" * 129):
            with self.assertRaisesRegex(ValueError, "^id: "):
                abide.conversation(id)
        with self.assertRaisesRegex(ValueError, "^urls: "):
            client.Abide("a:8080")
        for cursor in ("", "turn_1", "turn_1/x", "turn_1/in/3.1"):
            with self.assertRaisesRegex(ValueError, "^cursor: "):
                abide.conversation("c").turn(cursor)


if __name__ == "__main__":
    unittest.main()
