// People with few rights, and one whose credential ends. Arguments: the browser, its profile, the URL of the console of
// the operators' listener, the beginning of the keys, and axe. Writes a line when a step needs the test, and goes on with
// each line that it gets.
import { once } from "node:events";

import { visit } from "./person.mjs";

const [program, profile, url, keys, axe] = process.argv.slice(2);
const page = await visit(program, profile, url);
const { request, run, until, click, fill, reads, lacks, count, audit, reload, go, close } = page;
const needs = async (what) => {
  console.log(what);
  await once(process.stdin, "data");
};
const signIn = async (id) => {
  await fill("input[name=token]", JSON.parse(keys)[id]);
  await click(".sign-in form button");
  await until(`document.querySelector(".account")?.textContent.includes("${id}")`);
};

const signOut = () => click(".account button", "Sign out");

// An operator begins with what operators see, and is told what the rest needs.
await signIn("operator");
await reads("Next alarms");
await count(".top nav a", 2);
await go("#/inbox");
await reads("This credential has no inbox");
await reads("it needs list_pending");
await go("#/conversations");
await reads("it needs list");
await lacks("Try again");
await audit(axe);
await signOut();

// An approver has an inbox alone, and is not told to define agents.
await signIn("approver");
await go("#/");
await reads("Nothing waits for you");
await count(".top nav a", 1);
await lacks("There is no agent yet");
await audit(axe);
await signOut();

// The answer about who it is may come before the page listens for it.
const late = `{ const [frame, timer, real] = [requestAnimationFrame.bind(window), setTimeout.bind(window), fetch.bind(window)];
  let held = [];
  const hold = (act) => (held ? held.push(act) : act());
  window.requestAnimationFrame = (act) => hold(() => frame(act));
  window.setTimeout = (act, ms = 0, ...more) => ms > 200 ? timer(act, ms, ...more) : hold(() => timer(act, ms, ...more));
  window.fetch = async (url, init) => {
    const response = await real(url, init);
    const release = () => { const acts = held ?? []; held = undefined; acts.forEach((act) => act()); };
    if (String(url).endsWith("/v1/me")) timer(release, 300);
    return response;
  }; }`;
await signIn("first");
const { identifier } = await request("Page.addScriptToEvaluateOnNewDocument", { source: late });
await reload();
await until(`document.querySelector(".account")?.textContent.includes("first")`);
await request("Page.removeScriptToEvaluateOnNewDocument", { identifier });

// The credential ends: the page asks for another, and keeps what was typed.
await go("#/c/talk");
await fill("#text", "half a thought");
await needs("end");
await reads("Your credential has ended. What you typed stays here.");
await audit(axe);
await signIn("second");
await until(`document.querySelector("#text")?.value === "half a thought"`);
close();
process.exit(0);
