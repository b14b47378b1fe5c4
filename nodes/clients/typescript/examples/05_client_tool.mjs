// A client tool: the model calls a function of this program, or of a page.
import { Abide } from "@abide/client";

const conversation = new Abide().conversation(process.argv[2], { agent: "demo" });
conversation.tool("locate", async (args, call) => {
  console.log("the model asks:", call.tool);
  return { city: "Graz" };
});
// What the function throws, the model reads as an error.
console.log((await conversation.send("Where am I?").result({ timeout: 60_000 })).text);
conversation.close();
