// What the nodes tell the shop by a webhook: that somebody is to decide, what was decided, and the evening's sum.
import type { IncomingMessage } from "node:http";

import { SignatureError, verify } from "@abide/client/http-tools";

const secret = process.env.SHOP_NOTICES_SECRET ?? "";
/** More than a notice has. */
const MAX_BYTES = 256 << 10;

/** Your shop writes to its chat, or sends a mail, in this place. */
const tellTeam = (text: string) => console.log(`team: ${text}`);

/** The order of each call that waits for a person. Your shop has a database in this place. */
const waiting = new Map<string, string>();
/** The ids of the last notices, since one may come twice. */
const seen = new Set<string>();

export const isWaiting = (order: string) => [...waiting.values()].includes(order);

/** Takes a notice, and returns the status of the answer. After any but 2xx it comes again. */
export async function receive(request: IncomingMessage): Promise<number> {
  let body = Buffer.alloc(0);
  for await (const chunk of request) {
    body = Buffer.concat([body, chunk]);
    if (body.length > MAX_BYTES) return 413;
  }
  try {
    await verify(request.headers as Record<string, string>, body, [secret]);
  } catch (error) {
    if (error instanceof SignatureError) return 401;
    throw error;
  }
  const id = String(request.headers["webhook-id"]);
  if (!seen.has(id)) act(JSON.parse(body.toString()));
  seen.add(id);
  if (seen.size > 1_000) seen.delete([...seen][0]);
  return 204;
}

function act({ type, data }: { type: string; data: any }) {
  const call = `${data.conversation_id}/${data.call_id}`;
  if (type === "call.suspended" && data.kind === "approval") {
    waiting.set(call, data.args?.order);
    tellTeam(`${data.message} It waits in the inbox as ${call}.`);
  } else if (type === "call.resolved" && waiting.delete(call)) {
    tellTeam(`${call} is ${data.approved ? "approved" : "denied"} by ${data.by}.`);
  } else if (type.startsWith("turn.")) {
    // What a turn has left waiting, as when it was cancelled, waits no more.
    for (const it of waiting.keys()) if (it.startsWith(`${data.conversation_id}/`)) waiting.delete(it);
    if (data.agent === "bookkeeper") tellTeam(data.text ?? `There is no sum: ${data.outcome}.`);
  }
}
