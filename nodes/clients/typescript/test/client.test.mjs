// The client against servers that are away, refuse, or lie: bytes on a socket. `node --test`.
import assert from "node:assert/strict";
import test from "node:test";

import * as client from "../client/src/index.js";
import { answer, problem, served, stream } from "./lying-server.mjs";

const { Abide } = client;

const frame = (name, data, place) =>
  `event: ${name}\ndata: ${JSON.stringify(data)}\n${place ? `id: ${place}\n` : ""}\n`;

const SENT = answer(202, '{"conversation_id": "c", "turn_id": "turn_1", "seq": 2}');
const OPEN = { last_seq: 3, pending: [], child_pending: [], in_flight: [], turn: { id: "turn_1" }, state: "streaming" };
const message = (id, text) => ({ id, role: "assistant", content: [{ type: "text", text }] });

const at = (servers, options) => new Abide({ urls: servers.map(({ url }) => url), retryFor: 5_000, ...options });

async function all(items) {
  const read = [];
  for await (const item of items) read.push(item);
  return read;
}

served("each problem is an error of its type that carries the document", async (begin) => {
  for (const [status, name, Kind] of [
    [401, "unauthorized", client.UnauthorizedError],
    [403, "forbidden", client.ForbiddenError],
    [403, "approval-forbidden", client.ForbiddenError],
    [404, "not-found", client.NotFoundError],
    [409, "call-not-open", client.StaleError],
    [409, "turn-in-flight", client.BusyError],
    [409, "agent-missing", client.ConflictError],
    [413, "payload-too-large", client.TooLargeError],
    [422, "invalid-request", client.InvalidRequestError],
  ]) {
    const server = await begin(problem(status, name, "", { because: "owner" }));
    const error = await at([server]).conversation("c").call("call_1").approve().catch((it) => it);
    assert.equal(error.constructor, Kind);
    assert.deepEqual([error.status, error.type, error.detail], [status, name, `about ${name}`]);
    assert.equal(error.problem.because, "owner");
    assert.equal(server.requests.length, 1);
  }
});

served("a 429 is repeated after its time with the same key", async (begin) => {
  const server = await begin(problem(429, "overloaded", "retry-after: 1\r\n"), answer(200, '{"seq": 4}'));
  const began = Date.now();
  assert.equal((await at([server]).conversation("c").call("call_1").approve()).seq, 4);
  assert.ok(Date.now() - began >= 1_000);
  const keys = server.requests.map((it) => /idempotency-key: (\w+)/i.exec(it)[1]);
  assert.equal(keys[0], keys[1]);
});

served("a retry-after beyond the time for retries throws at once", async (begin) => {
  const server = await begin(problem(429, "quota-exceeded", "retry-after: 3600\r\n"));
  const error = await at([server]).conversation("c").snapshot().catch((it) => it);
  assert.ok(error instanceof client.OverloadedError);
  assert.equal(error.retryAfter, 3_600);
  assert.equal(server.requests.length, 1);
});

served("a message that nobody answers is the same message at the next node", async (begin) => {
  const [away, here] = [await begin((socket) => socket.destroy()), await begin(SENT)];
  const turn = at([away, here]).conversation("c", { agent: "demo" }).send("Hello");
  assert.equal((await turn.ready()).id, "turn_1");
  const bodies = [...away.requests, ...here.requests].map((it) => JSON.parse(it.split("\r\n\r\n")[1]));
  assert.equal(bodies.length, 2);
  assert.deepEqual(bodies[0], bodies[1]);
  assert.equal(bodies[0].message_id, turn.messageId);
});

served("nodes that are away are an error in time, and a signal ends the attempts", async (begin) => {
  const gone = await begin(SENT);
  gone.end();
  const began = Date.now();
  await assert.rejects(at([gone], { retryFor: 1_000 }).conversation("c").snapshot(), client.NoAnswerError);
  const signal = AbortSignal.timeout(200);
  await assert.rejects(at([gone]).conversation("c").send("x", { signal }).ready(), { name: "TimeoutError" });
  assert.ok(Date.now() - began < 4_000);
});

served("a credential that is refused is asked for once more", async (begin) => {
  const server = await begin(problem(401, "unauthorized"), answer(200, '{"subject": "ann"}'));
  const tokens = ["old", "new"];
  assert.equal((await at([server], { token: () => tokens.shift() }).me()).subject, "ann");
  assert.match(server.requests[0], /Bearer old/);
  assert.match(server.requests[1], /Bearer new/);
});

served("what is not an answer of a node is an error", async (begin) => {
  for (const lie of [
    answer(200, '{"id": "c", "sta'),
    answer(200, "<html>", { kind: "text/html" }),
    answer(200, '{"id": "c"}', { kind: "text/plain" }),
  ]) {
    const server = await begin(lie);
    await assert.rejects(at([server]).conversation("c").snapshot(), client.ProtocolError);
    assert.equal(server.requests.length, 1);
  }
});

served("a lying node is left for another, and a body that is cut is asked for again", async (begin) => {
  const [lie, truth] = [await begin(answer(200, "<", { kind: "text/html" })), await begin(answer(200, '{"id": "c"}'))];
  assert.equal((await at([lie, truth]).conversation("c").snapshot()).id, "c");
  const cut = "HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
  const cutting = await begin(cut, answer(200, '{"id": "c"}'));
  assert.equal((await at([cutting]).conversation("c").snapshot()).id, "c");
});

/** Sends a gigabyte, as fast as it is read. `sockets` gets the connections. */
function endless(head, sockets) {
  return (socket) => {
    sockets.push(socket);
    const chunk = Buffer.alloc(1 << 20, "x");
    let left = 1_024;
    const more = () => {
      while (left-- > 0 && !socket.destroyed) if (!socket.write(chunk)) return;
    };
    socket.write(head);
    socket.on("drain", more);
    more();
  };
}

served("an answer and a line of a gigabyte are read up to their bounds", async (begin) => {
  const sockets = [];
  const big = await begin(endless('HTTP/1.1 200 X\r\ncontent-type: application/json\r\n\r\n"', sockets));
  await assert.rejects(at([big]).conversation("c").snapshot(), /more than 67108864 bytes/);
  const line = await begin(SENT, endless(stream("data: "), sockets));
  const turn = at([line], { retryFor: 1 }).conversation("c").send("x");
  await assert.rejects(all(turn), /too long/);
  for (const { bytesWritten } of sockets) assert.ok(bytesWritten < 100 << 20);
});

served("a stream that is cut in a frame goes on after the last whole one", async (begin) => {
  const end =
    frame("message_completed", { turn_id: "turn_1", message: message("m", "Hello") }, "4") +
    frame("turn_completed", { turn_id: "turn_1" }, "5");
  const server = await begin(
    SENT,
    stream(
      frame("snapshot", OPEN),
      frame("turn_started", { turn_id: "turn_1" }, "3"),
      frame("text_delta", { message_id: "m", text: "Hel", delta_seq: 1 }, "3.3.0.m"),
      'event: text_delta\ndata: {"message_id": "m", "te',
    ),
    stream(frame("snapshot", OPEN), frame("text_delta", { message_id: "m", text: "lo", delta_seq: 2 }, "3.5.0.m"), end),
  );
  const items = await all(at([server]).conversation("c").send("Hello"));
  assert.deepEqual(items.map(({ type }) => type), ["text", "text", "message", "end"]);
  assert.match(server.requests[1], /last-event-id: 2\r/i);
  assert.match(server.requests[2], /last-event-id: 3\.3\.0\.m\r/i);
});

served("unknown frames and members are skipped, and other turns left out", async (begin) => {
  const server = await begin(
    SENT,
    stream(
      frame("snapshot", { ...OPEN, novelty: 1 }),
      frame("turn_started", { turn_id: "turn_0" }, "3"),
      frame("text_delta", { message_id: "l", text: "no", delta_seq: 1 }),
      frame("turn_completed", { turn_id: "turn_0" }, "4"),
      frame("turn_started", { turn_id: "turn_1", novelty: [] }, "5"),
      frame("novelty", { x: 1 }, "6"),
      frame("turn_novelty", { turn_id: "turn_1" }, "7"),
      frame("turn_halted", { turn_id: "turn_1", reason: "max_steps" }, "8"),
    ),
  );
  const items = await all(at([server]).conversation("c").send("Hello"));
  assert.deepEqual(items.map(({ type, reason }) => [type, reason]), [["end", "max_steps"]]);
});

served("a message that was begun anew is told so, and what no piece has told follows", async (begin) => {
  const server = await begin(
    SENT,
    stream(
      frame("snapshot", OPEN),
      frame("turn_started", { turn_id: "turn_1" }, "3"),
      frame("text_delta", { message_id: "m", text: "Hel", delta_seq: 1 }),
      frame("text_delta", { message_id: "n", text: "😀", delta_seq: 1 }),
      frame("message_completed", { turn_id: "turn_1", message: message("n", "😀ye") }, "4"),
      frame("turn_completed", { turn_id: "turn_1" }, "5"),
    ),
  );
  const items = await all(at([server]).conversation("c").send("Hello"));
  assert.deepEqual(items.map(({ type }) => type), ["text", "restart", "text", "text", "message", "end"]);
  assert.equal(items[3].text, "ye");
});

served("a stream of another type or of nonsense is an error in time", async (begin) => {
  for (const lie of [
    answer(200, "hello", { kind: "text/html" }),
    stream("event: snapshot\ndata: {not json\n\n"),
    stream("event: snapshot\ndata: 7\n\n"),
    stream(frame("snapshot", {})),
  ]) {
    const server = await begin(SENT, lie);
    const turn = at([server], { retryFor: 500 }).conversation("c").send("Hello");
    await assert.rejects(all(turn), (it) => it instanceof client.ProtocolError);
  }
});

served("a call that was answered before the stream began is left out", async (begin) => {
  const call = (call_id) => ({ call_id, tool: "t", kind: "approval", suspension: 1, args: {} });
  const server = await begin(
    SENT,
    stream(
      frame("snapshot", { ...OPEN, last_seq: 5, pending: [call("open")] }),
      frame("turn_started", { turn_id: "turn_1" }, "3"),
      frame("suspended", call("answered"), "4"),
      frame("suspended", call("open"), "5"),
      frame("suspended", call("new"), "6"),
      frame("turn_completed", { turn_id: "turn_1" }, "7"),
    ),
  );
  const items = await all(at([server]).conversation("c").send("Hello"));
  assert.deepEqual(items.map(({ callId }) => callId), ["open", "new", undefined]);
});

served("whoever begins in mid-message reads all of it over a cut", async (begin) => {
  const streaming_message = { id: "m", text: "H😀", thinking: "hm", delta_seq: 2 };
  const snapshot = frame("snapshot", { ...OPEN, streaming_message });
  const server = await begin(
    stream(snapshot),
    stream(
      snapshot,
      frame("text_delta", { message_id: "m", text: "l", delta_seq: 3 }, "3.5.2.m"),
      frame("message_completed", { turn_id: "turn_1", message: message("m", "H😀llo") }, "4"),
      frame("turn_completed", { turn_id: "turn_1" }, "5"),
    ),
  );
  const items = [];
  for await (const item of at([server]).conversation("c").follow()) {
    items.push(item);
    if (item.type === "end") break;
  }
  assert.deepEqual(items.map(({ type }) => type), ["thinking", "text", "text", "text", "message", "end"]);
  assert.equal(items.filter(({ type }) => type === "text").map(({ text }) => text).join(""), "H😀llo");
  assert.match(server.requests[1], /last-event-id: 3\.4\.2\.m\r/i);
});

served("a signal ends an iteration with its reason and closes its stream, and so does a break", async (begin) => {
  for (const isSignal of [true, false]) {
    let close;
    const closed = new Promise((done) => (close = done));
    const server = await begin(SENT, (socket) => {
      socket.on("close", close);
      const started = frame("turn_started", { turn_id: "turn_1" }, "3");
      const delta = frame("text_delta", { message_id: "m", text: "Hel", delta_seq: 1 }, "3.3.0.m");
      socket.write(stream(frame("snapshot", OPEN), started, delta));
    });
    const end = new AbortController();
    const items = at([server]).conversation("c").send("Hello").items({ signal: end.signal });
    assert.equal((await items.next()).value.text, "Hel");
    if (isSignal) {
      const next = items.next();
      end.abort(new Error("enough"));
      await assert.rejects(next, /enough/);
    } else {
      await items.return();
    }
    await closed;
  }
});

served("every outcome is an answer or an error of its type", async (begin) => {
  const result = async (report) => {
    const server = await begin(SENT, answer(200, JSON.stringify({ turn_id: "turn_1", seq: 2, ...report })));
    return at([server]).conversation("c").send("Hello").result();
  };
  const done = await result({ outcome: "completed", message: message("m", "Hi"), object: { a: 1 }, usage: {} });
  assert.deepEqual([done.text, done.object], ["Hi", { a: 1 }]);
  await assert.rejects(result({ outcome: "halted", reason: "why" }), client.TurnHaltedError);
  await assert.rejects(result({ outcome: "failed", reason: "why" }), client.TurnFailedError);
  await assert.rejects(result({ outcome: "cancelled" }), client.TurnCancelledError);
  const pending = [{ call_id: "k", tool: "mail", kind: "approval", conversation_id: "child", suspension: 1 }];
  const waiting = await result({ outcome: "awaiting_input", pending }).catch((it) => it);
  assert.ok(waiting instanceof client.WaitingError);
  assert.equal(waiting.pending[0].conversationId, "child");
});

served("the time of the caller is kept, and a node that answers at once is not asked in a loop", async (begin) => {
  const server = await begin(SENT);
  const began = Date.now();
  const turn = at([server]).conversation("c").send("Hello");
  await assert.rejects(turn.result({ timeout: 1_000 }), client.DeadlineError);
  assert.ok(Date.now() - began < 3_000);
  assert.ok(server.requests.length < 8);
  const silent = await begin((socket) => socket.write(stream(frame("snapshot", OPEN))));
  const late = at([silent]).conversation("c").turn("turn_1/2").result({ timeout: 500 });
  await assert.rejects(late, client.DeadlineError);
});

test("what cannot be meant is refused before a request", async () => {
  const abide = new Abide({ url: "http://127.0.0.1:1" });
  for (const id of ["", "..", "a/b", "x".repeat(129)]) assert.throws(() => abide.conversation(id), /^TypeError: id: /);
  assert.throws(() => new Abide({ url: "a:8080" }), /^TypeError: urls: /);
  for (const cursor of ["", "turn_1", "turn_1/x", "turn_1/in/3.1"]) {
    await assert.rejects(abide.conversation("c").turn(cursor).result(), /^TypeError: cursor: /);
  }
});
