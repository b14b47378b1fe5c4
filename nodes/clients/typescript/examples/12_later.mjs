// Later: a message that is delivered in a second, or next year, by whichever node lives then; and a schedule.
import { Abide } from "@abide/client";

const abide = new Abide();
const conversation = abide.conversation(process.argv[2], { agent: "demo" });
const { scheduled_id } = await conversation.schedule("Hello", { in: "1s" });
console.log("scheduled:", (await conversation.scheduled()).some((it) => it.scheduled_id === scheduled_id));
for await (const item of conversation.follow({ after: 0 })) {
  if (item.type === "message") console.log(item.text);
  if (item.type === "end") break;
}

// A schedule sends its message again and again. Each tick makes a conversation of its own here.
await abide.schedules.put("standup", {
  agent: "demo", cron: "30 9 * * mon-fri", timezone: "Europe/Berlin", text: "What is on today?",
});
console.log("next:", (await abide.schedules.get("standup")).next_at !== null);
await abide.schedules.delete("standup");
