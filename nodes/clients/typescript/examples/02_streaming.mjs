// Streaming: an answer as it is written, word by word, whichever node writes it.
import { Abide } from "@abide/client";

const conversation = new Abide().conversation(process.argv[2], { agent: "demo" });
for await (const item of conversation.send("Hello")) {
  switch (item.type) {
    case "text":
      process.stdout.write(item.text);
      break;
    case "restart":
      // The node died while it wrote: another one begins the message anew.
      console.log("\n[once more]");
      break;
    case "end":
      console.log(`\n[${item.outcome}]`);
  }
}
