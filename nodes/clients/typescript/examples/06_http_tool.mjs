// An HTTP tool: a server that nodes call, and that believes only requests with their signature.
//
// The nodes must have the same secret: start them with PRICE_SECRET=whsec_… in their environment.
import { once } from "node:events";
import { createServer } from "node:http";
import { setTimeout } from "node:timers/promises";

import { Abide } from "@abide/client";
import { HttpTools, Rejection } from "@abide/client/http-tools";

const tools = new HttpTools({ secrets: [process.env.PRICE_SECRET] });
tools.tool("price", async ({ sku }) => {
  if (!sku) throw new Rejection("which article?");
  console.log("asked for the price of", sku);
  // It is looked up. A node that dies meanwhile asks again, and this runs once.
  await setTimeout(300);
  return { sku, price: 12.5 };
});
const server = createServer(tools.listener).listen(0, "127.0.0.1");
await once(server, "listening");

const abide = new Abide();
await abide.define("shop", {
  model: {
    provider: "scripted",
    // It takes its time like a real one.
    script: [
      { delay: "100ms", text: "Let me see.", calls: [{ name: "price", args: { sku: "A-17" } }] },
      { delay: "100ms", text: "It costs {{ results.price.result.price }}." },
    ],
  },
  tools: [
    {
      name: "price",
      parameters: { type: "object", properties: { sku: { type: "string" } } },
      run: {
        http: { url: `http://127.0.0.1:${server.address().port}/price`, signing_secret_env: "PRICE_SECRET" },
      },
    },
  ],
});
const conversation = abide.conversation(process.argv[2], { agent: "shop" });
console.log((await conversation.send("What does it cost?").result({ timeout: 60_000 })).text);
server.close();
server.closeAllConnections();
