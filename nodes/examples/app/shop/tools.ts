// The shop's tool, which a node calls: it believes only what the node has signed.
import { HttpTools, Rejection } from "@abide/client/http-tools";

import orders from "../orders.json";

/** The customer of a conversation: a customer's token permits only ids that begin with the customer's name. */
const customerOf = (conversation: string) => conversation.split(".")[0];

export const tools = new HttpTools({ secrets: [process.env.SHOP_TOOLS_SECRET ?? ""] });

tools.tool("look_up_order", ({ order }: { order: string }, { conversationId }) => {
  // The model names the order, whoever talked it into that; whose order it may be is not the model's to say.
  const found = orders.find(({ id, customer }) => id === order && customer === customerOf(conversationId));
  if (!found) throw new Rejection(`The customer has no order ${order}.`);
  return found;
});
