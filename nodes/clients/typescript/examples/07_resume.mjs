// Resuming after a reload: what was read before is not read again, and nothing is missed.
import { Abide } from "@abide/client";

// The program reads some words, and ends in the middle of the answer.
const words = [];
let bookmark;
{
  const conversation = new Abide().conversation(process.argv[2], { agent: "demo" });
  const turn = conversation.send("Hello");
  for await (const item of turn) {
    if (item.type === "text") words.push(item.text);
    if (words.length === 3) break;
  }
  bookmark = JSON.stringify({ id: conversation.id, cursor: turn.cursor });
}
console.log("read before:", words.join(""));

// Another program, or the page that was loaded again, goes on from the place that was noted.
const { id, cursor } = JSON.parse(bookmark);
for await (const item of new Abide().conversation(id).turn(cursor)) {
  if (item.type === "text") words.push(item.text);
  if (item.type === "restart") words.length = 0;
}
console.log("all of it:", words.join(""));
