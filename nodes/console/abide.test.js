// Tests of abide.js against any stream and any response; `node --test` runs it, without dependencies.
import assert from "node:assert/strict";
import test from "node:test";

import { connect, fold, parser, retryDelay, resultBody } from "./abide.js";
import { withCredential } from "./credential.js";

const PATH = "/v1/conversations/c";
const EMPTY = { state: "idle", last_seq: 0, pending: [], in_flight: [], streaming_message: null };

const frame = (name, data, id) =>
  `event: ${name}\ndata: ${JSON.stringify(data)}\n${id === undefined ? "" : `id: ${id}\n`}\n`;
const call = (call_id, more) =>
  ({ call_id, tool: "locate", kind: "client_exec", args: { n: 1 }, suspension: 1, ...more });
const json = (status, body) => new Response(JSON.stringify(body), { status });

/** Waits for a fact, for at most 5 s. */
async function until(what, is) {
  for (const end = Date.now() + 5_000; Date.now() < end; ) {
    if (await is()) return;
    await new Promise((done) => setTimeout(done, 2));
  }
  assert.fail(`waited in vain for ${what}`);
}

/** Nodes that a page asks: streams that the test feeds, and answers that it gives. */
function nodes(snapshot = EMPTY) {
  const it = { asked: [], opened: [], streams: [], messages: [], snapshot };
  it.answer = () => json(200, {});
  it.fetch = async (url, { method = "GET", body, headers, signal } = {}) => {
    const path = url.replace(/^https?:\/\/[^/]+/, "");
    if (path.startsWith(`${PATH}/events`)) {
      it.opened.push(url);
      const stream = new ReadableStream({ start: (feed) => it.streams.push(feed) });
      signal.addEventListener("abort", () => it.end(it.streams.length - 1, signal.reason));
      it.say(frame("snapshot", it.snapshot));
      return new Response(stream);
    }
    const { messages } = it;
    if (method === "GET" && path === `${PATH}/messages`) return json(200, { messages });
    if (method === "GET" && path === PATH) return json(200, it.snapshot);
    it.asked.push({ url, path, body: body && JSON.parse(body), key: headers["idempotency-key"] });
    return it.answer(it.asked.at(-1), it.asked.length);
  };
  it.say = (...texts) =>
    texts.forEach((text) => it.streams.at(-1).enqueue(new TextEncoder().encode(text)));
  it.end = (place, error = new TypeError("network error")) => {
    try {
      it.streams[place].error(error);
    } catch {
      // It had ended before.
    }
  };
  it.connect = (options) =>
    connect({ url: "http://a", conversation: "c", fetch: it.fetch, ...options });
  return it;
}

/** Connects a page, runs a test on it, and closes it. */
async function connected(it, options, run) {
  const page = it.connect(options);
  const received = [];
  for (const name of ["turn_started", "text_delta", "tool_call_resolved", "tool_ui", "error"]) {
    page.on(name, (data, id) => received.push([name, data, id]));
  }
  try {
    await until("a stream", () => page.state.connected);
    await run(page, received);
  } finally {
    page.close();
  }
}

const names = (received) => received.map(([name]) => name);
const answers = (it) => it.asked.filter(({ path }) => path.endsWith("/resolution"));

test("a stream that is cut at any byte has the same frames", () => {
  const text = `: alive\n\n${frame("text_delta", { text: "grüß 🦀" }, 7)}`
    + "event: x\r\ndata: 1\rdata:2\r\n\r\nid\ndata\n\n";
  const bytes = new TextEncoder().encode(text);
  const expected = [
    { name: "text_delta", id: "7", data: JSON.stringify({ text: "grüß 🦀" }) },
    { name: "x", id: undefined, data: "1\n2" },
    { name: "", id: "", data: "" },
  ];
  for (let first = 0; first <= bytes.length; first += 1) {
    for (const second of [first, first + 1, first + 5, bytes.length]) {
      const read = [];
      const push = parser((frame) => read.push(frame));
      push(bytes.subarray(0, first));
      push(bytes.subarray(first, second));
      push(bytes.subarray(second));
      assert.deepEqual(read, expected, `${first} ${second}`);
    }
  }
});

test("every url is tried once before the delay grows, up to its maximum", () => {
  for (let tries = 0; tries < 2_000; tries += 1) {
    const [least, most] = [retryDelay(tries, 3, 0), retryDelay(tries, 3, 1)];
    assert.equal(most, Math.min(100 * 2 ** Math.floor(tries / 3), 10_000));
    assert.equal(least, most / 2);
  }
});

test("a frame is delivered once although the stream breaks at any place", async () => {
  const it = nodes();
  const all = [
    frame("turn_started", { turn_id: "t" }, 3),
    frame("tool_call_resolved", { call_id: "x", result: { ok: true } }),
    frame("tool_ui", { call_id: "x", kind: "card", payload: 1 }, 6),
  ];
  for (let cut = 0; cut <= all.length; cut += 1) {
    Object.assign(it, nodes());
    await connected(it, { urls: ["http://a", "http://b/"] }, async (page, received) => {
      it.say(...all.slice(0, cut));
      await until("the frames", () => received.length >= [0, 1, 1, 3][cut]);
      it.snapshot = { ...EMPTY, last_seq: 6 };
      it.end(0);
      await until("another stream", () => it.streams.length === 2);
      // A proxy may repeat a frame.
      it.say(...all.slice([0, 1, 1, 3][cut]), ...all.slice(1));
      it.say(frame("turn_started", { turn_id: "u" }, 7));
      await until("the end", () => received.at(-1)?.[2] === 7);
      assert.deepEqual(names(received),
        ["turn_started", "tool_call_resolved", "tool_ui", "turn_started"], cut);
      assert.deepEqual(it.opened, [`http://a${PATH}/events`,
        `http://b${PATH}/events?after=${[0, 3, 3, 6][cut]}`]);
    });
  }
});

test("a conversation that was deleted and created again is followed from its beginning", async () => {
  const it = nodes({ ...EMPTY, last_seq: 6, created_at: "2026-01-01T00:00:00Z" });
  await connected(it, {}, async (page, received) => {
    it.snapshot = { ...EMPTY, last_seq: 1, created_at: "2026-01-02T00:00:00Z" };
    it.end(0);
    await until("another stream", () => it.streams.length === 2);
    it.say(frame("turn_started", { turn_id: "new" }, 2));
    await until("its first frame", () => received.length === 1);
  });
});

test("a delta is delivered once, and none that the snapshot or the message has", async () => {
  const streaming_message = { id: "m", text: "One ", thinking: "", delta_seq: 2 };
  const it = nodes({ ...EMPTY, streaming_message });
  const delta = (message_id, delta_seq, text) =>
    frame("text_delta", { message_id, delta_seq, text });
  await connected(it, {}, async (page, received) => {
    const two = delta("m", 3, "two ");
    it.say(delta("m", 2, "One "), two, two, delta("m", 4, "three"));
    await until("the last", () => received.length === 2);
    assert.equal(page.state.streaming.text, "One two three");
    const message = { id: "m", role: "assistant", content: [] };
    it.say(frame("message_completed", { turn_id: "t", message }, 4), delta("m", 5, "late"));
    it.say(delta("n", 1, "New"));
    await until("the next", () => received.length === 3);
    assert.equal(page.state.streaming.text, "New");
    assert.deepEqual(page.state.messages, [message]);
  });
});

test("frames from before the snapshot are delivered and do not turn the state back", async () => {
  const it = nodes({ ...EMPTY, last_seq: 9 });
  const ran = [];
  await connected(it, { after: 0 }, async (page, received) => {
    page.tool("locate", () => ran.push(1));
    it.say(frame("turn_started", { turn_id: "t" }, 3), frame("suspended", call("x"), 5));
    it.say(frame("turn_started", { turn_id: "u" }, 10));
    await until("the last", () => received.length === 2);
    assert.deepEqual([page.state.pending, ran, page.state.turn], [[], [], { id: "u" }]);
  });
});

test("a message, an answer and a cancel are repeated as the same request", async () => {
  const it = nodes();
  it.answer = (_, count) => {
    if (count % 3 === 1) throw new TypeError("network error");
    return count % 3 === 2 ? json(503, { type: "/problems/unavailable" }) : json(200, { count });
  };
  await connected(it, { urls: ["http://a", "http://b"], agent: "demo" }, async (page) => {
    assert.deepEqual(await page.send("hi", { if_busy: "queue" }), { count: 3 });
    assert.deepEqual(await page.resolve("x", { approved: true }), { count: 6 });
    assert.deepEqual(await page.cancel(), { count: 9 });
    for (const tries of [it.asked.slice(0, 3), it.asked.slice(3, 6), it.asked.slice(6)]) {
      const requests = tries.map(({ body, key, path }) => JSON.stringify([body, key, path]));
      assert.equal(new Set(requests).size, 1);
      const hosts = tries.map(({ url }) => new URL(url).host);
      assert.deepEqual(hosts, ["a", "b", "a"]);
    }
    const { text, agent, if_busy, message_id } = it.asked[0].body;
    assert.deepEqual([text, agent, if_busy], ["hi", "demo", "queue"]);
    assert.match(message_id, /^[0-9a-f]{32}$/);
    assert.ok(it.asked[3].key && it.asked[6].key && it.asked[3].key !== it.asked[6].key);
  });
});

test("a refusal is an error with its type, and a second answer is stale", async () => {
  const it = nodes();
  it.answer = ({ path }) => {
    const name = path.endsWith("resolution") ? "call-not-open" : "turn-in-flight";
    return json(409, { type: `/problems/${name}`, detail: "no" });
  };
  it.snapshot = { ...EMPTY, pending: [call("x", { suspension: 2 })] };
  await connected(it, {}, async (page) => {
    await assert.rejects(page.send("hi"), { type: "turn-in-flight", status: 409, message: "no" });
    assert.deepEqual(await page.resolve("x", { result: 1 }), { status: "stale" });
    // The answer is to what the person saw.
    assert.deepEqual(it.asked[1].body, { suspension: 2, result: 1 });
  });
});

test("a call that is pending in the first snapshot is executed, once", async () => {
  const it = nodes({ ...EMPTY, pending: [call("x"), call("y", { tool: "elsewhere" }),
    call("z", { kind: "approval" })] });
  const ran = [];
  await connected(it, {}, async (page, received) => {
    page.tool("locate", (args, { call_id }) => ran.push([args, call_id]) && { lat: 1 });
    await until("the answer", () => answers(it).length === 1);
    it.end(0);
    await until("another stream", () => it.streams.length === 2);
    it.say(frame("turn_started", { turn_id: "t" }, 3));
    await until("the frame", () => received.length === 1);
    assert.deepEqual(ran, [[{ n: 1 }, "x"]]);
    assert.deepEqual(answers(it).map(({ path, body }) => [path, body]),
      [[`${PATH}/calls/x/resolution`, { result: { lat: 1 }, suspension: 1 }]]);
  });
});

test("a child's call is executed and answered in the child's conversation", async () => {
  const child = (id, more) => call(id, { conversation_id: "k/1", agent: "kid", ...more });
  const it = nodes({ ...EMPTY, child_pending: [child("x"), child("a", { kind: "approval" })] });
  const own = it.fetch;
  const open = [child("x"), child("y")];
  it.fetch = (url, init) =>
    url.endsWith("/v1/conversations/k%2F1") ? json(200, { pending: open }) : own(url, init);
  const ran = [];
  await connected(it, {}, async (page) => {
    page.tool("locate", (_, { call_id, conversation_id }) => ran.push([conversation_id, call_id]));
    await until("the answer", () => answers(it).length === 1);
    it.say(frame("child_call_closed", { conversation_id: "k/1", call_id: "x", suspension: 1 }));
    it.say(frame("child_suspended", child("y")));
    await until("another answer", () => answers(it).length === 2);
    // The same call of another conversation stays.
    it.say(frame("child_call_closed", { conversation_id: "k/2", call_id: "y", suspension: 1 }));
    await page.resolve(page.state.child_pending[0], { approved: true });
    assert.deepEqual(page.state.child_pending.map(({ call_id }) => call_id), ["a", "y"]);
  });
  assert.deepEqual(ran, [["k/1", "x"], ["k/1", "y"]]);
  assert.deepEqual(answers(it).map(({ path }) => path), ["x", "y", "a"]
    .map((id) => `/v1/conversations/k%2F1/calls/${id}/resolution`));
  assert.deepEqual(answers(it)[2].body, { suspension: 1, approved: true });
});

test("a result that cannot be sent becomes an error that says why", async () => {
  const circle = {};
  circle.circle = circle;
  const results = {
    throws: [() => { throw new Error("no position"); }, "no position"],
    "throws long": [() => { throw new Error("x".repeat(1e7)); }, "x".repeat(2_000)],
    "throws nothing": [() => Promise.reject(), "undefined"],
    "is a function": [() => () => 1, "the page's result is not JSON"],
    "is a bigint": [() => 1n, /^the page's result is not JSON: .*BigInt/],
    "is a circle": [() => circle, /^the page's result is not JSON: /],
    "is large": [() => "ü".repeat(5e6),
      "the page's result has 10000028 bytes, more than 1048576"],
  };
  for (const [what, [fn, expected]] of Object.entries(results)) {
    const it = nodes({ ...EMPTY, pending: [call("x")] });
    await connected(it, {}, async (page) => {
      page.tool("locate", fn);
      await until("the answer", () => answers(it).length === 1);
      const { error, suspension } = answers(it)[0].body;
      assert.equal(suspension, 1);
      if (expected instanceof RegExp) assert.match(error, expected, what);
      else assert.equal(error, expected, what);
    });
  }
  assert.equal(resultBody(undefined, 2), '{"result":null,"suspension":2}');
});

test("a result that the node refuses becomes an error", async () => {
  for (const status of [400, 413, 422]) {
    const it = nodes({ ...EMPTY, pending: [call("x")] });
    it.answer = ({ body }) => (body.error ? json(200, {}) : json(status, { detail: "is no city" }));
    await connected(it, {}, async (page) => {
      page.tool("locate", () => "\ud800");
      await until("the error", () => answers(it).length === 2);
      assert.equal(answers(it)[1].body.error, "the page's result was refused: is no city");
      assert.notEqual(answers(it)[0].key, answers(it)[1].key);
    });
  }
});

test("a call that is no longer open is aborted, and not answered", async () => {
  const it = nodes({ ...EMPTY, pending: [call("x")] });
  let signal;
  await connected(it, {}, async (page) => {
    page.tool("locate", (_, call) => ((signal = call.signal), new Promise(() => {})));
    await until("the run", () => signal);
    const result = { ok: false, error: "timed out" };
    it.say(frame("tool_call_errored", { call_id: "x", result }, 8));
    await until("the signal", () => signal.aborted);
  });
  assert.deepEqual(answers(it), []);
});

test("a call that another page has answered meanwhile is not executed", async () => {
  const it = nodes();
  let ran = 0;
  await connected(it, {}, async (page, received) => {
    page.tool("locate", () => (ran += 1));
    it.say(frame("suspended", call("x"), 5));
    await until("the call", () => page.state.pending.length === 1);
    it.say(frame("turn_started", {}, 6));
    await until("the frame", () => received.length === 1);
  });
  assert.equal(ran, 0);
});

test("a conversation that does not exist is created, if there is an agent for it", async () => {
  const it = nodes();
  const open = it.fetch;
  it.fetch = (url, init) =>
    url.includes("/events") && it.asked.length === 0 ? json(404, {}) : open(url, init);
  await connected(it, { agent: "demo", create: { tools: [{ name: "locate" }] } }, async () => {
    const { path, body } = it.asked[0];
    assert.deepEqual([path, body],
      ["/v1/conversations", { id: "c", agent: "demo", tools: [{ name: "locate" }] }]);
  });
  const without = nodes();
  without.fetch = async () => json(404, { detail: "there is no such conversation" });
  const page = without.connect();
  const errors = [];
  page.on("error", (error) => errors.push(error.message));
  await until("the end", () => page.closed);
  assert.deepEqual(errors, ["there is no such conversation"]);
});

test("messages that came while the list was read stay below it", async () => {
  const it = nodes();
  const message = (id) => ({ id, role: "user", content: [] });
  it.messages = [message("1"), message("2")];
  await connected(it, {}, async (page) => {
    const listed = () => page.state.messages.map(({ id }) => id).join();
    await until("the list", () => listed() === "1,2");
    it.messages = [message("2"), message("3")];
    it.say(frame("turn_started", { turn_id: "t" }, 3));
    it.say(frame("message_completed", { turn_id: "t", message: message("4") }, 4));
    await until("all", () => listed() === "1,2,3,4");
  });
});

test("a turn that ends leaves nothing open", () => {
  const state = { ...EMPTY, messages: [], streaming: { id: "m" } };
  const open = fold(fold(state, "suspended", call("x")), "tool_call_started",
    { call_id: "y", executor: "server" });
  assert.deepEqual([open.pending.length, open.in_flight.length], [1, 1]);
  for (const how of ["completed", "cancelled", "halted", "failed"]) {
    const over = fold(open, `turn_${how}`, {});
    const { pending, in_flight, turn, streaming } = over;
    assert.deepEqual([pending, in_flight, turn, streaming], [[], [], null, null]);
  }
  assert.equal(fold(open, "constructor", {}), open);
  assert.equal(fold(open, "turn_postponed", {}), open);
});

test("a credential is kept until it is about to expire", async () => {
  const asked = [];
  const expires_at = () => new Date(Date.now() + (asked.length === 1 ? 100 : 3_600_000)).toISOString();
  const token = () => ({ token: `t${asked.push(0)}`, expires_at: expires_at() });
  const sent = [];
  const fetch = withCredential(async (_, { headers }) => sent.push(headers.authorization) && { status: 200 }, token);
  await Promise.all([fetch("a"), fetch("b", { headers: { accept: "x" } })]);
  assert.deepEqual(sent, ["Bearer t1", "Bearer t1"]);
  await new Promise((resolve) => setTimeout(resolve, 60));
  await fetch("c");
  await fetch("d");
  assert.deepEqual(sent.slice(2), ["Bearer t2", "Bearer t2"]);
});

test("a credential that a node refuses is asked for again, once for all requests", async () => {
  let asked = 0;
  const fetch = withCredential(
    async (_, { headers }) => ({ status: headers.authorization === "Bearer t2" ? 200 : 401 }),
    async () => `t${(asked += 1)}`,
  );
  const statuses = (await Promise.all([fetch("a"), fetch("b"), fetch("c")])).map(({ status }) => status);
  assert.deepEqual([statuses, asked], [[200, 200, 200], 2]);
  const refused = withCredential(async () => ({ status: 401 }), () => "t");
  assert.equal((await refused("a")).status, 401);
});

test("a credential that cannot be had is asked for again by the next request", async () => {
  let asked = 0;
  const token = async () => {
    asked += 1;
    if (asked <= 2) throw new Error("away");
    return "t";
  };
  const fetch = withCredential(async () => ({ status: 200 }), token);
  await assert.rejects(fetch("a"), /away/);
  assert.equal((await fetch("b")).status, 200);
});

test("a user's message is shown when it is sent, and stands where its turn begins", async () => {
  const it = nodes();
  await connected(it, {}, async (page) => {
    const user = (id) => ({ id, role: "user", content: [], client_id: `own_${id}` });
    it.say(frame("user_message", { turn_id: "t", message: user("q1") }, 1));
    it.say(frame("turn_started", { turn_id: "t" }, 2));
    it.say(frame("user_message", { turn_id: "u", message: user("q2") }, 3));
    const answer = { id: "a1", role: "assistant", content: [] };
    it.say(frame("message_completed", { turn_id: "t", message: answer }, 4));
    const shown = () => page.state.messages.map(({ id }) => id).join();
    await until("the queued message before the answer", () => shown() === "q1,q2,a1");
    it.say(frame("turn_started", { turn_id: "u" }, 5));
    await until("the queued message after it", () => shown() === "q1,a1,q2");
    assert.equal(page.state.messages[2].client_id, "own_q2");
  });
});

test("a turn that is withdrawn takes its message along", async () => {
  const it = nodes();
  await connected(it, {}, async (page) => {
    const user = (id) => ({ id, role: "user", content: [] });
    it.say(frame("user_message", { turn_id: "t", message: user("q1") }, 1));
    it.say(frame("turn_started", { turn_id: "t" }, 2));
    it.say(frame("user_message", { turn_id: "u", message: user("q2") }, 3));
    it.say(frame("turn_withdrawn", { turn_id: "u", by: "ada" }, 4));
    await until("the message to go", () => page.state.messages.map(({ id }) => id).join() === "q1");
    assert.equal(page.state.turn.id, "t");
    it.answer = () => new Response(null, { status: 204 });
    assert.equal(await page.withdraw("u/1"), undefined);
    assert.equal(it.asked.at(-1).path, `${PATH}/queue/u%2F1`);
  });
});

test("after a rewind the messages are those of the branch that counts", async () => {
  const it = nodes();
  const message = (id, seq) => ({ id, seq, role: "user", turn_id: id, content: [] });
  it.messages = [message("a", 2), message("b", 5)];
  await connected(it, {}, async (page) => {
    const shown = () => page.state.messages.map(({ id }) => id).join();
    await until("the messages", () => shown() === "a,b");
    it.messages = [message("a", 2)];
    const todos = [{ content: "Ask.", status: "pending" }];
    it.say(frame("rewound", { to_seq: 4, by: "ada", todos }, 9));
    await until("the messages before it", () => shown() === "a");
    assert.deepEqual(page.state.todos, todos);
    it.answer = () => json(202, { turn_id: "t2" });
    assert.deepEqual(await page.regenerate(), { turn_id: "t2" });
    assert.deepEqual(it.asked.at(-1).body, {});
    await page.rewind(2);
    assert.deepEqual([it.asked.at(-1).path, it.asked.at(-1).body], [`${PATH}/rewind`, { to_seq: 2 }]);
  });
});
