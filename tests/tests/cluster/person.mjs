// What a person does with a page of the console: fills fields, presses buttons and keys, reads.
import { readFileSync } from "node:fs";

import { open } from "./chromium.mjs";

const quoted = JSON.stringify;
const first = (selector, label) => `Array.from(document.querySelectorAll(${quoted(selector)}))
  .find((it) => ${label === undefined} || it.textContent.trim() === ${quoted(label ?? "")})`;

export async function visit(program, profile, url) {
  const page = await open(program, profile, url);
  const { request, run, until } = page;
  await request("Page.enable");
  // Without it, keys reach only the page that a person would see.
  await request("Emulation.setFocusEmulationEnabled", { enabled: true });
  const size = { width: 1280, height: 900, deviceScaleFactor: 1, mobile: false };
  await request("Emulation.setDeviceMetricsOverride", size);

  /** Waits for an element, with this text if one is given, and does something with it. */
  async function withElement(selector, label, act) {
    await until(`${first(selector, label)} !== undefined`);
    await run(`(() => { const it = ${first(selector, label)}; ${act} })()`);
  }

  const click = (selector, label) => withElement(selector, label, "it.click()");
  const fill = (selector, text) => withElement(selector, undefined, `
    const proto = Object.getPrototypeOf(it);
    Object.getOwnPropertyDescriptor(proto, "value").set.call(it, ${quoted(text)});
    it.dispatchEvent(new Event(it.localName === "select" ? "change" : "input", { bubbles: true }));`);
  const reads = (text) => until(`document.body.innerText.includes(${quoted(text)})`);
  const lacks = (text) => until(`!document.body.innerText.includes(${quoted(text)})`);
  const count = (selector, number) => until(`document.querySelectorAll(${quoted(selector)}).length === ${number}`);

  /** Presses a key on whatever has the focus. */
  async function press(key) {
    const codes = { Enter: 13, Escape: 27, Tab: 9 };
    const text = key === "Enter" ? "\r" : key.length === 1 ? key : undefined;
    const event = { key, windowsVirtualKeyCode: codes[key] ?? key.toUpperCase().charCodeAt(0), text };
    await request("Input.dispatchKeyEvent", { type: "keyDown", ...event });
    await request("Input.dispatchKeyEvent", { type: "keyUp", ...event });
  }

  /** Fails if axe finds fault with the page, in light and in dark. */
  async function audit(axe) {
    if (!(await run("typeof window.axe === 'object'"))) await run(readFileSync(axe, "utf8"));
    for (const value of ["light", "dark"]) {
      // What fades in has less contrast for a moment.
      const still = { name: "prefers-reduced-motion", value: "reduce" };
      await request("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value }, still] });
      const found = await request("Runtime.evaluate", { awaitPromise: true, returnByValue: true, expression:
        "axe.run(document).then(({ violations }) => violations.map((it) => `${it.id}: ${it.nodes.map((node) => node.html.slice(0, 160)).slice(0, 3).join(' | ')}`))" });
      const faults = found.result.value ?? [quoted(found)];
      if (faults.length > 0) throw new Error(`${await run("location.hash")}, ${value}: ${faults.join("\n")}`);
    }
  }

  /** Loads the page anew, and waits until it is another one. */
  async function reload() {
    await run("window.isOld = true");
    await request("Page.reload");
    await until(`window.isOld === undefined && document.readyState === "complete"`);
  }

  const go = (hash) => run(`location.hash = ${quoted(hash)}`);
  return { ...page, click, fill, reads, lacks, count, press, audit, reload, go };
}
