// Uses the console as a person would: sends a message, approves a call, gets refusals, and answers. Prints
// the page's text at the end.
import { open } from "./chromium.mjs";

const { run, until, close } = await open(...process.argv.slice(2));
const $ = (selector) => `document.querySelector(${JSON.stringify(selector)})`;
const type = (selector, text) => run(`${$(selector)}.value = ${JSON.stringify(text)}`);
const press = (selector, label) =>
  run(`Array.from(document.querySelectorAll(${JSON.stringify(`${selector} button`)}))
    .find((button) => button.textContent === ${JSON.stringify(label)}).click()`);
const questions = (count) =>
  until(`document.querySelectorAll("#pending form").length === ${count}`);
const idle = () => until(`${$("#status")}.textContent === "idle"`);

await idle();
await type("#text", "Do everything, <b>please</b>");
await press("#say", "Send");
await questions(2);
await type("#pending form:nth-child(2) input", "roof");
await press("#pending", "Answer");
await until(`${$("#trouble")}.textContent.startsWith("result: ")`);
await run(`${$("#pending form:nth-child(2) [type=checkbox]")}.click()`);
await press("#pending", "Answer");
await until(`${$("#trouble")}.textContent.includes("JSON")`);
await type("#pending form:nth-child(2) input", '"window"');
await press("#pending", "Approve");
// Typed text stays when another question disappears.
await questions(1);
await press("#pending", "Answer");
await idle();
process.stdout.write(await run("document.body.innerText"));
close();
process.exit(0);
