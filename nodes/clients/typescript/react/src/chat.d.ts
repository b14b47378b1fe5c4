// Types of the transport for `useChat`.
import type { Abide } from "@abide/client";
import type { DefaultChatTransport, UIMessage } from "ai";

export type AbideTransport<M extends UIMessage = UIMessage> = DefaultChatTransport<M> & {
  readonly agent: string;
  messages(id: string): Promise<M[]>;
};

export function abideTransport<M extends UIMessage = UIMessage>(
  abide: Abide,
  options: { agent: string; version?: 6 | 7 },
): AbideTransport<M>;

export function useListening<M extends UIMessage>(
  abide: Abide,
  transport: AbideTransport<M>,
  chat: {
    id: string;
    status: string;
    messages: M[];
    resumeStream: () => Promise<void> | void;
    setMessages: (messages: M[]) => void;
  },
): void;
