// Somebody erases a person, sees how far that is while it goes on, and reads its report. Arguments: the browser,
// its profile, the console's URL, and axe. Writes a line when a step needs the test, and goes on with each line
// that it gets.
import { once } from "node:events";

import { visit } from "./person.mjs";

const [program, profile, url, axe] = process.argv.slice(2);
const { run, until, click, fill, reads, lacks, count, audit, go, close } = await visit(program, profile, url);
const progress = `document.querySelector(".detail progress")`;

await go("#/erasures");
await reads("Nobody was erased");
await audit(axe);
await click(".view-head button", "New …");
await reads("Their conversations are deleted for ever.");
await audit(axe);
await fill("dialog input", "zq-person");
await click("dialog button", "Erase for ever");
// The journals of others come after the person's own conversations.
await until(`${progress}?.value === 2 && ${progress}.max === 7`);
await reads("others");
await reads("running");
await until(`document.querySelector(".detail h2").textContent === "zq-person"`);
console.log("held");
await once(process.stdin, "data");
await reads("1 conversation of others");
await until(`${progress} === null`);
await lacks("running");
await reads("1 conversation, 0 schedules");
await click(".detail summary", "The deleted conversations");
await reads("own");
await reads("This report goes");
await lacks("zq-person");
await count(".row-item", 1);
await until(`document.querySelector(".row-title").textContent.startsWith("erased:")`);
await run("window.scrollTo(0, 0)");
await audit(axe);
close();
process.exit(0);
