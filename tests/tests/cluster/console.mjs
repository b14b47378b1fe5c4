// Uses the console as a person would: sends a message, approves a call, and answers a question. Prints
// the page's text at the end.
import { visit } from "./person.mjs";

const { run, until, click, fill, count, press, close } = await visit(...process.argv.slice(2));
const idle = () => until(`document.querySelector("#status")?.textContent === "idle"`);

await idle();
await fill("#text", "Do everything, <b>please</b>");
await run(`document.querySelector("#text").focus()`);
await press("Enter");
await count(".answer", 2);
// The question's words are choices, which are in the schema.
await click(".answer.elicitation .option", "window");
await click(".answer.approval button", "Approve");
// What was chosen stays when another question disappears.
await count(".answer", 1);
await click(".answer.elicitation button", "Answer");
await idle();
await until(`document.body.innerText.includes("approved by anonymous")`);
process.stdout.write(await run("document.body.innerText"));
close();
process.exit(0);
