// A page in a headless browser, driven through the browser's debugging pipe. Any error that the browser
// reports, other than HTTP answers that the page expects, makes `close` fail.
import { spawn } from "node:child_process";

/** Less than the deadline of the test that runs the script. */
const MAX_WAIT_MS = 40_000;

export async function open(program, profile, url) {
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
      const what = entry && `${method}: ${entry.text} ${entry.exception?.description ?? ""}`;
      if (entry && entry.source !== "network" && entry.level !== "verbose") errors.push(what);
    }
  });

  let sessionId;
  function request(method, params = {}) {
    const id = waiting.size + 1;
    const answer = new Promise((resolve) => waiting.set(id, resolve));
    to.write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    return answer;
  }

  async function run(expression) {
    const { result, exceptionDetails } =
      await request("Runtime.evaluate", { expression, returnByValue: true });
    if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.text}`);
    return result.value;
  }

  /** Waits until the expression holds on the page. */
  async function until(expression) {
    const end = Date.now() + MAX_WAIT_MS;
    while (!(await run(expression).catch(() => false))) {
      if (Date.now() > end) throw new Error(`never: ${expression}, on\n${await run("document.body.innerText")}`);
      await new Promise((done) => setTimeout(done, 10));
    }
  }

  function close() {
    browser.kill("SIGKILL");
    if (errors.length > 0) throw new Error(errors.join("\n"));
  }

  const { targetId } = await request("Target.createTarget", { url: "about:blank" });
  ({ sessionId } = await request("Target.attachToTarget", { targetId, flatten: true }));
  await Promise.all([request("Log.enable"), request("Runtime.enable"), request("Page.navigate", { url })]);
  return { request, run, until, close };
}
