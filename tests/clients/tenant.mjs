// Rollouts and erasures through our client: tenant.mjs URL NAME, the name of an agent and of a person.
import * as client from "@abide/client";

const [url, NAME] = process.argv.slice(2);
/** How long an erasure of a few conversations may take. */
const ERASURE_MS = 20_000;
const abide = new client.Abide({ url });

async function all(items) {
  const read = [];
  for await (const item of items) read.push(item);
  return read;
}

const put = (text) => abide.agents.put(NAME, { model: { provider: "scripted", script: [{ text }] } });
const refusal = (action) => action.then(() => "none", (error) => error.name);
const turn = (id) => abide.conversation(`${NAME}-${id}`, { agent: NAME }).send("hi").result({ timeout: 20_000 });
const { revision: older } = await put("old");
await put("new");
const told = { "no rollout": await refusal(abide.agents.rollout(NAME)) };
const begun = await abide.agents.rollOut(NAME, older, 100);
told["rolled out"] = [begun.revision === older, begun.percent];
told["read again"] = JSON.stringify(await abide.agents.rollout(NAME)) === JSON.stringify(begun);
const revisions = await all(abide.agents.revisions(NAME));
told.shares = revisions.map(({ rollout_percent: share }) => share ?? null);
told["in the share"] = (await turn("in")).text;
const named = abide.conversation(`${NAME}-in`);
told.titles = [(await named.update({ title: "A title" })).title, (await named.update({ title: null })).title ?? null];
await abide.agents.endRollout(NAME);
told["ended"] = await refusal(abide.agents.rollout(NAME));
told["ended twice"] = await refusal(abide.agents.endRollout(NAME));
told["after it"] = (await turn("after")).text;
told["nobody"] = await refusal(abide.erasures.start(""));
const { id } = await abide.erasures.start(NAME);
const deadline = Date.now() + ERASURE_MS;
let erasure = await abide.erasures.get(id);
while (erasure.state !== "done") {
  if (Date.now() > deadline) throw new Error(`not erased within ${ERASURE_MS} ms: ${JSON.stringify(erasure)}`);
  await new Promise((done) => setTimeout(done, 50));
  erasure = await abide.erasures.get(id);
}
told.erased = [erasure.deleted.conversations, erasure.rewritten.conversations, erasure.owner ?? null];
// For a moment the job stands beside its report.
told.listed = (await all(abide.erasures.list())).some((it) => it.id === id && it.state === "done");
told["no erasure"] = await refusal(abide.erasures.get("er_none"));
console.log(JSON.stringify(told));
