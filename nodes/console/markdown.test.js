import assert from "node:assert/strict";
import { test } from "node:test";

import { lexer } from "./lexer.js";
import { markdown, safeLink } from "./markdown.js";
import { ago, bytes, clip, duration, visible } from "./text.js";

/** The text of vnodes, and the elements in them. */
function drawn(node, elements = []) {
  if (node === null || node === undefined || typeof node === "boolean") return { text: "", elements };
  if (typeof node !== "object") return { text: String(node), elements };
  if (Array.isArray(node)) return { text: node.map((it) => drawn(it, elements).text).join(""), elements };
  elements.push(node);
  return { text: drawn(node.props.children, elements).text, elements };
}

const types = (text) => drawn(markdown(text)).elements.map(({ type }) => type);

test("markup in a text is seen as text", () => {
  for (const text of ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "a <b onclick=x>b</b>", "<!-- c -->", "<style>*{}</style>"]) {
    const { text: seen, elements } = drawn(markdown(text));
    assert.equal(seen, text);
    assert.ok(elements.every(({ type }) => ["p", "span"].includes(type)), text);
  }
});

test("a link leads to the web or nowhere", () => {
  for (const href of ["javascript:alert(1)", "JaVaScRiPt:x", "data:text/html,x", "vbscript:x", "//x", "file:///etc"]) {
    assert.equal(safeLink(href), undefined, href);
    assert.ok(!types(`[a](${href})`).includes("a"), href);
  }
  assert.equal(safeLink("https://a.example/?b=c"), "https://a.example/?b=c");
  const { elements } = drawn(markdown("![i](https://a.example/i.png) <https://b.example>"));
  assert.deepEqual(elements.filter(({ type }) => type === "a").map(({ props }) => props.rel), ["noopener noreferrer", "noopener noreferrer"]);
  assert.ok(!elements.some(({ type }) => type === "img"));
});

test("lists, code, tables and quotes are drawn as such", () => {
  const seen = types("# h\n\n- a\n- [x] b\n\n1. c\n\n```js\n<i>\n```\n\n> q\n\n|a|b|\n|-|-|\n|1|**2**|");
  for (const type of ["ul", "ol", "li", "pre", "blockquote", "table", "th", "td", "strong"]) assert.ok(seen.includes(type), type);
});

test("a text without end or with depth without end is drawn in bounds", () => {
  assert.equal(types("x".repeat(300_000))[0], "pre");
  assert.ok(drawn(markdown(`${">".repeat(500)} deep`)).elements.length < 100);
  assert.equal(types("*".repeat(20_000)).length, 1);
});

test("hidden characters are seen", () => {
  assert.equal(drawn(visible("a\u202eb\u200b")).text, "aU+202EbU+200B");
  assert.equal(drawn(markdown("a\u2066b")).text, "aU+2066b");
  assert.equal(visible("plain שלום"), "plain שלום");
});

test("durations, sizes and clipped texts are short and true", () => {
  assert.deepEqual([0, 999, 1_200, 59_999, 61_000, 3_600_000, 90_000_000].map(duration), ["0 ms", "999 ms", "1.2 s", "59 s", "1 min 1 s", "1 h", "1 d 1 h"]);
  assert.deepEqual([ago(1_000), ago(125_000)], ["just now", "2 min ago"]);
  assert.deepEqual([bytes(10), bytes(1 << 20)], ["10 B", "1.0 MiB"]);
  assert.equal(clip("a😀b", 2), "a\ufffd…");
});

const shape = (tokens) => tokens.map((it) => (it.type === "text" && it.text !== undefined ? it.text : { [it.type]: it.items ? it.items.map(shape) : it.tokens ? shape(it.tokens) : (it.text ?? it.href ?? "") }));
const inline = (text) => shape(lexer(text))[0].paragraph;

test("emphasis, code and links end where they should", () => {
  const cases = [
    ["a **b** c", ["a ", { strong: ["b"] }, " c"]], ["*a* _b_ ~~c~~", [{ em: ["a"] }, " ", { em: ["b"] }, " ", { del: ["c"] }]],
    ["snake_case_name 2 * 3 * 4", ["snake_case_name 2 * 3 * 4"]], ["**a *b* c**", [{ strong: ["a ", { em: ["b"] }, " c"] }]],
    ["***a***", [{ strong: [{ em: ["a"] }] }]], ["``a`b`` `c`", [{ codespan: "a`b" }, " ", { codespan: "c" }]],
    ["`open **b**", ["`open ", { strong: ["b"] }]], ["**open", ["**open"]], ["\\*a\\*", [{ escape: "*" }, "a", { escape: "*" }]],
    ["[a [b]](https://x/(y))", [{ link: ["a [b]"] }]], ["[a] (b)", ["[a] (b)"]], ["see https://a.b/c_d_e.", ["see ", { link: ["https://a.b/c_d_e"] }, "."]],
    ["a\nb", ["a", { br: "" }, "b"]], ["the oath", ["the oath"]],
  ];
  for (const [text, expected] of cases) assert.deepEqual(inline(text), expected, text);
});

test("lists nest, go on, and end", () => {
  assert.deepEqual(shape(lexer("- a\n  - b\n- c\nd\n\ne")), [{ list: [[{ text: ["a"] }, { list: [[{ text: ["b"] }]] }], [{ text: ["c", { br: "" }, "d"] }]] }, { paragraph: ["e"] }]);
  assert.deepEqual(shape(lexer("1. a\n\n   b\n2. c")), [{ list: [[{ text: ["a"] }, { text: ["b"] }], [{ text: ["c"] }]] }]);
  assert.deepEqual(shape(lexer("- a\n\n  ```\n  x\n  ```\n***\nIn 1999. x")), [{ list: [[{ text: ["a"] }, { code: "x" }]] }, { hr: "" }, { paragraph: ["In 1999. x"] }]);
  assert.deepEqual(shape(lexer("text\n- a\n* * *\n- \n```\nnever ends")), [{ paragraph: ["text"] }, { list: [[{ text: ["a"] }]] }, { hr: "" }, { list: [[]] }, { code: "never ends" }]);
});

test("the time to cut a text grows with the text alone", () => {
  const parts = ["*a ", "**a ", "_a", "`", "`` ` ", "[", "[a](", "![", "~~a", "- ", "> ", "1. a\n", "- a\n  ", "|", "| -\n", "#", "\\", "<", "https://", "* * ", "***"];
  for (const part of parts) {
    const begin = performance.now();
    markdown(part.repeat(Math.floor(190_000 / part.length)));
    assert.ok(performance.now() - begin < 3_000, `${JSON.stringify(part)} took ${performance.now() - begin} ms`);
  }
});
