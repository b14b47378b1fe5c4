// Uses the console as a person would, through the browser's debugging pipe: sends a message, approves
// a call, gets refusals, and answers. Prints the page's text at the end. Any error that the browser
// reports, other than HTTP answers that the page expects, makes the script fail.
import { spawn } from "node:child_process";

const [program, profile, url] = process.argv.slice(2);
const flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
  "--disable-background-networking", "--disable-dev-shm-usage", "--remote-debugging-pipe",
  `--user-data-dir=${profile}`];
const stdio = ["ignore", "ignore", "ignore", "pipe", "pipe"];
const browser = spawn(program, flags, { stdio });
const [, , , to, from] = browser.stdio;
const waiting = new Map();
const errors = [];
let rest = "";
from.on("data", (bytes) => {
  const messages = (rest + bytes).split("\0");
  rest = messages.pop();
  for (const { id, result, error, method, params } of messages.map((text) => JSON.parse(text))) {
    if (id) waiting.get(id)(error ? Promise.reject(new Error(error.message)) : result);
    const entry = params?.entry ?? params?.exceptionDetails;
    if (entry && entry.source !== "network") errors.push(`${method}: ${entry.text}`);
  }
});

let sessionId;
function request(method, params = {}) {
  const id = waiting.size + 1;
  const answer = new Promise((resolve) => waiting.set(id, resolve));
  to.write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
  return answer;
}

const { targetId } = await request("Target.createTarget", { url: "about:blank" });
({ sessionId } = await request("Target.attachToTarget", { targetId, flatten: true }));
await Promise.all([request("Log.enable"), request("Runtime.enable"), request("Page.navigate", { url })]);

async function run(expression) {
  const { result, exceptionDetails } =
    await request("Runtime.evaluate", { expression, returnByValue: true });
  if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.text}`);
  return result.value;
}

/** Waits until the expression holds on the page; the test that runs this script has a deadline. */
async function until(expression) {
  while (!(await run(expression).catch(() => false))) {
    await new Promise((done) => setTimeout(done, 10));
  }
}

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
browser.kill("SIGKILL");
if (errors.length > 0) throw new Error(errors.join("\n"));
process.exit(0);
