// What a node that knows its callers refuses, as the errors of our client: refusals.mjs URL USER APPROVER.
import * as client from "@abide/client";

const [url, USER, APPROVER] = process.argv.slice(2);
const { Abide } = client;

async function attempt(action) {
  try {
    await action();
  } catch (error) {
    if (!(error instanceof client.AbideError || error instanceof client.ProblemError)) throw error;
    return [error.name, error.problem?.type ?? null, error.problem?.because ?? null];
  }
  return ["none", null, null];
}

const user = new Abide({ url, token: USER });
const approver = new Abide({ url, token: async () => ({ token: APPROVER }) });
const conversation = user.conversation("js", { agent: "a" });
const told = {
  "unknown credential": await attempt(() => new Abide({ url, token: "abide_no_one" }).me()),
  "no conversation": await attempt(() => user.conversation("nothing").snapshot()),
  "no agent": await attempt(() => user.conversation("new", { agent: "nobody" }).send("go").ready()),
  "no definition": await attempt(() => user.define("b", { model: { provider: "scripted" } })),
};
const turn = conversation.send("go");
told.waits = await attempt(() => turn.result({ timeout: 20_000 }));
told.busy = await attempt(() => conversation.send("and?").ready());
told["own approval"] = await attempt(() => conversation.call("pay").approve());
const { value: call } = await approver.inbox({ conversation: "js" }).next();
told["wrong form"] = await attempt(() => call.answer(1));
told.approved = await attempt(() => call.approve());
told.late = await attempt(() => call.approve());
told.text = (await turn.result({ timeout: 20_000 })).text;
console.log(JSON.stringify(told));
