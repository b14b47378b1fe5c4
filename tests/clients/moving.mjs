// What is found, noted and moved through our client: moving.mjs URL NAME, a part of the ids and a customer.
import { openAsBlob } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import * as client from "@abide/client";

const [url, NAME] = process.argv.slice(2);
const abide = new client.Abide({ url });

async function all(items) {
  const read = [];
  for await (const item of items) read.push(item);
  return read;
}

const refusal = (action) => action.then(() => ["none", ""], (error) => [error.name, error.message.split(":")[0]]);
const journal = async (conversation) => JSON.stringify(await all(conversation.journal()));
const source = abide.conversation(`${NAME}-source`, { agent: "a" });
await source.create({ metadata: { customer: NAME }, title: "A title" });
const told = { missing: (await refusal(source.state.get("cart")))[0] };
await source.state.put("cart", { items: [1] });
told.state = await source.state.get("cart");
told["too large"] = await refusal(source.state.put("cart", "x".repeat(70_000)));
await source.state.put("gone", 1);
await source.state.delete("gone");
told.deleted = (await refusal(source.state.get("gone")))[0];
await source.send("hi").result({ timeout: 20_000 });
const copy = await abide.importConversation(() => source.export());
const [here, there] = [await source.state.get("cart"), await copy.state.get("cart")];
told.copy = [copy.id !== source.id, JSON.stringify(here) === JSON.stringify(there)];
const listed = await all(abide.conversations({ metadata: { customer: NAME }, order: "created", dir: "asc" }));
told.found = listed.map(({ id, title }) => [id === source.id, title ?? null]);
told.taken = (await refusal(abide.importConversation(source.export(), { keepId: true })))[0];
const directory = await mkdtemp(join(tmpdir(), "abide-"));
const path = join(directory, "source.ndjson");
await writeFile(path, source.export());
const before = await journal(source);
await source.delete();
const kept = await abide.importConversation(await openAsBlob(path), { keepId: true });
told.kept = [kept.id === source.id, (await journal(source)) === before];
const lines = (await readFile(path, "utf8")).split(/(?<=\n)/);
await rm(directory, { recursive: true });
const keyed = [];
for (let times = 0; times < 2; times += 1) {
  keyed.push((await abide.importConversation(lines, { key: `${NAME}-key` })).id);
}
told["one key"] = keyed[0] === keyed[1];
const cut = await refusal(abide.importConversation(lines.slice(0, -1)));
told["no end"] = `${cut}` === `InvalidRequestError,line ${lines.length - 1}`;
let taken = 0;

/** A wrong line, and a gigabyte after it. */
async function* damaged() {
  yield lines[0];
  for (; taken < 1_000; taken += 1) yield '{"seq":7}\n'.repeat(100_000);
}

told["half-way"] = await refusal(abide.importConversation(damaged()));
told.left = taken < 1_000;
told.nobody = (await refusal(all(abide.conversation(`${NAME}-nobody`).export())))[0];
console.log(JSON.stringify(told));
