// The last messages of a conversation: what led to a question.
import { html } from "../../html.js";
import { pathOf } from "../../journal.js";
import { markdown } from "../../markdown.js";
import { usePoll } from "../../poll.js";
import { link } from "../../router.js";
import { get } from "../../session.js";
import { clip, visible } from "../../text.js";

const SHOWN = 4;
const SHOWN_CHARS = 1_200;

export const textOf = ({ content }) => content.map((block) => block.text ?? "").filter(Boolean).join("\n\n");

export function Recent({ conversation }) {
  const read = (signal) => get(`${pathOf(conversation)}/messages?limit=12`, { signal });
  const { data } = usePoll(read, conversation, 15_000);
  const messages = (data?.messages ?? []).filter((it) => it.role !== "tool" && textOf(it)).slice(-SHOWN);
  if (messages.length === 0) return null;
  return html`<section class="recent" aria-label="What led to it"><h3>What led to it</h3>
    ${messages.map((it) => html`<div key=${it.id} class=${`said ${it.role}`}><span class="who">${it.role === "user" ? "Person" : "Agent"}</span>
      <div class="text">${it.role === "user" ? html`<p class="plain" dir="auto">${visible(clip(textOf(it), SHOWN_CHARS))}</p>` : markdown(clip(textOf(it), SHOWN_CHARS))}</div></div>`)}
    <p><a href=${link("c", conversation)}>Open the conversation</a></p></section>`;
}
