// Exports, imports and the state of a conversation, against servers that cut, refuse, or take their time.
import assert from "node:assert/strict";
import { openAsBlob } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import test from "node:test";

import * as client from "../client/src/index.js";
import { answer, problem, served } from "./lying-server.mjs";

const { Abide } = client;
const at = (servers, options) => new Abide({ urls: servers.map(({ url }) => url), retryFor: 5_000, ...options });

const WHOLE = [
  { abide: "conversation", format: 1, id: "c", agent: "a", last_seq: 1 },
  { seq: 1, type: "created", data: { text: "ä\n" } },
  { abide: "end", last_seq: 1 },
].map((line) => `${JSON.stringify(line)}\n`).join("");
const BYTES = Buffer.from(WHOLE);
const HEAD = "HTTP/1.1 200 X\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n";
const ME = answer(200, '{"subject": "ann"}');
const IMPORTED = answer(201, '{"id": "conv_1"}');
/** More than the buffers of a connection hold, and less than what nothing would hold back. */
const MANY_BYTES = 64 << 20;
const PIECE = Buffer.from('{"seq":1}\n'.repeat(10_000));

const chunk = (data) => Buffer.concat([Buffer.from(`${data.length.toString(16)}\r\n`), data, Buffer.from("\r\n")]);
/** An answer that ends with the connection. */
const closed = (data) => Buffer.concat([Buffer.from(`${HEAD}\r\n`), data]);
const chunked = (...chunks) => Buffer.concat([Buffer.from(`${HEAD}transfer-encoding: chunked\r\n\r\n`), ...chunks.map(chunk)]);

async function read(pieces) {
  const all = [];
  for await (const piece of pieces) all.push(piece);
  return Buffer.concat(all).toString();
}

const exported = (servers) => read(at(servers).conversation("c").export());

/** Waits until a count no longer grows. */
async function standsStill(count) {
  let [seen, looks] = [-1, 0];
  for (const deadline = Date.now() + 20_000; looks < 5; ) {
    assert.ok(Date.now() < deadline, `it still grows: ${seen}`);
    await new Promise((done) => setTimeout(done, 50));
    looks = count() === seen ? looks + 1 : 0;
    seen = count();
  }
  return seen;
}

/** Sends pieces without an end, as fast as they are read. */
function endless() {
  const state = {};
  state.closed = new Promise((close) => {
    state.answer = (socket) => {
      const more = () => {
        while (!socket.destroyed) if (!socket.write(PIECE)) return;
      };
      socket.write(`${HEAD}\r\n`);
      socket.on("drain", more);
      socket.on("close", close);
      more();
    };
  });
  return state;
}

/** Reads the pieces of a body up to its end, and answers. */
function receiver(reply = IMPORTED) {
  const state = { size: 0, isWhole: false };
  state.ended = new Promise((end) => {
    state.answer = (socket, first) => {
      let raw = first;
      const pieces = [];
      const take = () => {
        for (;;) {
          const at = raw.indexOf("\r\n");
          const length = at < 0 ? NaN : parseInt(raw.toString("latin1", 0, at), 16);
          if (Number.isNaN(length) || raw.length < at + length + 4) return;
          pieces.push(raw.subarray(at + 2, at + 2 + length));
          raw = raw.subarray(at + length + 4);
          state.size += length;
          if (length > 0) continue;
          state.isWhole = true;
          state.text = state.size < 1_000 ? Buffer.concat(pieces).toString() : undefined;
          socket.end(reply);
          return;
        }
      };
      socket.on("data", (data) => {
        raw = raw.length > 0 ? Buffer.concat([raw, data]) : data;
        take();
      });
      socket.on("close", end);
      take();
    };
  });
  return state;
}

/** Pieces that come once, which say how many were taken. */
function pieces(count = Infinity) {
  const state = { taken: 0, isClosed: false };
  state.body = (async function* () {
    try {
      while (state.taken < count) {
        state.taken += 1;
        yield PIECE;
      }
    } finally {
      state.isClosed = true;
    }
  })();
  return state;
}

served("a whole export is what the node sent", async (begin) => {
  const seven = Array.from({ length: Math.ceil(BYTES.length / 7) }, (_, i) => BYTES.subarray(7 * i, 7 * i + 7));
  for (const sent of [closed(BYTES), chunked(...seven, Buffer.alloc(0))]) {
    const server = await begin(sent);
    assert.equal(await exported([server]), WHOLE);
    assert.match(server.requests[0], /^GET \/v1\/conversations\/c\/export HTTP/);
  }
});

served("an export that is cut anywhere is an error", async (begin) => {
  const lies = Array.from({ length: BYTES.length - 1 }, (_, at) => closed(BYTES.subarray(0, at)));
  // Its lines are whole, and its end is not.
  lies.push(chunked(BYTES.subarray(0, -30), Buffer.alloc(0)));
  lies.push(Buffer.concat([Buffer.from(`${HEAD}content-length: ${BYTES.length + 1}\r\n\r\n`), BYTES]));
  lies.push(closed(Buffer.from(`${WHOLE}{"seq":2}\n`)));
  const conversation = at([await begin(...lies)]).conversation("c");
  for (const lie of lies) await assert.rejects(read(conversation.export()), client.CutOffError, lie.toString());
});

served("a node that fails before the first piece is left for another", async (begin) => {
  for (const failure of [
    (socket) => socket.destroy(),
    problem(503, "unavailable"),
    answer(200, "{}"),
    `${HEAD}content-length: 9\r\n\r\n`,
  ]) {
    assert.equal(await exported([await begin(failure), await begin(closed(BYTES))]), WHOLE);
  }
  const cutting = await begin(`${HEAD}content-length: 999\r\n\r\n${WHOLE.slice(0, 99)}`);
  const truth = await begin(closed(BYTES));
  await assert.rejects(exported([cutting, truth]), client.CutOffError);
  assert.equal(truth.requests.length, 0, "what was yielded is not yielded again");
});

served("an export that is refused or none is an error of its type", async (begin) => {
  await assert.rejects(exported([await begin(problem(404, "not-found"))]), client.NotFoundError);
  await assert.rejects(exported([await begin(answer(200, WHOLE, { kind: "text/html" }))]), client.ProtocolError);
});

served("whoever reads slowly holds the node back", async (begin) => {
  const { answer, closed } = endless();
  const server = await begin((socket) => answer(socket));
  const given = at([server]).conversation("c").export();
  await given.next();
  assert.ok((await standsStill(() => server.written())) < MANY_BYTES);
  await given.return();
  await closed;
});

served("a stream takes a whole export at its own pace, or is aborted", async (begin) => {
  const written = [];
  const sink = (write) =>
    new WritableStream({ write, close: () => void written.push("closed"), abort: (error) => void written.push(error.name) });
  await at([await begin(closed(BYTES))]).conversation("c").exportTo(sink((piece) => void written.push(`${Buffer.from(piece)}`)));
  assert.deepEqual(written.splice(0), [WHOLE, "closed"]);
  const cut = at([await begin(closed(BYTES.subarray(0, -9)))]).conversation("c");
  await assert.rejects(cut.exportTo(sink(() => {})), client.CutOffError);
  assert.deepEqual(written.splice(0), ["CutOffError"]);
  const { answer } = endless();
  const server = await begin((socket) => answer(socket));
  const full = at([server]).conversation("c").exportTo(sink(() => new Promise(() => {})));
  full.catch(() => {});
  assert.ok((await standsStill(() => server.written())) < MANY_BYTES);
});

served("a body arrives as it was given", async (begin) => {
  const directory = await mkdtemp(join(tmpdir(), "abide-"));
  try {
    const path = join(directory, "c.ndjson");
    await writeFile(path, at([await begin(closed(BYTES))]).conversation("c").export());
    assert.equal(await readFile(path, "utf8"), WHOLE);
    const halves = () => [WHOLE.slice(0, 9), "", BYTES.subarray(9)];
    const stream = Readable.toWeb(Readable.from([BYTES.subarray(0, 9), BYTES.subarray(9)]));
    for (const body of [Readable.from(halves()), halves(), stream, halves, async () => halves()]) {
      const received = receiver();
      const server = await begin(...(typeof body === "function" ? [] : [ME]), received.answer);
      const made = await at([server]).importConversation(body, { keepId: true, key: "mine" });
      assert.deepEqual([made.id, received.text], ["conv_1", WHOLE]);
      const request = server.requests.at(-1);
      assert.match(request, /^POST \/v1\/conversations\/import\?keep_id=true HTTP/);
      assert.match(request, /content-type: application\/x-ndjson\r/i);
      assert.match(request, /idempotency-key: mine\r/i);
    }
    for (const body of [WHOLE, BYTES, new Blob([WHOLE]), await openAsBlob(path), () => openAsBlob(path)]) {
      const server = await begin(IMPORTED);
      await at([server]).importConversation(body);
      assert.match(server.requests[0], /^POST \/v1\/conversations\/import HTTP/);
      assert.match(server.requests[0], /content-type: application\/x-ndjson\r/i);
      assert.equal(server.requests[0].split("\r\n\r\n")[1], WHOLE);
    }
  } finally {
    await rm(directory, { recursive: true });
  }
});

served("a node that reads slowly holds the pieces back", async (begin) => {
  let goOn;
  const received = receiver();
  const server = await begin(ME, (socket, first) => {
    socket.pause();
    goOn = () => {
      received.answer(socket, first);
      socket.resume();
    };
  });
  const given = pieces(1_000);
  const made = at([server]).importConversation(given.body);
  assert.ok((await standsStill(() => given.taken)) * PIECE.length < MANY_BYTES);
  goOn();
  assert.equal((await made).id, "conv_1");
  assert.equal(received.size, 1_000 * PIECE.length);
});

served("an import that is refused half-way says why", async (begin) => {
  const detail = "line 3: seq: is not the next one";
  const refuse = (socket) => {
    let left = 1 << 20;
    socket.on("data", (data) => {
      left -= data.length;
      if (left > 0) return;
      socket.removeAllListeners("data");
      socket.pause();
      socket.end(problem(422, "invalid-request", "", { detail }));
    });
  };
  const server = await begin(ME, refuse);
  const given = pieces();
  await assert.rejects(at([server]).importConversation(given.body), (error) => {
    assert.deepEqual([error.constructor, error.detail], [client.InvalidRequestError, detail]);
    return true;
  });
  assert.ok(given.taken * PIECE.length < MANY_BYTES);
  await standsStill(() => given.taken);
  assert.ok(given.isClosed);
  assert.equal(server.requests.length, 2);
});

served("what can be sent once is sent once", async (begin) => {
  const cut = (socket) => socket.destroy();
  for (const [body, sent] of [[Readable.from([WHOLE]), 1], [() => Readable.from([WHOLE]), 2]]) {
    const received = receiver();
    const server = await begin(...(sent === 1 ? [ME] : []), cut, received.answer);
    const made = at([server]).importConversation(body);
    if (sent === 1) await assert.rejects(made, client.NoAnswerError);
    else await made;
    assert.equal(received.text, sent === 2 ? WHOLE : undefined);
    const imports = server.requests.filter((it) => it.startsWith("POST"));
    const keys = new Set(imports.map((it) => /idempotency-key: (\w+)/i.exec(it)[1]));
    assert.deepEqual([imports.length, keys.size], [sent, 1]);
  }
  const server = await begin((socket) => socket.destroy(), IMPORTED);
  await at([server]).importConversation(new Blob([WHOLE]));
  assert.equal(server.requests.length, 2);
});

served("pieces go to a node that answers with a credential that is accepted", async (begin) => {
  const [away, received] = [await begin((socket) => socket.destroy()), receiver()];
  const here = await begin(problem(401, "unauthorized"), ME, received.answer);
  const tokens = ["old", "new"];
  await at([away, here], { token: () => tokens.shift() }).importConversation([WHOLE]);
  assert.equal(received.text, WHOLE);
  assert.match(here.requests.at(-1), /Bearer new/);
  assert.equal(away.requests.filter((it) => it.startsWith("POST")).length, 0);
});

served("what the pieces throw is thrown and the body has no end", async (begin) => {
  async function* failing() {
    yield WHOLE.slice(0, 20);
    throw new RangeError("the disk is gone");
  }
  const cut = at([await begin(closed(BYTES.subarray(0, -9)))]).conversation("c");
  for (const [body, error] of [
    [failing, /the disk is gone/],
    [failing(), /the disk is gone/],
    [cut.export(), client.CutOffError],
  ]) {
    const received = receiver();
    const server = await begin(...(typeof body === "function" ? [] : [ME]), received.answer);
    await assert.rejects(at([server]).importConversation(body), error);
    await received.ended;
    assert.ok(!received.isWhole);
    assert.equal(server.requests.filter((it) => it.startsWith("POST")).length, 1);
  }
  for (const body of [7, {}, null, [7]]) {
    await assert.rejects(at([await begin(ME)]).importConversation(body), /^TypeError: body: /);
  }
});

served("a browser that sends no streams sends a Blob", async (begin) => {
  const { Request } = globalThis;
  // It makes a text of a stream, and knows no `duplex`.
  globalThis.Request = class {
    headers = new Headers({ "content-type": "text/plain" });
  };
  try {
    const server = await begin(IMPORTED);
    await at([server]).importConversation(new Blob([WHOLE]));
    await assert.rejects(at([server]).importConversation(() => [WHOLE]), /^TypeError: body: .* Blob/);
    assert.equal(server.requests.length, 1);
  } finally {
    globalThis.Request = Request;
  }
});

served("a signal ends an import and an export with its reason", async (begin) => {
  const received = receiver();
  const server = await begin(ME, received.answer);
  const end = new AbortController();
  async function* waiting() {
    yield WHOLE.slice(0, 9);
    end.abort(new Error("enough"));
    await new Promise(() => {});
  }
  await assert.rejects(at([server]).importConversation(waiting(), { signal: end.signal }), /enough/);
  await received.ended;
  assert.ok(!received.isWhole);
  const { answer } = endless();
  const again = new AbortController();
  const given = at([await begin((socket) => answer(socket))]).conversation("c").export({ signal: again.signal });
  await given.next();
  again.abort(new Error("enough"));
  await assert.rejects(read(given), /enough/);
});

served("pieces move from one cluster to another", async (begin) => {
  const received = receiver();
  const here = at([await begin(closed(BYTES))]);
  await at([await begin(received.answer)]).importConversation(() => here.conversation("c").export());
  assert.equal(received.text, WHOLE);
});

served("a value of the state is read, set and removed", async (begin) => {
  const done = "HTTP/1.1 204 X\r\nconnection: close\r\n\r\n";
  const server = await begin(answer(200, "[1]"), answer(200, "false"), done, done);
  const { state } = at([server]).conversation("c");
  assert.deepEqual([await state.get("a:1"), await state.get("b")], [[1], false]);
  assert.equal(await state.put("b", false), undefined);
  assert.equal(await state.delete("b"), undefined);
  const expected = ["GET state/a:1", "GET state/b", "PUT state/b", "DELETE state/b"];
  assert.deepEqual(server.requests.map((it) => it.split(" HTTP")[0].replace("/v1/conversations/c/", "")), expected);
  assert.ok(server.requests[2].endsWith("\r\n\r\nfalse"));
  for (const request of server.requests.slice(2)) assert.match(request, /idempotency-key: \w/i);
});

served("the blobs of all pages are yielded", async (begin) => {
  const pages = [{ blobs: [{ id: "a", seq: 1 }], cursor: 7 }, { blobs: [], cursor: 9 }, { blobs: [{ id: "b", seq: 9 }] }];
  const server = await begin(...pages.map((page) => answer(200, JSON.stringify(page))));
  const ids = [];
  for await (const { id } of at([server]).conversation("c").blobs()) ids.push(id);
  assert.deepEqual(ids, ["a", "b"]);
  const queries = server.requests.map((it) => it.split(" ")[1].split("?")[1]);
  assert.deepEqual(queries, [0, 7, 9].map((after) => `conversation=c&after=${after}&limit=1000`));
});

test("a key that would be another path is refused before a request", async () => {
  const { state } = new Abide({ url: "http://127.0.0.1:1", retryFor: 1 }).conversation("c");
  for (const key of ["", ".", "..", "a/b", "ä", "x".repeat(129), "a\n"]) {
    for (const action of [state.get(key), state.delete(key), state.put(key, 1)]) {
      await assert.rejects(action, /^TypeError: key: /);
    }
  }
  for (const value of [undefined, null]) await assert.rejects(state.put("a", value), /^TypeError: value: /);
});
