"""Exports, imports and the state of a conversation, against servers that cut, refuse, or take their time."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import sys
import tempfile
import threading
import time
import unittest
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import httpx

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

import abide_client as client  # noqa: E402
from lying_server import LyingServer, answer  # noqa: E402

WHOLE = b"".join(
    json.dumps(line, separators=(",", ":")).encode() + b"\n"
    for line in (
        {"abide": "conversation", "format": 1, "id": "c", "agent": "a", "last_seq": 1},
        {"seq": 1, "type": "created", "data": {"text": "\u00e4\n"}},
        {"abide": "end", "last_seq": 1},
    )
)
HEAD = b"HTTP/1.1 200 X\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n"
ME = answer(200, '{"subject": "ann"}')
IMPORTED = answer(201, '{"id": "conv_1"}')
#: More than the buffers of a connection hold, and less than what nothing would hold back.
MANY_BYTES = 64 << 20


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def closed(data: bytes) -> bytes:
    """An answer that ends with the connection."""
    return HEAD + b"\r\n" + data


def abide(*servers: LyingServer, retry_for: float = 5.0, **options: Any) -> client.Abide:
    return client.Abide(*(server.url for server in servers), retry_for=retry_for, **options)


def export(*servers: LyingServer) -> bytes:
    return b"".join(abide(*servers).conversation("c").export())


def stands_still(count: Callable[[], int]) -> int:
    """Waits until a count no longer grows."""
    seen, looks, deadline = -1, 0, time.monotonic() + 20.0
    while looks < 5:
        assert time.monotonic() < deadline, f"it still grows: {seen}"
        time.sleep(0.05)
        looks = looks + 1 if count() == seen else 0
        seen = count()
    return seen


class Endless:
    """Sends pieces without an end, as fast as they are read."""

    def __init__(self) -> None:
        self.sent, self.closed = 0, threading.Event()

    def __call__(self, connection: socket.socket) -> None:
        connection.sendall(HEAD + b"\r\n")
        piece = b'{"seq":1}\n' * 10_000
        try:
            while True:
                connection.sendall(piece)
                self.sent += len(piece)
        except OSError:
            self.closed.set()
            raise


class Exports(unittest.TestCase):
    def test_a_whole_export_is_what_the_node_sent(self) -> None:
        chunks = b"".join(chunk(WHOLE[at : at + 7]) for at in range(0, len(WHOLE), 7))
        for sent in (closed(WHOLE), HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunks + chunk(b"")):
            server = LyingServer(sent)
            self.assertEqual(export(server), WHOLE)
            self.assertIn(b"GET /v1/conversations/c/export HTTP", server.requests[0])

    def test_an_export_that_is_cut_anywhere_is_an_error(self) -> None:
        chunked = HEAD + b"transfer-encoding: chunked\r\n\r\n"
        lies = [closed(WHOLE[:at]) for at in range(len(WHOLE) - 1)]
        # Its lines are whole, and its end is not.
        lies.append(chunked + chunk(WHOLE))
        lies.append(chunked + chunk(WHOLE[:-30]) + chunk(b""))
        lies.append(HEAD + f"content-length: {len(WHOLE) + 1}\r\n\r\n".encode() + WHOLE)
        lies.append(closed(WHOLE + b'{"seq":2}\n'))
        conversation = abide(LyingServer(*lies)).conversation("c")
        for lie in lies:
            with self.assertRaises(client.CutOffError, msg=lie):
                list(conversation.export())

    def test_a_node_that_fails_before_the_first_piece_is_left_for_another(self) -> None:
        for failure in (
            lambda connection: connection.close(),
            answer(503, '{"type": "/problems/unavailable"}', kind="application/problem+json"),
            answer(200, "{}"),
            HEAD + b"content-length: 9\r\n\r\n",
        ):
            truth = LyingServer(closed(WHOLE))
            self.assertEqual(export(LyingServer(failure), truth), WHOLE)
        cutting = LyingServer(HEAD + b"content-length: 999\r\n\r\n" + WHOLE[:99])
        truth = LyingServer(closed(WHOLE))
        with self.assertRaises(client.CutOffError):
            export(cutting, truth)
        self.assertEqual(truth.requests, [], "what was yielded is not yielded again")

    def test_an_export_that_is_refused_or_none_is_an_error_of_its_type(self) -> None:
        document = '{"type": "/problems/not-found", "detail": "conversation: not found"}'
        with self.assertRaisesRegex(client.NotFoundError, "^conversation: "):
            export(LyingServer(answer(404, document, kind="application/problem+json")))
        with self.assertRaisesRegex(client.ProtocolError, "text/html"):
            export(LyingServer(answer(200, WHOLE.decode(), kind="text/html")))

    def test_whoever_reads_slowly_holds_the_node_back(self) -> None:
        endless = Endless()
        pieces = abide(LyingServer(endless)).conversation("c").export()
        next(pieces)
        self.assertLess(stands_still(lambda: endless.sent), MANY_BYTES)
        pieces.close()
        self.assertTrue(endless.closed.wait(10), "the connection is closed")

    def test_a_file_has_a_whole_export_or_is_not_there(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "c.ndjson")
            for cut in (LyingServer(closed(WHOLE[:-9])), LyingServer(closed(b""))):
                with self.assertRaises(client.CutOffError):
                    abide(cut).conversation("c").export_to(path)
                self.assertEqual(list(Path(directory).iterdir()), [])
            abide(LyingServer(closed(WHOLE))).conversation("c").export_to(path)
            self.assertEqual(path.read_bytes(), WHOLE)
            with self.assertRaises(client.CutOffError):
                abide(LyingServer(closed(WHOLE[:9]))).conversation("c").export_to(str(path))
            self.assertEqual(path.read_bytes(), WHOLE, "the one before stays")
            self.assertEqual(list(Path(directory).iterdir()), [path])


class Receiver:
    """Reads the pieces of a body up to its end, and answers."""

    def __init__(self, reply: bytes = IMPORTED) -> None:
        self._reply = reply
        self.body, self.is_whole = bytearray(), False
        self.ended = threading.Event()

    def __call__(self, connection: socket.socket) -> None:
        try:
            with connection.makefile("rb") as file:
                while line := file.readline():
                    piece = file.read(int(line, 16) + 2)[:-2]
                    self.body += piece
                    if not piece:
                        self.is_whole = True
                        connection.sendall(self._reply)
                        return
        finally:
            self.ended.set()


class Pieces:
    """Pieces that come once, which says how many were taken."""

    def __init__(self, piece: bytes = b'{"seq":1}\n' * 10_000, count: int = 100_000) -> None:
        self._piece, self._count = piece, count
        self.taken, self.is_closed = 0, False

    def __iter__(self) -> Iterator[bytes]:
        try:
            for _ in range(self._count):
                self.taken += 1
                yield self._piece
        finally:
            self.is_closed = True


class Imports(unittest.TestCase):
    def test_a_body_arrives_as_it_was_given(self) -> None:
        def pieces() -> Iterator[bytes]:
            yield from (WHOLE[:5], b"", WHOLE[5:])

        with tempfile.TemporaryFile() as file:
            file.write(b"before" + WHOLE)
            file.seek(6)
            for body in (WHOLE, bytearray(WHOLE), io.BytesIO(WHOLE), file, pieces(), pieces, [WHOLE], lambda: WHOLE):
                receiver = Receiver()
                is_sent_once = isinstance(body, (list, Generator))
                server = LyingServer(*([ME] if is_sent_once else []), receiver)
                made = abide(server).import_conversation(body, keep_id=True, key="mine")
                self.assertEqual((made.id, receiver.body), ("conv_1", WHOLE), body)
                request = server.requests[-1].lower()
                self.assertIn(b"post /v1/conversations/import?keep_id=true http", request)
                self.assertIn(b"content-type: application/x-ndjson\r\n", request)
                self.assertIn(b"idempotency-key: mine\r\n", request)
        copy = LyingServer(Receiver())
        abide(copy).import_conversation(lambda: [WHOLE])
        self.assertIn(b"POST /v1/conversations/import HTTP", copy.requests[0])

    def test_a_node_that_reads_slowly_holds_the_pieces_back(self) -> None:
        may_read, receiver = threading.Event(), Receiver()

        def slow(connection: socket.socket) -> None:
            may_read.wait(60)
            receiver(connection)

        body, made = Pieces(count=1_000), []
        abide_ = abide(LyingServer(ME, slow))
        thread = threading.Thread(target=lambda: made.append(abide_.import_conversation(body)))
        thread.start()
        self.assertLess(stands_still(lambda: body.taken) * 100_000, MANY_BYTES)
        may_read.set()
        thread.join(60)
        self.assertEqual((made[0].id, len(receiver.body)), ("conv_1", 100_000_000))

    def test_an_import_that_is_refused_half_way_says_why(self) -> None:
        document = '{"type": "/problems/invalid-request", "detail": "line 3: seq: is not the next one"}'
        refusal = answer(422, document, kind="application/problem+json")

        def refuse(connection: socket.socket) -> None:
            left = 1 << 20
            while left > 0:
                left -= len(connection.recv(65_536))
            connection.sendall(refusal)

        body, server = Pieces(), LyingServer(ME, refuse)
        with self.assertRaisesRegex(client.InvalidRequestError, "^line 3: seq: "):
            abide(server).import_conversation(body)
        self.assertLess(body.taken * 100_000, MANY_BYTES)
        self.assertTrue(body.is_closed)
        self.assertEqual(len(server.requests), 2)

    def test_what_can_be_sent_once_is_sent_once(self) -> None:
        def cut(connection: socket.socket) -> None:
            connection.recv(65_536)

        for body, sent in (
            (Pieces(WHOLE, 1), 1),
            (lambda: Pieces(WHOLE, 1), 2),
            (WHOLE, 2),
            (io.BytesIO(WHOLE), 2),
        ):
            receiver = Receiver()
            server = LyingServer(*([ME] if sent == 1 else []), cut, receiver)
            if sent == 1:
                with self.assertRaises(client.NoAnswerError):
                    abide(server).import_conversation(body)
            else:
                abide(server).import_conversation(body)
                self.assertEqual(receiver.body, WHOLE)
            imports = [it for it in server.requests if it.startswith(b"POST")]
            keys = {line for it in imports for line in it.split(b"\r\n") if b"idempotency" in line.lower()}
            self.assertEqual((len(imports), len(keys)), (sent, 1), body)

    def test_pieces_go_to_a_node_that_answers_with_a_credential_that_is_accepted(self) -> None:
        refusal = answer(401, '{"type": "/problems/unauthorized"}', kind="application/problem+json")
        away, receiver = LyingServer(lambda connection: connection.close()), Receiver()
        here = LyingServer(refusal, ME, receiver)
        tokens = iter(["old", "new"])
        abide(away, here, token=lambda: next(tokens)).import_conversation(iter([WHOLE]))
        self.assertEqual(receiver.body, WHOLE)
        self.assertIn(b"Bearer new", here.requests[-1])
        self.assertFalse([it for it in away.requests if it.startswith(b"POST")])

    def test_what_the_pieces_raise_is_raised_and_the_body_has_no_end(self) -> None:
        def failing() -> Iterator[bytes]:
            yield WHOLE[:20]
            raise OSError("the disk is gone")

        def broken() -> Iterator[bytes]:
            yield WHOLE[:20]
            raise httpx.ReadError("reset")

        cut = LyingServer(closed(WHOLE[:-9]))
        for body, error, text in (
            (failing, OSError, "the disk is gone"),
            (failing(), OSError, "the disk is gone"),
            (abide(cut).conversation("c").export(), client.CutOffError, "cut off"),
            # As that of another client, whose connection breaks.
            (broken, httpx.ReadError, "reset"),
            (iter(["text"]), TypeError, "^body: "),
        ):
            receiver = Receiver()
            server = LyingServer(*([] if callable(body) else [ME]), receiver)
            with self.assertRaisesRegex(error, text):
                abide(server).import_conversation(body)  # type: ignore[arg-type]
            self.assertTrue(receiver.ended.wait(10))
            self.assertFalse(receiver.is_whole)

    def test_what_is_no_body_is_refused_before_a_request(self) -> None:
        for body in ("text", 7, None, Path("c.ndjson")):
            with self.assertRaisesRegex(TypeError, "^body: "):
                client.Abide("http://127.0.0.1:1", retry_for=0.1).import_conversation(body)  # type: ignore[arg-type]

    def test_pieces_move_from_one_cluster_to_another(self) -> None:
        receiver = Receiver()
        there = abide(LyingServer(receiver))
        here = abide(LyingServer(closed(WHOLE)))
        there.import_conversation(here.conversation("c").export)
        self.assertEqual(receiver.body, WHOLE)


class Asynchronous(unittest.IsolatedAsyncioTestCase):
    async def test_both_clients_are_one(self) -> None:
        async def pieces() -> AsyncIterator[bytes]:
            yield WHOLE[:9]
            yield WHOLE[9:]

        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "c.ndjson")
            async with client.AsyncAbide(LyingServer(closed(WHOLE)).url) as here:
                await here.conversation("c").export_to(path)
                for body, one_shot in (
                    (pieces(), True), (pieces, False), (io.BytesIO(WHOLE), False), ([WHOLE], True),
                    (here.conversation("c").export, False),
                ):  # fmt: skip
                    receiver = Receiver()
                    server = LyingServer(*([ME] if one_shot else []), receiver)
                    async with client.AsyncAbide(server.url) as there:
                        made = await there.import_conversation(body)
                    self.assertEqual((made.id, receiver.body), ("conv_1", WHOLE))
            async with client.AsyncAbide(LyingServer(closed(WHOLE[:-9])).url) as cut:
                with self.assertRaises(client.CutOffError):
                    await cut.conversation("c").export_to(Path(directory, "d.ndjson"))
            self.assertEqual(list(Path(directory).iterdir()), [path])

    async def test_a_task_that_is_cancelled_ends_an_import(self) -> None:
        receiver, given = Receiver(), asyncio.Event()

        async def pieces() -> AsyncIterator[bytes]:
            yield WHOLE[:9]
            given.set()
            await asyncio.sleep(60)

        async with client.AsyncAbide(LyingServer(ME, receiver).url) as abide:
            task = asyncio.create_task(abide.import_conversation(pieces()))
            await asyncio.wait_for(given.wait(), 10)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
        self.assertTrue(await asyncio.to_thread(receiver.ended.wait, 10))
        self.assertFalse(receiver.is_whole)


class States(unittest.TestCase):
    def test_a_value_is_read_set_and_removed(self) -> None:
        done = b"HTTP/1.1 204 X\r\nconnection: close\r\n\r\n"
        server = LyingServer(answer(200, "[1]"), answer(200, "false"), done, done)
        state = abide(server).conversation("c").state
        self.assertEqual([state.get("a:1"), state.get("b")], [[1], False])
        self.assertIsNone(state.put("b", False))
        self.assertIsNone(state.delete("b"))
        lines = [it.partition(b" HTTP")[0] for it in server.requests]
        expected = [b"GET %s/a:1", b"GET %s/b", b"PUT %s/b", b"DELETE %s/b"]
        self.assertEqual(lines, [it % b"/v1/conversations/c/state" for it in expected])
        self.assertTrue(server.requests[2].endswith(b"\r\n\r\nfalse"))
        for request in server.requests[2:]:
            self.assertIn(b"idempotency-key: ", request.lower())

    def test_a_key_that_would_be_another_path_is_refused_before_a_request(self) -> None:
        state = client.Abide("http://127.0.0.1:1", retry_for=0.1).conversation("c").state
        for key in ("", ".", "..", "a/b", "\u00e4", "x" * 129, "a\n"):
            for action in (state.get, state.delete, lambda key: state.put(key, 1)):
                with self.assertRaisesRegex(ValueError, "^key: "):
                    action(key)
        with self.assertRaisesRegex(ValueError, "^value: "):
            state.put("a", None)


class Blobs(unittest.TestCase):
    def test_the_blobs_of_all_pages_are_yielded(self) -> None:
        pages = [{"blobs": [{"id": "a", "seq": 1}], "cursor": 7}, {"blobs": [], "cursor": 9}, {"blobs": [{"id": "b", "seq": 9}]}]
        server = LyingServer(*(answer(200, json.dumps(page)) for page in pages))
        self.assertEqual([it["id"] for it in abide(server).conversation("c").blobs()], ["a", "b"])
        queries = [it.split(b" ")[1].partition(b"?")[2] for it in server.requests]
        self.assertEqual(queries, [b"conversation=c&after=%d&limit=1000" % it for it in (0, 7, 9)])


if __name__ == "__main__":
    unittest.main()
