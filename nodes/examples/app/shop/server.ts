// The shop's own server: it serves the page, says who its visitor is, mints the visitor's token, runs a tool, and is
// told by a webhook what its people should know.
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";

import { Abide } from "@abide/client";

import orders from "../orders.json";
import { bookkeeper, support } from "./agent";
import { isWaiting, receive } from "./notices";
import { cookie, customer, customerOf, type Customer } from "./session";
import { tools } from "./tools";

/** A variable of the environment that must be there. */
function variable(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set`);
  return value;
}

/** Where browsers reach the nodes; ABIDE_URL is where this server does. */
const nodes = variable("SHOP_NODES").split(",");
const payments = variable("PAYMENTS_URL");
// With the key of ABIDE_TOKEN, which never leaves this server.
const abide = new Abide();

const page = (name: string) => readFileSync(new URL(`page/${name}`, import.meta.url));
const files = new Map([
  ["/", { type: "text/html; charset=utf-8", body: page("index.html") }],
  ["/page.js", { type: "text/javascript; charset=utf-8", body: page("page.js") }],
  ["/icon.svg", { type: "image/svg+xml", body: page("icon.svg") }],
  ["/page.css", { type: "text/css; charset=utf-8", body: page("page.css") }],
]);
/** The page runs no script and reaches no server but the shop's own and the nodes. */
const policy =
  `default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self' ${nodes.join(" ")}; ` +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

function send(response: ServerResponse, status: number, value: unknown, headers = {}) {
  response.writeHead(status, { "content-type": "application/json", "cache-control": "no-store", ...headers });
  response.end(JSON.stringify(value));
}

/** The JSON of a small request, or undefined if it is none. */
async function read(request: IncomingMessage): Promise<any> {
  let text = "";
  for await (const chunk of request.setEncoding("utf8")) {
    text += chunk;
    if (text.length > 1_000) return undefined;
  }
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A token with which the customer's page speaks to the nodes: for conversations whose ids begin with the
 * customer's name and for this agent, and not for approving anything. */
const mint = ({ id, name }: Customer) =>
  abide.request("POST", "/v1/tokens", {
    body: {
      subject: id,
      name,
      conversation_prefix: `${id}.`,
      agent: "support",
      scope: ["create", "read", "send", "cancel"],
      ttl: "15m",
    },
  });

/** The customer's orders, each with what was paid back for it, and whether somebody is to decide about it. */
async function ordersOf({ id }: Customer) {
  const response = await fetch(new URL("/refunds", payments), { signal: AbortSignal.timeout(5_000) });
  const refunds: { order: string; amount: number }[] = await response.json();
  const refunded = (order: string) =>
    refunds.filter((it) => it.order === order).reduce((sum, { amount }) => sum + amount, 0);
  return orders
    .filter((it) => it.customer === id)
    .map((it) => ({ ...it, refunded: refunded(it.id), isWaiting: isWaiting(it.id) }));
}

async function answer(request: IncomingMessage, response: ServerResponse) {
  const { method, url } = request;
  const file = files.get(url ?? "");
  if (method === "GET" && file) {
    const headers = {
      "content-type": file.type,
      "content-security-policy": policy,
      "x-content-type-options": "nosniff",
      "referrer-policy": "no-referrer",
      "cache-control": "no-cache",
    };
    return response.writeHead(200, headers).end(file.body);
  }
  if (url === "/tools") return tools.listener(request, response);
  if (url === "/notices") return response.writeHead(await receive(request)).end();
  if (method === "POST" && url === "/api/login") {
    // Pages of other origins cannot send this type unasked.
    const isJson = request.headers["content-type"] === "application/json";
    const who = isJson ? customer((await read(request))?.customer) : undefined;
    if (!who) return send(response, 422, { error: "customer: there is none of this name" });
    return send(response, 200, who, { "set-cookie": cookie(who) });
  }
  const who = customerOf(request);
  if (method !== "GET" || !url?.startsWith("/api/")) return send(response, 404, { error: "not found" });
  if (!who) return send(response, 401, { error: "sign in first" });
  if (url === "/api/session") return send(response, 200, { ...who, nodes });
  if (url === "/api/token") return send(response, 200, await mint(who));
  if (url === "/api/orders") return send(response, 200, await ordersOf(who));
  return send(response, 404, { error: "not found" });
}

// What the nodes are to know, put anew at each start. `here`: where they reach this server.
const here = variable("SHOP_URL");
await abide.define("support", support({ orders: new URL("/tools", here).href, payments }));
await abide.define("bookkeeper", bookkeeper({ payments }));
await abide.webhooks.put("team", {
  url: new URL("/notices", here).href,
  events: ["call.suspended", "call.resolved", "turn.completed", "turn.cancelled", "turn.halted", "turn.failed"],
  secret_env: "SHOP_NOTICES_SECRET",
});
await abide.schedules.put("evening", {
  agent: "bookkeeper",
  cron: "0 18 * * *",
  timezone: "Europe/Berlin",
  text: "What was paid back?",
});
const [host, port] = (process.env.SHOP_LISTEN ?? "127.0.0.1:3000").split(":");
const server = createServer((request, response) => {
  answer(request, response).catch((error) => {
    console.error(error);
    if (!response.headersSent) send(response, 502, { error: "the shop cannot answer now" });
    else response.destroy();
  });
});
server.listen(Number(port), host, () => {
  const address = server.address() as { port: number };
  console.log(`shop: http://${host}:${address.port}/`);
});
for (const signal of ["SIGTERM", "SIGINT"]) {
  process.on(signal, () => process.exit(0));
}
