// The messages that wait for their turn, each of which can be withdrawn.
import { html, useEffect, useState } from "../../html.js";
import { clip, visible } from "../../text.js";

const textOf = ({ content }) => content.map(({ text }) => text ?? "").join(" ").trim();

export function Queue({ abide, state, run }) {
  const [queued, setQueued] = useState([]);
  const { turn, messages } = state;
  useEffect(() => {
    let isStale = false;
    if (turn) abide.queue().then((now) => isStale || setQueued(now)).catch(() => {});
    else setQueued([]);
    return () => (isStale = true);
  }, [abide, turn?.id, messages]);
  if (queued.length === 0) return null;
  return html`<ul class="queue" aria-label="Messages that wait">${queued.map(({ turn_id: id, message }) => html`<li key=${id}>
    <span dir="auto">${visible(clip(textOf(message), 120)) || "A message"}</span>
    <button type="button" class="plain" onClick=${() => run(() => abide.withdraw(id))}>Withdraw</button></li>`)}</ul>`;
}
