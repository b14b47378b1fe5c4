// How a conversation is: its state, holder, use, todos, and the end of its journal.
import { html, useState } from "../../html.js";
import { pathOf } from "../../journal.js";
import { Badge, State, Trouble } from "../../parts.js";
import { link } from "../../router.js";
import { send, useSession } from "../../session.js";
import { clip, clock, count, visible } from "../../text.js";

const TAIL = 8;
const MARKS = { pending: "○", in_progress: "◐", completed: "●" };

/** When the conversation is deleted, which can be changed. */
function End({ id, at }) {
  const [trouble, setTrouble] = useState();
  const change = () => {
    const text = prompt("Delete it at, such as 2030-01-31T12:00Z. Empty: keep it", at ?? "");
    if (text !== null) send("PATCH", pathOf(id), { expires_at: text.trim() || null }).then(() => setTrouble(), setTrouble);
  };
  return html`<div><dt>Kept until</dt><dd>${at ? clock(at) : "somebody deletes it"}
    <button type="button" class="link" onClick=${change}>Change</button><${Trouble} error=${trouble} /></dd></div>`;
}

export function Facts({ id, state, events = [] }) {
  const { config } = useSession();
  const { usage = {}, holder, todos = [], phase, owner, members = [] } = state;
  const fact = (name, value) => value && html`<div><dt>${name}</dt><dd>${value}</dd></div>`;
  const cost = usage.cost_usd ? ` · $${usage.cost_usd.toFixed(4)}` : "";
  return html`<aside class="side" aria-label="About this conversation">
    <dl class="facts"><div><dt>State</dt><dd><${State} state=${state.state} /></dd></div>
      ${fact("Agent", html`<a href=${link("agents", state.agent)}>${visible(clip(state.agent, 40))}</a>`)}
      ${fact("Revision", state.revision && html`<code>${state.revision.slice(0, 8)}</code>${state.canary && html` <${Badge} tone="run">rollout<//>`}`)}
      ${fact("Held by", holder ? `${clip(holder.node, 40)}, epoch ${holder.epoch}` : "no node: it rests in the store")}
      ${fact("Used", `${count((usage.input_tokens ?? 0) + (usage.output_tokens ?? 0))} tokens${cost}`)}
      ${phase && phase !== "default" && fact("Phase", html`<${Badge} tone="wait">${phase}<//>`)}
      ${fact("Owner", owner && visible(clip(owner, 60)))}
      ${members.length > 0 && fact("Members", visible(clip(members.join(", "), 200)))}
      ${fact("Began", state.created_at && clock(state.created_at))}
      <${End} key=${id} id=${id} at=${state.expires_at} /></dl>
    ${config.views.includes("why") && html`<p><a class="button-link" href=${link("why", id)}>${state.state === "idle" ? "Look inside" : "Why does it wait?"}</a></p>`}
    ${todos.length > 0 && html`<h2>To do</h2><ul class="todos">${todos.map((todo, index) => html`<li key=${index} class=${todo.status}>
      <span role="img" aria-label=${todo.status.replace("_", " ")}>${MARKS[todo.status] ?? "○"}</span> ${visible(clip(todo.content, 300))}</li>`)}</ul>`}
    ${events.length > 0 && html`<h2>Journal</h2><ol class="tail">${events.slice(-TAIL).reverse().map((event) => html`<li key=${event.seq}>
      <span class="seq">${event.seq}</span> ${event.type.replaceAll("_", " ")} <time title=${event.at}>${event.at.slice(11, 19)}</time></li>`)}</ol>`}
  </aside>`;
}
