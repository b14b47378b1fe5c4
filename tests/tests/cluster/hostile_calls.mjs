// Calls as nobody wants them: large, with long names, with schemas that no form can draw, too late, or answered by somebody
// else. Arguments: the browser, its profile, the console's URL, and axe. Writes a line when a step needs the test, and
// goes on with each line that it gets.
import assert from "node:assert/strict";
import { once } from "node:events";

import { visit } from "./person.mjs";

const [program, profile, url, axe] = process.argv.slice(2);
const page = await visit(program, profile, url);
const { request, run, until, click, fill, reads, count, audit, reload, go, close } = page;
const needs = async (what) => {
  console.log(what);
  await once(process.stdin, "data");
};
const fits = async () => assert(await run("document.documentElement.scrollWidth <= innerWidth"), await run("location.hash"));
/** Whether the page's list may be read: without it, the page does not know what has become of a call. */
const readList = (may) => request("Network.setBlockedURLs", { urls: may ? [] : ["*/v1/pending*"] });
await request("Network.enable");

// A megabyte of arguments: its beginning is shown, and the rest when somebody asks for it.
await go("#/c/large");
await reads("are not edited here");
assert((await run("document.body.innerText.length")) < 30_000);
await click(".json .link");
await until("document.body.innerText.length > 300_000");
await reads("The rest is not shown");
await click(".answer button", "Deny");
await reads("denied by anonymous");

await go("#/c/long");
await reads("tool not found");
await reads("name_name_");
await fits();
await audit(axe);

// A card does not move away from who types into it when the messages arrive late.
await request("Network.setBlockedURLs", { urls: ["*/messages*"] });
await go("#/c/form");
await until(`document.querySelector("#status")?.textContent === "awaiting input"`);
assert.equal(await run(`document.querySelectorAll(".answer").length`), 0);
await request("Network.setBlockedURLs", { urls: [] });

// A schema without a form: an editor for JSON, whose mistakes and refusals stand at it.
await fill(".answer textarea.code", '{"seats": [');
await click(".answer button", "Answer");
await reads("It is not JSON");
await audit(axe);
await fill(".answer textarea.code", '{"seats": [{"row": "x"}]}');
await click(".answer button", "Answer");
await until(`/row|integer/.test(document.querySelector(".answer .wrong")?.textContent)`);
await until(`document.querySelector(".answer textarea.code").value.includes('"x"')`);
await fill(".answer textarea.code", '{"seats": [{"row": 7}]}');
await click(".answer button", "Answer");
await reads("answered by anonymous");

// Somebody was quicker, and the page learns it by the answer alone.
await go("#/inbox");
await click(".row-main");
await reads("Quick?");
await readList(false);
await needs("quicker");
await click(".answer button", "Approve");
await reads("Somebody was quicker: denied by anonymous, “no need”.");
await audit(axe);
await readList(true);
await count(".row-item", 1);

// The deadline passes while the card is open.
await needs("late");
await count(".row-item", 2);
await click(".row-main");
await reads("Late?");
await readList(false);
await reads("The deadline has passed.");
await until(`[...document.querySelectorAll(".answer form .row button")].every((it) => it.disabled)`);
await audit(axe);
await readList(true);
await reads("Nobody answered in time");

// A device whose clock is an hour ahead: the time that is left is the node's.
const clock = `{ const Real = Date; globalThis.Date = class extends Real {
  constructor(...given) { super(...(given.length > 0 ? given : [Real.now() + 3_600_000])); }
  static now() { return Real.now() + 3_600_000; } }; }`;
await request("Page.addScriptToEvaluateOnNewDocument", { source: clock });
await reload();
await reads("This device’s clock is 1 h ahead");
await until(`/^(2 h|1 h 5)/.test(document.querySelector(".row-item .countdown").textContent)`);
await audit(axe);

// A view that did not arrive is asked for again.
await request("Network.setBlockedURLs", { urls: ["*/views/agents.js*"] });
await request("Network.setCacheDisabled", { cacheDisabled: true });
await reload();
await reads("Inbox");
await go("#/agents");
await reads("The node did not send this view.");
await audit(axe);
await request("Network.setBlockedURLs", { urls: [] });
await click("button", "Try again");
await reads("patient");

// A link that is followed as soon as the first view is drawn leads to its view.
const follow = `new MutationObserver((_, it) => {
  if (document.querySelector("nav")) { it.disconnect(); location.hash = "#/schedules"; }
}).observe(document, { childList: true, subtree: true });`;
await go("#/");
await request("Page.addScriptToEvaluateOnNewDocument", { source: follow });
await reload();
await until(`document.title.startsWith("Schedules")`);
close();
process.exit(0);
