// Uses a page of tests/react as a person would: says something, is asked, loads the page again once it gets
// a line, approves, and reads the end. Prints the question, and at the end which tools the page had run
// before the approval and in all, the question of the page that was loaded again, and its text.
import { once } from "node:events";

import { open } from "./chromium.mjs";

const { request, run, until, close } = await open(...process.argv.slice(2));
const ready = `document.body.dataset.ready !== undefined`;
const card = `document.querySelector("#card") !== null`;

await until(`${ready} && document.querySelector("textarea") !== null`);
// Without it, keys reach only the page that a person would see.
await request("Emulation.setFocusEmulationEnabled", { enabled: true });
await run(`document.querySelector("textarea").focus()`);
await request("Input.insertText", { text: "go" });
const key = { key: "Enter", code: "Enter", windowsVirtualKeyCode: 13, text: "\r" };
await request("Input.dispatchKeyEvent", { type: "keyDown", ...key });
await request("Input.dispatchKeyEvent", { type: "keyUp", ...key });
await until(card);
const ran = () => run(`sessionStorage.ran ?? ""`);
const before = await ran();
const question = () => run(`document.querySelector("#card").innerText`);
console.log(JSON.stringify({ question: await question() }));
await once(process.stdin, "data");
await run(`window.isOld = true`);
await request("Page.reload");
await until(`window.isOld === undefined && ${ready} && ${card}`);
const again = await question();
await run(`document.querySelector("#card button").click()`);
await until(`document.body.innerText.includes("Done.")`);
await until(`${card} === false`);
const text = await run("document.body.innerText");
console.log(JSON.stringify({ before, ran: await ran(), question: again, text }));
close();
process.exit(0);
