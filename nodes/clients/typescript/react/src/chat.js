// A transport for `useChat` of the AI SDK, and a hook with which the page listens between its requests.
import { DefaultChatTransport } from "ai";
import { useEffect, useRef } from "react";

/** The frames after which an open turn has something to tell. */
const NEWS = ["turn_started", "answered", "tool_call_resolved", "tool_call_errored"];
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
 * pages do, such as an approval in the console. A page that listens counts as connected. */
export function useListening(abide, transport, chat) {
  const newest = useRef(chat);
  useEffect(() => void (newest.current = chat));
  const { id } = chat;
  useEffect(() => {
    const conversation = abide.conversation(id, { agent: transport.agent });
    const live = conversation.live();
    let isResuming = false;
    const isIdle = () => !isResuming && ["ready", "error"].includes(newest.current.status);
    const resume = async () => {
      if (!isIdle()) return;
      isResuming = true;
      // What cannot be resumed now is read when the turn has ended.
      await Promise.resolve(newest.current.resumeStream()).catch(() => {});
      isResuming = false;
    };
    const reload = async () => {
      const messages = await transport.messages(id).catch(() => []);
      if (isIdle() && messages.length > 0 && !live.closed) newest.current.setMessages(messages);
    };
    NEWS.forEach((name) => live.on(name, resume));
    ENDS.forEach((name) => live.on(name, reload));
    return () => conversation.close();
  }, [abide, transport, id]);
}
