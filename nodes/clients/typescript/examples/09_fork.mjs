// A fork: another conversation with the same beginning, to try something else.
import { Abide } from "@abide/client";

const conversation = new Abide().conversation(process.argv[2], { agent: "demo" });
await conversation.send("Hello").result({ timeout: 60_000 });
const ends = [];
for await (const { type, seq } of conversation.journal()) if (type === "turn_ended") ends.push(seq);
await conversation.send("This is said in the original").result({ timeout: 60_000 });

const fork = await conversation.fork({ at: ends[0] });
console.log((await fork.send("This is said in the fork").result({ timeout: 60_000 })).text);
for (const one of [conversation, fork]) {
  const { messages } = await one.messages();
  console.log(messages.length, "messages,", messages.at(-2).content[0].text);
}
