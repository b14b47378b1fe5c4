// The chat: `useChat` of the AI SDK over the nodes, and what the page makes of the agent's calls.
import { abideTransport, useListening } from "@abide/react/chat";
import { useChat } from "@ai-sdk/react";
import { type FormEvent, type ReactNode, useEffect, useRef, useState } from "react";

import { euros } from "./shop";

/** A part of a message, as far as the page reads it. */
interface Part {
  type: string;
  text?: string;
  toolName?: string;
  toolCallId?: string;
  state?: string;
  input?: any;
  output?: any;
  errorText?: string;
}

const toolOf = (part: Part) => part.toolName ?? part.type.replace(/^tool-/, "");

function Card({ kind, title, children }: { kind: string; title: string; children: ReactNode }) {
  return (
    <div className={`card ${kind}`} data-card={kind}>
      <strong>{title}</strong>
      <span>{children}</span>
    </div>
  );
}

function Lookup({ part }: { part: Part }) {
  if (part.state === "output-error") return null;
  const order = part.output;
  if (!order) return <p className="doing">Looking up order {part.input?.order} …</p>;
  return (
    <Card kind="order" title={`Order ${order.id}`}>
      {order.item} · {euros(order.total)} · delivered {order.delivered}
    </Card>
  );
}

function Refund({ part, isWaiting }: { part: Part; isWaiting: boolean }) {
  const { state, input, output } = part;
  // Arguments that the nodes refuse were never shown to anybody.
  if (!input?.amount || (state === "output-error" && !part.errorText)) return null;
  const title = `Refund of ${euros(input.amount)}`;
  if (state === "output-available") {
    return (
      <Card kind="done" title={title}>
        Approved and paid. Reference {output.reference}
      </Card>
    );
  }
  if (state === "output-denied") return <Card kind="denied" title={title}>Not approved by the shop</Card>;
  if (state === "output-error") return <Card kind="denied" title={title}>{part.errorText}</Card>;
  return (
    <Card kind="waiting" title={title}>
      {isWaiting ? "Waiting for a colleague of the shop to approve it" : "Approved. The bank is being asked …"}
    </Card>
  );
}

function Label({ part }: { part: Part }) {
  const { state, input, output } = part;
  // Without a refund there is no order to send back.
  if (!input?.order || state === "output-error") return null;
  return (
    <Card kind="label" title={`Label for the way back of order ${input.order}`}>
      {output ? `Printed: ${output.label}` : "The warehouse prints it …"}
    </Card>
  );
}

/** What the nodes have refused, or that none answers now. */
function explain(error: Error | undefined): string {
  try {
    return JSON.parse(error?.message ?? "").detail;
  } catch {
    return "The connection was lost. This page goes on by itself.";
  }
}

export function Chat({ abide, id, initial, draft, onRefund }: any) {
  const [transport] = useState(() => abideTransport(abide, { agent: "support" }));
  /** The call that waits for somebody else, and whether an earlier response has said so. */
  const [waiting, setWaiting] = useState<string>();
  const isOld = useRef(false);
  const [text, setText] = useState("");
  const field = useRef<HTMLTextAreaElement>(null);
  const end = useRef<HTMLDivElement>(null);
  const chat = useChat({
    id,
    messages: initial,
    transport,
    onData: ({ type, data }: any) => {
      if (type === "data-abide-progress") setWaiting(undefined);
      if (type !== "data-abide-waiting") return;
      isOld.current = false;
      setWaiting(data.call_id);
    },
  });
  useListening(abide, transport, chat);
  useEffect(() => {
    // A response, also one that is resumed, says anew what waits.
    if (chat.status === "streaming" && isOld.current) setWaiting(undefined);
    if (chat.status !== "submitted") isOld.current = chat.status !== "streaming";
  }, [chat.status]);
  const parts: Part[] = chat.messages.flatMap((message: any) => message.parts);
  const refunds = parts.filter((part) => toolOf(part) === "refund" && part.state === "output-available").length;
  useEffect(() => void onRefund(), [refunds]);
  useEffect(() => void end.current?.scrollIntoView({ block: "end" }), [chat.messages]);
  useEffect(() => {
    if (!draft) return;
    setText(draft.text);
    field.current?.focus();
  }, [draft]);
  const isBusy = chat.status === "submitted" || chat.status === "streaming";
  const waits = parts.some((part) => toolOf(part) === "refund" && part.state === "input-available");
  const send = (event?: FormEvent) => {
    event?.preventDefault();
    if (!text.trim() || isBusy || waits) return;
    chat.sendMessage({ text: text.trim() });
    setText("");
  };
  return (
    <section className="chat" aria-label="Support">
      <div className="messages" role="log" aria-live="polite" tabIndex={0} aria-label="Messages">
        {chat.messages.length === 0 && <p className="hint">Hello! Is something wrong with an order? Tell us.</p>}
        {chat.messages.map((message: any) => (
          <article key={message.id} className={message.role}>
            {message.parts.map((part: Part, n: number) => {
              if (part.type === "text" && part.text?.trim()) return <p key={n}>{part.text}</p>;
              if (toolOf(part) === "look_up_order") return <Lookup key={n} part={part} />;
              if (toolOf(part) === "refund") {
                const isWaiting = waiting === part.toolCallId || chat.status !== "streaming";
                return <Refund key={n} part={part} isWaiting={isWaiting} />;
              }
              if (toolOf(part) === "print_label") return <Label key={n} part={part} />;
              return null;
            })}
          </article>
        ))}
        {chat.status === "error" && !waits && <p className="hint">{explain(chat.error)}</p>}
        <div ref={end} />
      </div>
      <form onSubmit={send}>
        <textarea
          ref={field}
          aria-label="Your message"
          placeholder={waits ? "We are asking a colleague …" : "Write to us"}
          rows={2}
          maxLength={2_000}
          value={text}
          onChange={({ target }) => setText(target.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && !event.shiftKey) send(event);
          }}
        />
        <button type="submit" disabled={!text.trim() || isBusy || waits}>
          Send
        </button>
      </form>
    </section>
  );
}
