// The journal of a conversation in a page: read once, then from where it ended.
import { empty, take } from "./calls.js";
import { useEffect, useRef, useState } from "./html.js";
import { get } from "./session.js";

const PAGE = 1_000;
/** The newest events suffice: who wants all of them reads the journal itself. */
const MAX_EVENTS = 3_000;
/** Several frames of one moment are read together. */
const GATHER_MS = 120;

export const pathOf = (id) => `/v1/conversations/${encodeURIComponent(id)}`;

/** Reads all events after `after`, as far as `MAX_EVENTS`. */
async function read(id, after, signal) {
  const found = [];
  for (;;) {
    const page = await get(`${pathOf(id)}/journal?after=${after}&limit=${PAGE}`, { signal });
    found.push(...page.events);
    after = page.events.at(-1)?.seq ?? after;
    if (page.events.length === 0 || after >= page.last_seq || found.length >= MAX_EVENTS) return { found, last: page.last_seq };
  }
}

/** The histories of `id`, read again whenever `version` changes: `{history, events, error}`. */
export function useJournal(id, version) {
  const [state, setState] = useState({ id });
  const kept = useRef({});
  useEffect(() => {
    const stop = new AbortController();
    if (kept.current.id !== id) kept.current = { id, events: [], history: empty() };
    const mine = kept.current;
    const run = async () => {
      try {
        if (mine.history.lastSeq === 0) {
          const { last_seq } = await get(`${pathOf(id)}/journal?limit=1`, { signal: stop.signal });
          mine.history.lastSeq = Math.max(0, last_seq - MAX_EVENTS);
        }
        const { found } = await read(id, mine.history.lastSeq, stop.signal);
        if (stop.signal.aborted) return;
        const fresh = found.filter((event) => event.seq > mine.history.lastSeq);
        mine.events = [...mine.events, ...fresh].slice(-MAX_EVENTS);
        mine.history = take(mine.history, fresh);
        setState({ id, history: mine.history, events: mine.events });
      } catch (error) {
        if (!stop.signal.aborted) setState((before) => ({ ...before, id, error }));
      }
    };
    const timer = setTimeout(run, mine.events.length === 0 ? 0 : GATHER_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [id, version]);
  return state.id === id ? state : { id };
}
