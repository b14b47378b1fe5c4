// Uses a page of tests/react as a person would who only watches: says something, is asked, and does nothing more.
// Prints a line when the question is there and the page is at rest, and the page's text when the turn has ended.
import { open } from "./chromium.mjs";

const { request, run, until, close } = await open(...process.argv.slice(2));
const ready = `document.body.dataset.ready !== undefined`;
const card = `document.querySelector("#card") !== null`;

await until(`${ready} && document.querySelector("textarea") !== null`);
await request("Emulation.setFocusEmulationEnabled", { enabled: true });
await run(`document.querySelector("textarea").focus()`);
await request("Input.insertText", { text: "go" });
const key = { key: "Enter", code: "Enter", windowsVirtualKeyCode: 13, text: "\r" };
await request("Input.dispatchKeyEvent", { type: "keyDown", ...key });
await request("Input.dispatchKeyEvent", { type: "keyUp", ...key });
await until(`${card} && document.querySelector("#status").innerText === "ready"`);
console.log(JSON.stringify({ question: await run(`document.querySelector("#card").innerText`) }));
await until(`document.querySelector("#text").innerText.includes("Done.") && ${card} === false`);
console.log(JSON.stringify({ ran: await run(`sessionStorage.ran ?? ""`) }));
close();
process.exit(0);
