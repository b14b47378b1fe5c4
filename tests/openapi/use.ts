// Uses a node through the types that openapi-typescript makes of the document: node use.js URL.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.d.ts";

declare const process: { argv: string[] };
const client = createClient<paths>({ baseUrl: process.argv[2] });

function expect(holds: boolean, what: string): void {
  if (!holds) throw new Error(what);
}

const mail = {
  name: "mail",
  description: "Sends a mail.",
  approval: "requires_approval",
  run: { native: "demo_send_email" },
} satisfies components["schemas"]["ToolDefinition"];
const script = [{ calls: [{ id: "m", name: "mail", args: { to: "a@b.c" } }] }, { text: "Sent." }];
const defined = await client.PUT("/v1/agents/{name}", {
  params: { path: { name: "typed" } },
  body: { model: { provider: "scripted", script }, tools: [mail] },
});
expect(defined.response.status === 201, `define: ${JSON.stringify(defined.error)}`);

const path = { id: "typed-1" };
const sent = await client.POST("/v1/conversations/{id}/messages", {
  params: { path, query: { wait: "30s" } },
  body: { agent: "typed", content: [{ type: "text", text: "Send it." }] },
});
expect(sent.response.status === 200, `send: ${JSON.stringify(sent.error)}`);

const pending = await client.GET("/v1/pending", { params: { query: { conversation: path.id } } });
const waiting = pending.data?.pending[0];
expect(waiting?.kind === "approval" && waiting.call_id === "m", "one approval waits");

const resolution = { params: { path: { ...path, call_id: "m" }, query: { wait: "30s" } } };
const approved = await client.POST("/v1/conversations/{id}/calls/{call_id}/resolution", {
  ...resolution,
  body: { approved: true, remember: { for: "5m" } },
});
expect(approved.data?.status === "accepted", `approve: ${JSON.stringify(approved.error)}`);

const again = await client.POST("/v1/conversations/{id}/calls/{call_id}/resolution", {
  ...resolution,
  body: { approved: true },
});
expect(again.error?.type === "/problems/call-not-open", "a call is answered once");

const snapshot = await client.GET("/v1/conversations/{id}", { params: { path } });
expect(snapshot.data?.state === "idle", "the turn is over");
const journal = await client.GET("/v1/conversations/{id}/journal", { params: { path } });
const results = journal.data?.events.filter((event) => event.type === "tool_result") ?? [];
expect(results.length === 1, "one result");
const kept = await client.GET("/v1/conversations/{id}/decisions", { params: { path } });
expect(kept.data?.decisions.length === 1, "the approval is remembered");
console.log("openapi-typescript: ok");
