// Types of the hooks.
import type { Abide, Block, Call, Conversation, InboxFilter, LiveState, SendOptions, Tool, Turn } from "@abide/client";

export interface ConversationView extends LiveState {
  /** What waits here and in the children that work for this conversation. */
  calls: Call[];
  error: Error | undefined;
  send(content: string | Block[], options?: SendOptions): Promise<Turn>;
  cancel(): Promise<boolean>;
  conversation: Conversation;
}

export function useConversation(
  abide: Abide,
  id: string,
  options?: { agent?: string; tools?: Record<string, Tool> },
): ConversationView;

export interface InboxView {
  calls: Call[];
  error: Error | undefined;
  loading: boolean;
  refresh(): void;
}

export function useInbox(abide: Abide, options?: InboxFilter & { interval?: number }): InboxView;
