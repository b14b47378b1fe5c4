// Uses what the packages export, strictly typed: `tsc --noEmit`.
import { Abide, CutOffError, StaleError, WaitingError, type Call, type Item } from "@abide/client";
import { HttpTools, Rejection, Reply } from "@abide/client/http-tools";
import { Worker } from "@abide/client/worker";
import { useConversation, useInbox } from "@abide/react";
import { abideTransport, useListening } from "@abide/react/chat";
import { createReadStream } from "node:fs";
import { createServer } from "node:http";

const abide = new Abide({ urls: ["http://a:8080"], token: async () => ({ token: "t", expires_at: "2027-01-01T00:00:00.000Z" }) });
const conversation = abide.conversation("c", { agent: "demo" });

export async function use(): Promise<string> {
  await abide.define("a", { model: { provider: "scripted", script: [{ text: "Hi" }] } });
  for await (const item of conversation.send("Hello", { ifBusy: "queue" })) tell(item);
  conversation.tool("locate", async (args, { signal }) => ({ aborted: signal.aborted, of: args.of }));
  try {
    const { object } = await conversation.send([{ type: "text", text: "x" }]).result<{ city: string }>({ timeout: 1_000 });
    return object?.city ?? "";
  } catch (error) {
    if (error instanceof WaitingError) for (const call of error.pending) await call.deny({ reason: "no" });
    if (error instanceof StaleError) return error.problem.detail ?? error.type;
    throw error;
  }
}

function tell(item: Item): string {
  switch (item.type) {
    case "text":
    case "thinking":
      return item.text;
    case "suspended":
      return item.kind === "elicitation" ? item.message : item.tool;
    case "message":
      return item.message.id;
    case "end":
      return `${item.outcome} ${item.usage.input_tokens ?? 0}`;
    default:
      return item.type;
  }
}

export async function read(): Promise<number> {
  let seq = 0;
  for await (const event of conversation.journal()) seq = event.type === "turn_ended" ? event.seq : seq;
  const fork = await conversation.fork({ at: seq });
  const { messages, more } = await fork.messages({ limit: 10 });
  const filter = { agent: "demo", metadata: { customer: "4711" }, activeAfter: "2026-11-19T00:00:00Z", rootOnly: false };
  for await (const { title, pending } of abide.conversations({ ...filter, order: "created" })) seq += (title ?? "").length + pending;
  for await (const { revision, newest } of abide.agents.revisions("demo")) if (!newest) await abide.agents.rollBack("demo", revision);
  const waiting: Call[] = [];
  for await (const call of abide.inbox({ kind: "approval", mine: true })) waiting.push(call);
  return messages.length + Number(more) + waiting.length + (await fork.snapshot()).last_seq;
}

export async function move(file: Blob, elsewhere: Abide): Promise<string> {
  await conversation.state.put("cart", { items: [1] });
  const { items } = await conversation.state.get<{ items: number[] }>("cart");
  await conversation.exportTo(new WritableStream<Uint8Array>());
  for await (const { size } of conversation.blobs()) items.push(size ?? 0);
  const copies = [conversation.export(), file, ["text", new Uint8Array(1)], createReadStream("c.ndjson"), () => conversation.export(), async () => file];
  for (const body of copies) await elsewhere.importConversation(body, { keepId: false, key: "k" });
  try {
    for await (const piece of conversation.export({ signal: AbortSignal.timeout(1_000) })) items.push(piece.length);
  } catch (error) {
    if (error instanceof CutOffError) return error.message;
  }
  return String(items);
}

const tools = new HttpTools({ secrets: ["whsec_AAAA"] }).tool("price", ({ sku }, { attempt }) => {
  if (!sku) throw new Rejection("which?", { halt: "no use" });
  return new Reply(attempt, { ui: { kind: "x", payload: 1 } });
});
createServer(tools.listener);

export async function work(): Promise<void> {
  const worker = new Worker("mail", { urls: ["http://a:8080"], concurrency: 2, lease: 30_000, name: "w" });
  worker.tool("send", async ({ to }, { signal, idempotencyKey }) => ({ to, key: idempotencyKey, lost: signal.aborted }));
  setTimeout(() => worker.stop(), 1_000);
  await worker.run();
}

export function Component() {
  const { messages, streaming, calls, send, error } = useConversation(abide, "c", { tools: { locate: () => 1 } });
  const inbox = useInbox(abide, { kind: "approval", interval: 1_000 });
  const transport = abideTransport(abide, { agent: "demo" });
  useListening(abide, transport, { id: "c", status: "ready", messages: [], resumeStream: async () => {}, setMessages: () => {} });
  void send("x");
  return `${messages.length} ${streaming?.text} ${calls[0]?.callId} ${error?.message} ${inbox.loading}`;
}
