// Who a customer is: a signed cookie. Your shop has a sign-in of its own in this place.
import { createHmac, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";

const CUSTOMERS = new Map([
  ["ada", "Ada"],
  ["ben", "Ben"],
]);

export interface Customer {
  id: string;
  name: string;
}

const secret = process.env.SHOP_COOKIE_SECRET ?? "";
if (secret.length < 32) throw new Error("SHOP_COOKIE_SECRET: at least 32 characters are needed");

const sign = (id: string) => createHmac("sha256", secret).update(id).digest("base64url");

/** The customer of this name, if there is one. */
export function customer(id: unknown): Customer | undefined {
  const name = typeof id === "string" ? CUSTOMERS.get(id) : undefined;
  return name === undefined ? undefined : { id: id as string, name };
}

export const cookie = ({ id }: Customer) => `customer=${id}.${sign(id)}; HttpOnly; SameSite=Strict; Path=/`;

/** Whose cookie a request carries. */
export function customerOf(request: IncomingMessage): Customer | undefined {
  const [, id, given] = /(?:^|; )customer=([a-z]+)\.([\w-]+)/.exec(request.headers.cookie ?? "") ?? [];
  if (!id) return undefined;
  const [one, other] = [Buffer.from(given), Buffer.from(sign(id))];
  return one.length === other.length && timingSafeEqual(one, other) ? customer(id) : undefined;
}
