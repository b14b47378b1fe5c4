// Which view the address asks for. Views are fragments, so that any path of the node serves them.
import { useLayoutEffect, useState } from "./html.js";

/** `#/c/trip-17?x=1` as `{view: "c", id: "trip-17", query}`. A fragment that cannot be read is the home. */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [view = "", id] = path.split("/");
  try {
    return { view, id: id === undefined ? undefined : decodeURIComponent(id), query: new URLSearchParams(query) };
  } catch {
    return { view: "", query: new URLSearchParams() };
  }
}

export const link = (view, id, query = {}) => {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const text = new URLSearchParams(given).toString();
  return `#/${view}${id === undefined ? "" : `/${encodeURIComponent(id)}`}${text && `?${text}`}`;
};

export const go = (hash) => {
  location.hash = hash;
};

/** Changes the query of the view without a new entry in the history. */
export const replace = (hash) => {
  history.replaceState(null, "", hash);
  dispatchEvent(new HashChangeEvent("hashchange"));
};

export function useRoute() {
  const [route, setRoute] = useState(() => parse(location.hash));
  // In the same task as the first view: a link that is followed before the next frame is not lost.
  useLayoutEffect(() => {
    const changed = () => setRoute(parse(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

/** Links of the first console, `?conversation=c&agent=a`, lead to the conversation. */
export function fromQuery(search) {
  const query = new URLSearchParams(search);
  const conversation = query.get("conversation");
  return conversation ? link("c", conversation, { agent: query.get("agent") ?? "demo" }) : undefined;
}
