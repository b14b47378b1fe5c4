// A person with an inbox. Arguments: the browser, its profile, the console's URL, and axe. Writes a line
// when a step needs the test, and goes on with each line that it gets.
import { once } from "node:events";

import { visit } from "./person.mjs";

const [program, profile, url, axe] = process.argv.slice(2);
const page = await visit(program, profile, url);
const { run, until, click, fill, reads, lacks, count, press, audit, go, close } = page;
const needs = async (what) => {
  console.log(what);
  await once(process.stdin, "data");
};

// Nothing waits: there are three things to try.
await reads("Nothing waits for you");
await audit(axe);
await needs("calls");
await count(".row-item", 5);
await until(`document.querySelector(".row-item").textContent.includes("Book 1?")`);
await audit(axe);

// Arguments are fields; what the node refuses stands at its field, and nothing is lost.
await press("e");
await fill(".fields input", "x");
await fill(".fields .field:nth-of-type(2) input", "7");
await click(".answer button", "Approve as edited");
await until(`document.querySelector(".answer .wrong") !== null`);
await until(`document.querySelector(".fields input").value === "x"`);
await audit(axe);
await fill(".fields input", "Graz");
await click(".answer button", "Approve as edited");
await count(".row-item", 4);

// A card that is open tells who was quicker.
await until(`document.querySelector(".row-item").textContent.includes("Book 2?")`);
await click(".row-main");
await needs("quicker");
await reads("approved by anonymous");
await count(".row-item", 3);
await click(".detail-head button", "Close");

// Keys: deny one.
await run(`document.activeElement.blur()`);
await press("j");
await until(`document.querySelector(".answer h2").textContent === "Book 4?"`);
await press("k");
await press("d");
await count(".row-item", 2);
await reads("Denied book.");

// The node dies under an open card, and what was typed is there when it is back.
await click(".row-main");
await fill(".answer .field input", "because");
await needs("kill");
await reads("The node does not answer.");
await needs("start");
await lacks("The node does not answer.");
await until(`document.querySelector(".answer .field input").value === "because"`);

// All that are alike.
await click(".alike button");
await audit(axe);
await click("dialog button", "Approve all");
await reads("Nothing waits for you");

// Markup and hidden characters are seen as what they are.
await go("#/c/odd");
await reads("<img src=x onerror=alert(1)>");
await reads("U+202E");
await until(`document.querySelectorAll(".messages img, .messages script").length === 0`);
await audit(axe);
await go("#/conversations");
await reads("odd");
await audit(axe);
await go("#/agents/a");
await reads("Revision");
await audit(axe);
await until(`!document.body.innerText.includes("Cluster")`);
close();
process.exit(0);
