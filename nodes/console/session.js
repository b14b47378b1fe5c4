// For whom the page acts, and how it reaches its node: the credential, requests, and the server's clock.
import { Problem, retryDelay } from "./abide.js";
import { useEffect, useState } from "./html.js";

export { Problem };

const KEY = "abide-key";
const REQUEST_TIMEOUT_MS = 15_000;
/** How long a request that changes something is repeated while the node is away. */
const RETRY_FOR_MS = 20_000;
/** A clock that differs by less is taken for right: `Date` has whole seconds. */
const MIN_SKEW_MS = 2_500;

/** What all views know. `refused`: the node wants another credential. `away`: it does not answer. */
export const session = { config: undefined, me: undefined, refused: false, away: false, skew: 0, epoch: 0 };
const listeners = new Set();
let changes = 0;

/** Changes members of the session; views that use it are drawn again. */
export function change(members) {
  if (Object.entries(members).every(([name, value]) => session[name] === value)) return;
  Object.assign(session, members);
  changes += 1;
  listeners.forEach((listener) => listener());
}

export function useSession() {
  const [, draw] = useState(changes);
  useEffect(() => {
    const listener = () => draw(changes);
    listeners.add(listener);
    // What has changed since the view was drawn.
    listener();
    return () => listeners.delete(listener);
  }, []);
  return session;
}

/** Now by the server's clock. */
export const now = () => Date.now() + session.skew;

/** The difference that a response's `Date` shows between the server's clock and this one. */
export function skewOf(date, sentAt, receivedAt) {
  const server = Date.parse(date);
  if (Number.isNaN(server)) return 0;
  const skew = server + 500 - (sentAt + receivedAt) / 2;
  return Math.abs(skew) < MIN_SKEW_MS ? 0 : skew;
}

/** The credential of this tab, `{token, expires_at?}`; it is in no URL and in no other tab. */
export function credential() {
  const text = sessionStorage.getItem(KEY);
  if (!text) return undefined;
  return text.startsWith("{") ? JSON.parse(text) : { token: text };
}

export function setCredential(given) {
  if (given) sessionStorage.setItem(KEY, JSON.stringify(given));
  else sessionStorage.removeItem(KEY);
  change({ refused: false, me: undefined, epoch: session.epoch + 1 });
  return loadMe();
}

/** The `fetch` of the page: it learns the server's clock, and whether the node is there. */
export async function trackedFetch(url, init) {
  const sentAt = Date.now();
  let response;
  try {
    response = await fetch(url, init);
  } catch (error) {
    if (!init?.signal?.aborted || init.signal.reason?.name === "TimeoutError") change({ away: true });
    throw error;
  }
  const date = response.headers.get("date");
  const skew = date ? skewOf(date, sentAt, Date.now()) : session.skew;
  const members = { away: false };
  if (Math.abs(skew - session.skew) > MIN_SKEW_MS) members.skew = skew;
  if (response.status === 401) members.refused = true;
  change(members);
  return response;
}

async function once(method, path, { body, key, signal, as }) {
  const known = as ?? credential();
  const headers = {
    ...(known && { authorization: `Bearer ${known.token}` }),
    ...(key && { "idempotency-key": key }),
    ...(method !== "GET" && { "content-type": "application/json" }),
  };
  const signals = [AbortSignal.timeout(REQUEST_TIMEOUT_MS), ...(signal ? [signal] : [])];
  const text = body === undefined ? undefined : JSON.stringify(body);
  const init = { method, headers, body: text, signal: AbortSignal.any(signals) };
  const response = await trackedFetch(path, init);
  if (!response.ok) throw await Problem.of(response);
  const answer = await response.text();
  return answer === "" ? null : JSON.parse(answer);
}

/** Reads a path; `as` is another credential than the session's. */
export const get = (path, options = {}) => once("GET", path, options);

/** Sends a request that changes something. With a `key` it is repeated, as the same request, until the
 * node has it: a repeat gets the first answer. */
export async function send(method, path, body, { key = randomKey(), signal } = {}) {
  const until = Date.now() + RETRY_FOR_MS;
  for (let tries = 0; ; tries += 1) {
    try {
      return await once(method, path, { body, key, signal });
    } catch (error) {
      const mayHelp = !(error instanceof Problem) || [502, 503, 504].includes(error.status);
      if (!key || !mayHelp || signal?.aborted || Date.now() > until) throw error;
      await new Promise((done) => setTimeout(done, retryDelay(tries, 1)));
    }
  }
}

export const post = (path, body = {}, options = {}) => send("POST", path, body, options);

/** A random name; unlike `crypto.randomUUID`, it works without TLS. */
export function randomKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Learns who the caller is; a refusal asks for another credential. */
export async function loadMe() {
  const me = await get("/v1/me").catch((error) => (error.status ? null : undefined));
  change({ me });
  return me;
}

/** Learns which views there are and how to sign in, and repeats until the node answers. */
export async function loadConfig() {
  for (let tries = 0; ; tries += 1) {
    try {
      return await once("GET", "config.json", {});
    } catch {
      await new Promise((done) => setTimeout(done, retryDelay(tries, 1)));
    }
  }
}

/** What an error says to people. */
export function explain(error) {
  if (!(error instanceof Problem)) {
    return error?.name === "TimeoutError" ? "The node did not answer in time." :
      "The node cannot be reached.";
  }
  if (error.status === 401) return "This credential is not valid, or no longer.";
  if (error.status === 403) return `You may not do this: ${error.message.replace("the credential does not permit this: ", "")}.`;
  if (error.status === 404) return "It does not exist, or is not yours to see.";
  return error.message;
}
