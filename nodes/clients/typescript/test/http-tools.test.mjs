// The helper that serves HTTP tools.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import test from "node:test";

import { HttpTools, Rejection, Reply, SignatureError, verify } from "../client/src/http-tools.js";

const SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const OTHER = `whsec_${Buffer.from("another secret of some length").toString("base64")}`;

function signed(body, { secret = SECRET, id = "c/k/turn_1", at = Date.now() / 1_000 } = {}) {
  const stamp = String(Math.floor(at));
  const key = Buffer.from(secret.slice("whsec_".length), "base64");
  const mac = createHmac("sha256", key).update(`${id}.${stamp}.${body}`).digest("base64");
  return {
    "idempotency-key": id,
    "webhook-id": id,
    "webhook-timestamp": stamp,
    "webhook-signature": `v1,${mac}`,
  };
}

const call = (tool = "price", members = {}) =>
  JSON.stringify({ conversation_id: "c", turn_id: "turn_1", call_id: "k", attempt: 1, tool, args: {}, ...members });
const bytes = (text) => new TextEncoder().encode(text);

function tools() {
  const runs = [];
  const it = new HttpTools({ secrets: [SECRET] })
    .tool("price", (args, request) => {
      runs.push(request);
      return { ok: false };
    })
    .tool("refuse", () => {
      throw new Rejection("sold out", { errorType: "VALIDATION_ERROR", halt: "no use" });
    })
    .tool("count", async function* () {
      yield 1;
      return 2;
    })
    .tool("show", async () => new Reply(1, { ui: { kind: "map", payload: 2 } }));
  const ask = async (body, headers = signed(body), method = "POST") => {
    const request = new Request("http://tools/", { method, headers, body: method === "POST" ? body : undefined });
    const response = await it.fetch(request);
    return [response.status, await response.json()];
  };
  return { it, runs, ask };
}

test("a signature of any known secret is good and no other", async () => {
  const body = call();
  await verify(signed(body), bytes(body), [OTHER, SECRET]);
  const good = signed(body);
  await verify({ ...good, "webhook-signature": `v1,AAAA v2,x v1,%% ${good["webhook-signature"]}` }, bytes(body), [SECRET]);
  const now = Date.now() / 1_000;
  for (const [headers, text] of [
    [signed(body), `${body} `],
    [signed(body, { secret: OTHER }), body],
    [{ ...signed(body), "webhook-id": "c/other" }, body],
    [signed(body, { at: now - 301 }), body],
    [signed(body, { at: now + 302 }), body],
    [{ ...signed(body), "webhook-timestamp": "1e9" }, body],
    [{ ...signed(body), "webhook-signature": "" }, body],
    [{}, body],
  ]) {
    await assert.rejects(verify(headers, bytes(text), [SECRET]), SignatureError);
  }
  assert.throws(() => new HttpTools({ secrets: [] }), /secrets: /);
  await assert.rejects(verify(signed(body), bytes(body), ["whsec_not base64!"]), /secrets: /);
});

test("a result is an envelope also if it looks like one, and a rejection is told", async () => {
  const { ask } = tools();
  assert.deepEqual(await ask(call()), [200, { ok: true, result: { ok: false } }]);
  const show = call("show");
  const shown = { ok: true, result: 1, ui: { kind: "map", payload: 2 } };
  assert.deepEqual(await ask(show, signed(show, { id: "s" })), [200, shown]);
  const refuse = call("refuse");
  const [status, { error, error_type, halt }] = await ask(refuse, signed(refuse, { id: "r" }));
  assert.deepEqual([status, error, error_type, halt], [200, "sold out", "VALIDATION_ERROR", "no use"]);
});

test("requests that are no call run nothing", async () => {
  const { ask, runs } = tools();
  for (const [body, status] of [["{", 400], ["[]", 400], ["null", 400], ['{"tool": 1}', 400], [call("no"), 404]]) {
    assert.equal((await ask(body))[0], status, body);
  }
  assert.equal((await ask(call(), {}))[0], 401);
  assert.equal((await ask("", {}, "GET"))[0], 405);
  assert.equal((await ask("x".repeat(5 << 20), {}))[0], 413);
  assert.equal(runs.length, 0);
});

test("several attempts of a call run once, and the memory of results is bounded", async () => {
  const { ask, runs } = tools();
  const second = call("price", { attempt: 2 });
  await Promise.all([ask(call()), ask(second, signed(second))]);
  assert.equal(runs.length, 1, "whichever attempt is checked first runs for both");
  for (let number = 0; number < 1_100; number += 1) await ask(call(), signed(call(), { id: String(number) }));
  await ask(call());
  assert.equal(runs.length, 1_102, "the oldest was forgotten");
});

test("progress is lines of NDJSON, and a call that is stopped ends its tool and runs again", async () => {
  const ended = [];
  const it = new HttpTools({ secrets: null }).tool("slow", async function* (args, request) {
    try {
      yield { percent: 50 };
      if (args.fail) throw new Rejection("no");
      yield { percent: 99 };
      return "done";
    } finally {
      ended.push(request.attempt);
    }
  });
  const ask = (members) => it.fetch(new Request("http://tools/", { method: "POST", body: call("slow", members) }));
  const response = await ask({});
  assert.equal(response.headers.get("content-type"), "application/x-ndjson");
  const told = (await response.text()).trim().split("\n").map((line) => JSON.parse(line));
  assert.deepEqual(told, [{ progress: { percent: 50 } }, { progress: { percent: 99 } }, { ok: true, result: "done" }]);
  assert.deepEqual(await (await ask({ attempt: 2 })).json(), { ok: true, result: "done" });
  assert.match(await (await ask({ call_id: "f", args: { fail: true } })).text(), /"error":"no"/);
  const reader = (await ask({ call_id: "s" })).body.getReader();
  await reader.read();
  await reader.cancel();
  assert.equal(ended.length, 3);
  assert.match(await (await ask({ call_id: "s", attempt: 2 })).text(), /"result":"done"/);
  // An attempt that waits for one that is stopped runs itself.
  const first = (await ask({ call_id: "w" })).body.getReader();
  await first.read();
  const second = ask({ call_id: "w", attempt: 2 });
  for (let turn = 0; turn < 50; turn += 1) await new Promise(setImmediate);
  await first.cancel();
  assert.match(await (await second).text(), /"result":"done"/);
});

test("a server of node answers", async () => {
  const { it } = tools();
  const server = createServer(it.listener).listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${server.address().port}/price`;
  const body = call();
  const response = await fetch(url, { method: "POST", headers: signed(body), body });
  assert.deepEqual(await response.json(), { ok: true, result: { ok: false } });
  assert.equal((await fetch(url)).status, 405);
  const count = call("count");
  const counted = await fetch(url, { method: "POST", headers: signed(count, { id: "n" }), body: count });
  assert.equal(await counted.text(), '{"progress":1}\n{"ok":true,"result":2}\n');
  server.close();
  server.closeAllConnections();
});
