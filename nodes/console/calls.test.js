import assert from "node:assert/strict";
import { test } from "node:test";

import { shareOf, summary } from "./call-card.js";
import { answerOf, empty, take } from "./calls.js";
import { parse } from "./router.js";
import { skewOf } from "./session.js";
import { challengeOf } from "./sign-in.js";
import { barsOf } from "./views/why/timeline.js";
import { verbOf } from "./views/why.js";

const at = (second) => new Date(second * 1_000).toISOString();
let seq = 0;
const event = (second, type, data) => ({ seq: (seq += 1), at: at(second), type, turn_id: "t", data });
const story = [
  event(0, "turn_started", { agent: "a", revision: "r" }),
  event(1, "assistant_msg", { step: 1, status: "complete" }),
  event(1, "tool_call", { call_id: "c", tool: "pay", args: {}, executor: "server", started: false, gate: { decision: "ask", rule: "approval: when" } }),
  event(1, "suspension", { call_id: "c", kind: "approval", suspension: 1, expires_at: at(99) }),
  event(5, "resolution", { call_id: "c", kind: "approval", suspension: 1, by: "ada", approved: true, reason: "ok", args: { n: 1 } }),
  event(5, "tool_started", { call_id: "c", tool: "pay", executor: "server", attempt: 1 }),
  event(9, "tool_started", { call_id: "c", tool: "pay", executor: "server", attempt: 2 }),
  event(11, "tool_result", { call_id: "c", ok: true, result: 1 }),
  event(12, "turn_ended", { outcome: "completed" }),
];

test("a call's history tells the gate, the answer, each attempt and what ended it", () => {
  const call = take(empty(), story).calls.get("c");
  assert.deepEqual(call.steps.map(({ label }) => label), ["when", "asked for approval", "approved by ada", "attempt 1", "interrupted", "attempt 2", "result"]);
  assert.deepEqual([call.ok, call.attempts, call.edited_args], [true, 2, { n: 1 }]);
});

test("events that come twice, and unknown ones, change nothing", () => {
  const once = take(empty(), story);
  const twice = take(once, [...story, { seq: 0, type: "new_thing", at: at(1), data: { call_id: "c" } }]);
  assert.equal(twice.calls.get("c").steps.length, 7);
  const odd = take(twice, [{ seq: 900, type: "new_thing", at: at(1), turn_id: "t", data: { call_id: "c" } }]);
  assert.equal(odd.calls.get("c").steps.length, 7);
});

test("the bars of a call show where it waited and where it ran", () => {
  const bars = barsOf(take(empty(), story).calls.get("c"), 0).filter((bar) => !bar.isMark);
  assert.deepEqual(bars.map((bar) => [bar.tone, (bar.to - bar.from) / 1_000]), [["wait", 4], ["run", 4], ["run", 2]]);
});

test("who was quicker is told by the journal", () => {
  assert.equal(answerOf(story, "c", 1).label, "approved by ada");
  assert.equal(answerOf(story, "c", 2), undefined);
  const expired = [{ type: "resolution", at: at(1), data: { call_id: "x", kind: "approval", by: "system", approved: false } }];
  assert.equal(answerOf(expired, "x").label, "nobody answered in time");
  const ended = [{ type: "tool_result", at: at(1), data: { call_id: "y", ok: false, error_type: "EXPIRED" } }];
  assert.equal(answerOf(ended, "y").label, "nobody answered in time");
});

test("progress reports of several forms have a share", () => {
  assert.deepEqual([{ progress: 1, total: 4 }, { percent: 60 }, { fraction: 0.5 }, { done: 250 }, "half", null, { progress: "x" }].map(shareOf), [0.25, 0.6, 0.5, 1, undefined, undefined, undefined]);
  assert.equal(summary({ a: "x", b: { c: 1 }, d: null }), "x");
});

test("a clock that is wrong is corrected by the server's, and a right one is left alone", () => {
  assert.equal(skewOf("Thu, 01 Jan 1970 01:00:00 GMT", 0, 10), 3_600_495);
  assert.equal(skewOf("Thu, 01 Jan 1970 00:00:01 GMT", 0, 10), 0);
  assert.equal(skewOf("nonsense", 0, 10), 0);
});

test("addresses that cannot be read lead home, and verbs come from the node's requests", () => {
  assert.equal(parse("#/c/%zz").view, "");
  assert.equal(parse("#/c/a%2Fb?x=1").id, "a/b");
  assert.deepEqual(verbOf("POST /admin/actors/acme%2Fc/calls/call_1~2/fail"), { call: "call_1~2", verb: "fail", isAdvised: true });
  assert.deepEqual(verbOf("POST /admin/actors/c/cancel"), { call: undefined, verb: "cancel", isAdvised: true });
  assert.equal(verbOf("GET /admin/actors/c"), null);
});

test("the challenge is that of RFC 7636", async () => {
  assert.equal(await challengeOf("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
});
