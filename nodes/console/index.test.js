import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { windowOf } from "./views/inbox/rows.js";
import { inNavigation, viewAt } from "./views.js";

const read = (path) => readFileSync(new URL(path, import.meta.url), "utf8");

/** The modules that one imports, and those that these import. */
function importsOf(path, found = new Set()) {
  for (const [, name] of read(path).matchAll(/ from "(\.[^"]+)";$/gm)) {
    const imported = new URL(name, `http://page/${path}`).pathname.slice(1);
    if (found.has(imported)) continue;
    found.add(imported);
    importsOf(imported, found);
  }
  return found;
}

test("the page asks at once for all modules that the inbox needs", () => {
  const preloaded = [...read("index.html").matchAll(/rel="modulepreload" href="([^"]+)"/g)].map(([, path]) => path);
  const needed = importsOf("views/inbox.js", importsOf("console.js")).add("views/inbox.js");
  assert.deepEqual(new Set(preloaded), needed);
  assert.equal(preloaded.length, needed.size);
});

test("of a long list, only the rows near the view are drawn, and spacers are as high as the others", () => {
  const heights = Array(50_000).fill(100);
  for (const top of [0, 5_000, 2_345_678, 4_999_000, 9_999_999]) {
    const { from, to, above, below } = windowOf(heights, top, 900);
    assert.equal(above + (to - from) * 100 + below, 5_000_000);
    assert.equal(above, from * 100);
    assert(to - from <= 25, `${top}: ${from} to ${to}`);
    const seen = Math.min(top, 5_000_000);
    assert(above <= seen && (to === 50_000 || 5_000_000 - below >= seen + 900), `${top}: ${from} to ${to}`);
  }
  assert.deepEqual(windowOf([], 0, 900), { from: 0, to: 0, above: 0, below: 0 });
});

test("the navigation has the views that the roles permit, and all until they are known", () => {
  const names = ["inbox", "conversations", "agents", "schedules", "webhooks", "erasures", "queues", "cluster", "why"];
  const shown = (roles) => inNavigation(names, roles).map(({ name }) => name);
  assert.deepEqual(shown(["operator"]), ["cluster", "queues"]);
  assert.deepEqual(shown(["approver"]), ["inbox"]);
  assert.equal(shown(undefined).length, 8);
  // A role that the page does not know permits something else.
  assert.equal(shown(["finance"]).length, 8);
  assert.equal(viewAt("", names, ["operator"]).name, "cluster");
  assert.equal(viewAt("inbox", names, ["operator"]).name, "inbox");
  assert.equal(viewAt("cluster", ["inbox"], ["operator"]), undefined);
});
