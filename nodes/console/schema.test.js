import assert from "node:assert/strict";
import { test } from "node:test";

import { decisionBody } from "./answer-card.js";
import { InvalidJson, initial, invalid, misplaced, plan } from "./schema.js";

const kind = (schema) => plan(schema).kind;

test("what people answer has fields, and everything else has the JSON editor", () => {
  const cases = [
    [{ type: "string", enum: ["window", "aisle"] }, "choice"], [{ enum: [1, 2] }, "choice"], [{ const: "a" }, "choice"],
    [{ oneOf: [{ const: "a", title: "A" }] }, "choice"], [{ type: ["string", "null"] }, "text"], [{ type: "integer" }, "number"],
    [{ type: "boolean" }, "boolean"], [{ type: "array", items: { enum: ["a"] } }, "choices"],
    [{ type: "object", properties: { a: { type: "string" } } }, "object"],
    [true, "json"], [{}, "json"], [undefined, "json"], [{ type: "object" }, "json"], [{ type: "array", items: { type: "object" } }, "json"],
    [{ type: "string", allOf: [{}] }, "json"], [{ $ref: "#/x" }, "json"], [{ type: ["string", "number"] }, "json"], [{ enum: [{}] }, "json"], [{ enum: "no" }, "json"],
  ];
  for (const [schema, expected] of cases) assert.equal(kind(schema), expected, JSON.stringify(schema));
});

test("formats and bounds become those of fields", () => {
  assert.equal(plan({ type: "string", format: "date" }).input, "date");
  assert.equal(plan({ type: "string", format: "email" }).input, "email");
  assert.equal(plan({ type: "string", format: "odd" }).input, "text");
  assert.equal(plan({ type: "string", maxLength: 5_000 }).isLong, true);
  assert.deepEqual({ ...plan({ type: "integer", minimum: 1, maximum: 9 }) }, { title: undefined, description: undefined, kind: "number", step: 1, min: 1, max: 9 });
});

test("deep and wide objects end in the JSON editor", () => {
  const nest = (depth) => (depth === 0 ? { type: "string" } : { type: "object", properties: { a: nest(depth - 1) } });
  assert.equal(plan(nest(3)).members[0].members[0].kind, "json");
  const wide = { type: "object", properties: Object.fromEntries(Array.from({ length: 41 }, (_, n) => [n, { type: "string" }])) };
  assert.equal(kind(wide), "json");
});

test("a form begins with the schema's defaults", () => {
  const schema = { type: "object", properties: { a: { type: "string", default: "x" }, b: { type: "number" } } };
  assert.deepEqual(initial(schema), { a: "x" });
  assert.equal(initial({ type: "string" }), undefined);
  assert.deepEqual(initial({ type: "object", properties: { a: schema, b: { type: "object", properties: { c: {} } } } }), { a: { a: "x" } });
});

test("a refusal of the node is placed at its field", () => {
  assert.deepEqual(misplaced('result: seat: value is not one of "a: b"', "result"), { path: ["seat"], message: 'value is not one of "a: b"' });
  assert.deepEqual(misplaced("args.to: is missing", "args"), { path: ["to"], message: "is missing" });
  assert.deepEqual(misplaced("args: a/b: no", "args"), { path: ["a", "b"], message: "no" });
  assert.deepEqual(misplaced("result: wrong", "result"), { path: [], message: "wrong" });
  assert.equal(misplaced("remember.for: must be a duration", "args"), undefined);
});

test("a text that is no JSON is never sent", () => {
  const value = { a: [1, new InvalidJson("{", "It is not JSON")] };
  assert.deepEqual(invalid(value), { path: ["a", "1"], message: "It is not JSON" });
  assert.equal(invalid({ a: null }), undefined);
  const item = { suspension: 1 };
  assert.throws(() => decisionBody(item, { args: value }, true), { message: "It is not JSON" });
  assert.deepEqual(decisionBody(item, { args: value, reason: "no" }, false), { approved: false, suspension: 1, reason: "no" });
  assert.deepEqual(decisionBody(item, { remember: true, match: "tool" }, true), { approved: true, suspension: 1, remember: { scope: "conversation", match: "tool", for: "24h" } });
});
