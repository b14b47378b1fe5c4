// A worker: it takes calls from a queue, from behind any firewall.
//
// Start as many as you like: each call is one worker's at a time.
import { setTimeout } from "node:timers/promises";

import { Abide } from "@abide/client";
import { Worker } from "@abide/client/worker";

const worker = new Worker("print", { concurrency: 2, lease: 2_000 });
worker.tool("print_pages", async function* ({ pages }, { attempt }) {
  console.log("printing, attempt", attempt);
  for (let page = 1; page <= pages; page += 1) {
    // A worker that dies meanwhile loses the call to another one.
    await setTimeout(300);
    yield { page };
  }
  return { printed: pages };
});
for (const name of ["SIGINT", "SIGTERM"]) process.once(name, () => worker.stop());

if (process.argv[3] === "work") {
  await worker.run();
} else {
  const working = worker.run();
  const abide = new Abide();
  await abide.define("printer", {
    model: {
      provider: "scripted",
      script: [
        { calls: [{ name: "print_pages", args: { pages: 3 } }] },
        { text: "Printed {{ results.print_pages.result.printed }} pages." },
      ],
    },
    tools: [
      {
        name: "print_pages",
        parameters: { type: "object", properties: { pages: { type: "integer" } } },
        run: { queue: "print" },
        timeout: "1h",
      },
    ],
  });
  const conversation = abide.conversation(process.argv[2], { agent: "printer" });
  console.log((await conversation.send("Print it, please.").result({ timeout: 60_000 })).text);
  worker.stop();
  await working;
}
