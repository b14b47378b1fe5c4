// A transport for `useChat` of the AI SDK, and a hook with which the page listens between its requests.
import { DefaultChatTransport } from "ai";
import { useEffect, useRef } from "react";

/** The frames after which a call that the page shows as waiting does so no more. */
const NEWS = ["answered", "tool_call_resolved", "tool_call_errored"];
/** The states of a part whose call waits, as far as the page knows. */
const OPEN = ["input-available", "approval-requested"];
const ENDS = ["turn_completed", "turn_cancelled", "turn_halted", "turn_failed"];

/** A transport for `useChat` over the nodes of `abide`, to any that answers. Only the last message is
 * sent: the history is the node's. `transport.messages(id)` reads it. */
export function abideTransport(abide, { agent, version = 7 }) {
  const path = `/v1/agents/${encodeURIComponent(agent)}/ui`;
  const api = `${path}?v=${version}`;
  const transport = new DefaultChatTransport({
    api,
    fetch: (url, init) => abide.fetch(url, init),
    prepareSendMessagesRequest: ({ id, messages, trigger, messageId, body }) => ({
      api,
      body: { ...body, id, messages: messages.slice(-1), trigger, messageId },
    }),
    prepareReconnectToStreamRequest: ({ id }) => ({
      api: `${path}/${encodeURIComponent(id)}/stream?v=${version}`,
    }),
  });
  transport.agent = agent;
  transport.messages = async (id) => {
    const response = await abide.fetch(`${path}/${encodeURIComponent(id)}/messages`);
    // A chat that does not exist yet has none.
    return response.ok ? response.json() : [];
  };
  return transport;
}

/** Listens between the requests of a chat, which is what `useChat` returned: shows what other people and
 * pages do, such as an approval in the console, and resumes a turn that is open when the page is loaded. A
 * page that listens counts as connected. */
export function useListening(abide, transport, chat) {
  const newest = useRef(chat);
  const wake = useRef(() => {});
  useEffect(() => void (newest.current = chat));
  useEffect(() => wake.current(), [chat.status]);
  const { id } = chat;
  useEffect(() => {
    const conversation = abide.conversation(id, { agent: transport.agent });
    const live = conversation.live();
    let isResuming = false;
    /** What is to be done once the page's own response has ended. */
    let due;
    const isIdle = () => !isResuming && ["ready", "error"].includes(newest.current.status);
    const resume = async () => {
      isResuming = true;
      // What cannot be resumed now is read when the turn has ended.
      await Promise.resolve(newest.current.resumeStream()).catch(() => {});
      isResuming = false;
      wake.current();
    };
    const reload = async () => {
      const messages = await transport.messages(id).catch(() => []);
      if (isIdle() && messages.length > 0 && !live.closed) newest.current.setMessages(messages);
    };
    wake.current = () => {
      if (!due || !isIdle() || live.closed) return;
      const isNeeded = due;
      due = undefined;
      if (isNeeded(newest.current.messages)) (live.state.turn ? resume : reload)();
    };
    const when = (isNeeded) => {
      due = isNeeded;
      wake.current();
    };
    // A response that was told the news already needs no other: a resumed one calls tools again.
    live.on("snapshot", () =>
      when((messages) => {
        const { turn, pending } = live.state;
        const isShown = turn && messages.some((it) => it.id === turn.id);
        return !isShown || isOpen(messages, (id) => !pending.some(({ call_id }) => call_id === id));
      }),
    );
    live.on("turn_started", ({ turn_id }) => when((messages) => !messages.some((it) => it.id === turn_id)));
    for (const name of NEWS) {
      live.on(name, ({ call_id }) => when((messages) => isOpen(messages, (it) => it === call_id)));
    }
    ENDS.forEach((name) => live.on(name, () => when(() => true)));
    return () => {
      wake.current = () => {};
      conversation.close();
    };
  }, [abide, transport, id]);
}

/** Whether the messages show a call with such an id that waits. */
function isOpen(messages, isSuch) {
  const parts = messages.flatMap((message) => message.parts);
  return parts.some(({ toolCallId, state }) => OPEN.includes(state) && isSuch(toolCallId));
}
