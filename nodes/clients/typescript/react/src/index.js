// React hooks for conversations and the inbox, and a transport for `useChat`.
import { useCallback, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";

const EMPTY = Object.freeze({
  connected: false,
  messages: [],
  pending: [],
  child_pending: [],
  in_flight: [],
  streaming: null,
});

/** The newest value, for functions that outlive a rendering. */
function useNewest(value) {
  const newest = useRef(value);
  useEffect(() => void (newest.current = value));
  return newest;
}

/** Follows a conversation as long as the component is there: the members of its state, with `calls` (what
 * waits, each to `approve()`, `deny()` or `answer()`), `error`, `send(content, options)` and `cancel()`.
 * `agent` creates the conversation if it does not exist; `tools` are client tools by name. */
export function useConversation(abide, id, { agent, tools = {} } = {}) {
  const newestTools = useNewest(tools);
  const names = Object.keys(tools).sort().join(" ");
  const [error, setError] = useState();
  const view = useMemo(() => ({ conversation: abide.conversation(id, { agent }), live: undefined }), [abide, id, agent]);
  const subscribe = useCallback(
    (changed) => {
      const { conversation } = view;
      setError(undefined);
      view.live = conversation.live();
      for (const name of names.split(" ").filter(Boolean)) {
        conversation.tool(name, (args, call) => newestTools.current[name](args, call));
      }
      const removals = [view.live.on("change", changed), view.live.on("error", setError)];
      return () => {
        removals.forEach((remove) => remove());
        conversation.close();
      };
    },
    [view, names, newestTools],
  );
  const state = useSyncExternalStore(subscribe, () => view.live?.state ?? EMPTY, () => EMPTY);
  const { conversation } = view;
  const calls = useMemo(
    () => [...state.pending, ...state.child_pending].map((entry) => conversation.call(entry)),
    [conversation, state.pending, state.child_pending],
  );
  const send = useCallback((content, options) => conversation.send(content, options).ready(), [conversation]);
  const cancel = useCallback(() => conversation.cancel(), [conversation]);
  return { ...state, calls, error, send, cancel, conversation };
}

/** What waits in the whole cluster, asked for every `interval` ms while the page is visible: `calls`,
 * `error`, `loading`, and `refresh()`. The members of the filter are those of `abide.inbox`. */
export function useInbox(abide, { kind, agent, tool, conversation, mine, interval = 2_000 } = {}) {
  const [inbox, setInbox] = useState({ calls: [], error: undefined, loading: true });
  const [asked, setAsked] = useState(0);
  useEffect(() => {
    const end = new AbortController();
    const { signal } = end;
    const read = async () => {
      const calls = [];
      for await (const call of abide.inbox({ kind, agent, tool, conversation, mine, signal })) calls.push(call);
      return { calls, error: undefined, loading: false };
    };
    let timer;
    const ask = async () => {
      const next = globalThis.document?.hidden
        ? undefined
        : await read().catch((error) => ({ error, loading: false }));
      if (signal.aborted) return;
      // What was read before an error is still shown.
      if (next) setInbox((before) => ({ ...before, ...next }));
      timer = setTimeout(ask, interval);
    };
    ask();
    return () => {
      clearTimeout(timer);
      end.abort();
    };
  }, [abide, kind, agent, tool, conversation, mine, interval, asked]);
  const refresh = useCallback(() => setAsked((times) => times + 1), []);
  return { ...inbox, refresh };
}
