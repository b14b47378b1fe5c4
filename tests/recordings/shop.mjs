// A recording of the example application: a customer asks for a refund, a node is killed, somebody approves.
// Arguments: the browser, a directory for profiles, the address of the application, its directory of keys, and the
// animated WebP to write.
import { readFileSync, writeFileSync } from "node:fs";

import { visit } from "../tests/cluster/person.mjs";
import { animation } from "./webp.mjs";

const [program, profiles, address, keys, output] = process.argv.slice(2);
const [WIDTH, HEIGHT] = [1240, 584];
const WINDOW = { width: 760, height: 610, deviceScaleFactor: 1, mobile: false };

const open = (name, url) => visit(program, `${profiles}/${name}`, url);
const [shop, inbox, stage] = await Promise.all([
  open("shop", `http://${address}:3000/`),
  open("inbox", `http://${address}:8083/console/`),
  open("stage", "about:blank"),
]);
for (const it of [shop, inbox]) {
  await it.request("Emulation.setDeviceMetricsOverride", WINDOW);
  await it.request("Emulation.setScrollbarsHidden", { hidden: true });
}
await stage.request("Emulation.setDeviceMetricsOverride", { ...WINDOW, width: WIDTH, height: HEIGHT });
await stage.run(`document.head.innerHTML = ${JSON.stringify(`<style>
  body { margin: 0; background: #23262f; font: 15px/1.4 system-ui, sans-serif; color: #eceae4; }
  main { display: grid; grid-template-columns: 1fr 1fr; gap: 12px; padding: 12px 12px 0; }
  figure { margin: 0; border-radius: 8px; overflow: hidden; background: #3a3e4a; }
  figcaption { padding: 4px 12px; font-size: 13px; }
  img { display: block; width: 100%; }
  footer { display: flex; align-items: center; gap: 18px; padding: 10px 16px; height: 60px; box-sizing: border-box; }
  code { flex: 1; font: 16px ui-monospace, Menlo, Consolas, monospace; white-space: pre; }
  .node { font-size: 13px; } .node::before { content: "●"; color: #6fd08c; margin-right: 5px; }
  .dead { color: #9a9da6; text-decoration: line-through; } .dead::before { color: #ff6b5e; }
</style>`)}`);

const dead = new Set();
const frames = [];
const shot = async ({ request }, format, more = {}) =>
  (await request("Page.captureScreenshot", { format, ...more })).data;

/** Adds a picture of both pages, with a line below them; it stands for `ms`. */
async function frame(ms, line) {
  const [left, right] = await Promise.all([shot(shop, "png"), shot(inbox, "png")]);
  const window = (title, data) =>
    `<figure><figcaption>${title}</figcaption><img src="data:image/png;base64,${data}"></figure>`;
  const nodes = [1, 2, 3].map((it) => `<span class="node ${dead.has(it) ? "dead" : ""}">node-${it}</span>`).join("");
  const html = `<main>${window("The shop, as Ada sees it", left)}${window("The console, as Maria sees it", right)}</main>
    <footer><code>${line}</code>${nodes}</footer>`;
  await stage.request("Runtime.evaluate", { awaitPromise: true, expression:
    `document.body.innerHTML = ${JSON.stringify(html)}; Promise.all([...document.images].map((it) => it.decode()))` });
  frames.push({ ms, data: Buffer.from(await shot(stage, "webp", { quality: 78 }), "base64") });
}

await shop.click("button", "I am Ada");
await shop.reads("Pour-over kettle");
await inbox.fill("input[name=token]", readFileSync(`${keys}/maria.key`, "utf8").trim());
await inbox.click("button", "Use it");
await inbox.reads("Nothing waits for you");
await frame(1_800, "A customer, an approver, three nodes.");
await shop.click(".orders button", "It arrived damaged");
await shop.until(`document.querySelector("textarea").value.length > 0`);
await frame(1_200, "Ada has received a dented kettle.");
await shop.click("form button", "Send");
const writing = "The agent looks her order up, by an HTTP tool in TypeScript.";
await shop.reads("I am sorry");
for (let n = 0; n < 3; n += 1) await frame(350, writing);
await shop.until(`document.querySelector("[data-card=waiting]") !== null`);
await inbox.reads("Refund € 64 for order 1042?");
await inbox.click(".row-main");
await inbox.reads("Approve");
await frame(3_000, "It proposes a refund. That needs somebody who is not Ada.");
await inbox.until(`[...document.querySelectorAll(".answer button")].some((it) => it.textContent === "Approve")`);
await inbox.run(`[...document.querySelectorAll(".answer button")].find((it) => it.textContent === "Approve")
  .scrollIntoView({ block: "center" })`);

const node = 1;
process.kill(Number(readFileSync(`${keys}/node-${node}.pid`, "utf8")), "SIGKILL");
dead.add(node);
await frame(2_600, "$ kill -9 $(cat node-1.pid)      # it has the conversation");
await inbox.click(".answer button", "Approve");
await shop.reads("Approved. The bank is being asked");
await inbox.reads("Nothing waits for you");
await frame(2_200, "Maria approves. Another node revives the conversation and calls the tool in Python.");
await shop.reads("Done: ");
await frame(500, "The bank answers.");
await shop.reads("Is there anything else?");
await shop.until(`document.querySelector(".refunded") !== null`);
await frame(4_500, "Paid, once. Ada's page went on by itself.");

const file = animation(WIDTH, HEIGHT, frames);
writeFileSync(output, file);
console.log(`${output}: ${frames.length} frames, ${file.length} bytes`);
for (const page of [shop, inbox, stage]) page.close();
process.exit(0);
