// An inbox worker: one program answers what waits in all conversations, whoever started them.
import { Abide, StaleError } from "@abide/client";

const abide = new Abide();
const name = process.argv[2] ?? abide.conversation().id;
const conversations = [0, 1, 2].map((number) => abide.conversation(`${name}.${number}`, { agent: "demo" }));
const turns = conversations.map((conversation) => conversation.send("Please send a mail"));

const left = new Set(conversations.map(({ id }) => id));
for await (const call of abide.inbox({ kind: "approval", agent: "demo", follow: true, interval: 200 })) {
  if (!left.delete(call.conversationId)) continue;
  try {
    // The arguments may be edited; what the approver allows is remembered for a day.
    await call.approve({ args: { ...call.args, subject: "Approved" }, remember: "24h" });
    console.log("approved:", call.conversationId);
  } catch (error) {
    if (!(error instanceof StaleError)) throw error;
    console.log("somebody was quicker:", call.conversationId);
  }
  if (left.size === 0) break;
}
for (const turn of turns) console.log((await turn.result({ timeout: 60_000 })).text);
