// An operator with the console of the operators' listener: asks why, fails a call, drains a node. Arguments:
// the browser, its profile, the console's URL, and axe.
import { visit } from "./person.mjs";

const [program, profile, url, axe] = process.argv.slice(2);
const page = await visit(program, profile, url);
const { until, click, fill, reads, audit, go, close } = page;

await click(".row-main");
await reads("Send it?");
await go("#/c/stuck");
await click(".side a", "Why does it wait?");
await reads("It waits for an approval of send");
await audit(axe);
await click(".verbs button", undefined);
await fill("dialog input", "nobody is there");
await click("dialog button", "Fail the call");
await reads("It waits for a message");
await go("#/c/stuck");
await reads("Failed.");
await go("#/cluster");
await until(`document.querySelectorAll(".cells a.cell").length >= 1`);
await audit(axe);
await click(".node button", "Drain …");
await click("dialog button", "Drain");
await until(`/drain(ing|ed)/.test(document.querySelector(".node").innerText)`);
close();
process.exit(0);
