// Somebody with an inbox of thousands, and a cluster of many conversations: the page draws what is in view. Arguments:
// the browser, its profile, the URL of the console of the operators' listener, and axe.
import assert from "node:assert/strict";

import { visit } from "./person.mjs";

const [program, profile, url, axe] = process.argv.slice(2);
const page = await visit(program, profile, url);
const { run, until, click, reads, count, press, audit, go, close } = page;
const main = `document.getElementById("main")`;
const isInView = (element) => `(() => { const { top, bottom } = ${element}.getBoundingClientRect(); return top >= 0 && bottom <= innerHeight; })()`;

await reads("100 or more waiting");
await click(".more button", "Show more");
await reads("400 or more waiting");
await click(".more button", "Show more");
await reads("1,000 or more waiting");
assert((await run(`document.querySelectorAll(".row-item").length`)) <= 60);
assert((await run(`document.querySelectorAll("*").length`)) <= 1_500);
// The list is as long as if all rows were drawn, and the last one is there when one gets to it.
assert((await run(`${main}.scrollHeight`)) > 50_000);
const isAtEnd = `${isInView(`[...document.querySelectorAll(".more button")].at(-1)`)} && ${isInView(`[...document.querySelectorAll(".row-item")].at(-1)`)}`;
await until(`${main}.scrollTop = 1e9, ${isAtEnd}`);
await audit(axe);

// Keys go on from the entry that is open, wherever the list was scrolled to.
await press("j");
await until(`${isInView("document.activeElement")} && document.activeElement.matches(".row-main[aria-current]")`);
assert((await run(`${main}.scrollTop`)) < 1_000);
await count(`.row-main[tabindex="0"]`, 1);

await click(".more button", "Later deadlines");
await reads("Page 2");
await until(`document.querySelectorAll(".row-item").length > 5`);
await click(".more button", "Earlier deadlines");
await reads("1,000 or more waiting");

await go("#/cluster");
await count(".cells a", 24);
await count(`.cells a[tabindex="0"]`, 1);
await run(`document.querySelector(".cells a").focus()`);
const isAt = (index) => until(`[...document.querySelectorAll(".cells a")].indexOf(document.activeElement) === ${index}`);
await press("ArrowRight");
await isAt(1);
await press("End");
await isAt(23);
await press("ArrowLeft");
await isAt(22);
await count(`.cells a[tabindex="0"]`, 1);
await audit(axe);
close();
process.exit(0);
