// The first answer: send a message, and wait for what comes of it.
//
//     ABIDE_URL=http://127.0.0.1:8080 node 01_first_answer.mjs [CONVERSATION]
import { Abide } from "@abide/client";

const conversation = new Abide().conversation(process.argv[2], { agent: "demo" });
const { text } = await conversation.send("Hello").result({ timeout: 60_000 });
console.log(text);
