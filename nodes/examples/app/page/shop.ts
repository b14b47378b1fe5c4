// What the page knows of the shop: its visitor, the orders, and the nodes, to which it speaks itself.
import { Abide } from "@abide/client";

export interface Customer {
  id: string;
  name: string;
  nodes: string[];
}

export interface Order {
  id: string;
  item: string;
  total: number;
  delivered: string;
  refunded: number;
  isWaiting: boolean;
}

export const euros = (amount: number) => `€ ${amount.toFixed(2)}`;

async function get(path: string): Promise<any> {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`the shop answers ${response.status}`);
  return response.json();
}

/** The visitor, or undefined if nobody is signed in. */
export const session = (): Promise<Customer | undefined> => get("/api/session").catch(() => undefined);

export async function login(customer: string) {
  const headers = { "content-type": "application/json" };
  await fetch("/api/login", { method: "POST", headers, body: JSON.stringify({ customer }) });
}

export const readOrders = (): Promise<Order[]> => get("/api/orders");

/** The nodes, any of which answers; the token is the visitor's own, and renewed before it ends. */
export const nodesOf = ({ nodes }: Customer) => new Abide({ urls: nodes, token: () => get("/api/token") });

/** The conversation that the page's address names, or a new one. */
export function conversationOf({ id }: Customer): string {
  const named = location.hash.slice(1);
  if (/^[a-z]+\.[a-z0-9]+$/.test(named) && named.startsWith(`${id}.`)) return named;
  const random = crypto.getRandomValues(new Uint32Array(3));
  const conversation = `${id}.${Array.from(random, (it) => it.toString(36)).join("")}`;
  history.replaceState(null, "", `#${conversation}`);
  return conversation;
}
