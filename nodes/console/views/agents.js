// Agents: what they are, their revisions, and a conversation to try one.
import { html, useState } from "../html.js";
import { Badge, Empty, Icon, Json, Loading, Trouble } from "../parts.js";
import { usePoll } from "../poll.js";
import { link } from "../router.js";
import { get } from "../session.js";
import { ThreeThings, start } from "../start.js";
import { clip, plural, visible } from "../text.js";
import { Revisions } from "./agents/revisions.js";

const path = "agents";

export function View({ route: { id } }) {
  const { data, error, refresh } = usePoll((signal) => get("/v1/agents", { signal }), "agents", 10_000);
  if (!data && !error) return html`<${Loading} />`;
  const agents = data?.agents ?? [];
  const current = agents.find((it) => it.name === id);
  return html`<div class="list-view"><header class="view-head"><h1>Agents</h1><p class="count">${agents.length > 0 && plural(agents.length, "agent")}</p></header>
    <${Trouble} error=${error} retry=${refresh} />
    ${data && agents.length === 0 && html`<${Empty} title="No agent yet"><${ThreeThings} agents=${[]} /><//>`}
    <div class=${`panes wide-ish ${id ? "has-detail" : ""}`}><div class="pane-list"><ul class="rows flat">${agents.map((it) => html`<li key=${it.name} class="row-item">
      <a class="row-main" href=${link(path, it.name)} aria-current=${it.name === id ? "true" : undefined}><span class="row-title">${visible(clip(it.name, 80))}</span>
      <span class="row-args">${visible(clip(it.description ?? "", 160))}</span><span class="row-side"><code>${it.revision.slice(0, 8)}</code></span></a></li>`)}</ul></div>
      ${id && html`<div class="pane-detail"><p class="back"><a href=${link(path)}>All agents</a></p>${current ? html`<${Agent} key=${id} agent=${current} />` : data && html`<${Empty} title="There is no such agent"><p><a href=${link(path)}>All agents</a></p><//>`}</div>`}</div></div>`;
}

const EXECUTORS = { server: "server", client: "page", human: "person", provider: "provider" };

function Agent({ agent }) {
  const { data, error } = usePoll((signal) => get(`/v1/agents/${encodeURIComponent(agent.name)}`, { signal }), `${agent.name}@${agent.revision}`, 0);
  const [trouble, setTrouble] = useState();
  const attempt = () => start(agent.name).catch(setTrouble);
  const tools = (data?.tools ?? []).map((tool) => (typeof tool === "string" ? { name: tool } : tool));
  return html`<article class="detail agent"><header class="row spread"><h2>${visible(clip(agent.name, 80))}</h2>
      <button type="button" class="primary" onClick=${attempt}>Try it<${Icon} name="send" /></button></header>
    <${Trouble} error=${trouble ?? error} />
    ${agent.description && html`<p dir="auto">${visible(clip(agent.description, 2_000))}</p>`}
    <dl class="facts"><div><dt>Revision</dt><dd><code>${agent.revision}</code></dd></div>
      ${data?.model && html`<div><dt>Model</dt><dd>${visible(modelOf(data.model))}</dd></div>`}
      ${data?.phase && html`<div><dt>Phase</dt><dd>${data.phase}</dd></div>`}
      ${data?.retention?.idle && html`<div><dt>Retention</dt><dd>kept ${visible(clip(data.retention.idle, 40))} after the last turn</dd></div>`}
      <div><dt>Conversations</dt><dd><a href=${link("conversations", undefined, { agent: agent.name })}>Show them</a></dd></div></dl>
    ${tools.length > 0 && html`<h3>Tools</h3><ul class="tools">${tools.map((tool) => html`<li key=${tool.name}><code>${visible(clip(tool.name ?? tool.builtin ?? JSON.stringify(tool), 64))}</code>
      ${tool.executor && tool.executor !== "server" && html`<${Badge} tone="run">${EXECUTORS[tool.executor] ?? tool.executor}<//>`}
      ${gateOf(tool) && html`<${Badge} tone="wait">asks first<//>`}
      ${tool.description && html`<span class="note">${visible(clip(tool.description, 160))}</span>`}</li>`)}</ul>`}
    <${Fold} title="Revisions"><${Revisions} name=${agent.name} newest=${agent.revision} /><//>
    ${data && html`<details><summary>Definition</summary><${Json} value=${data} label="Definition" /></details>`}</article>`;
}

/** A part that is drawn, and read, once somebody opens it. */
function Fold({ title, children }) {
  const [isOpen, setOpen] = useState(false);
  return html`<details onToggle=${(event) => setOpen(event.target.open)}><summary>${title}</summary>${isOpen && children}</details>`;
}

const modelOf = (model) => clip([model.provider, model.name ?? model.model ?? model.id].filter(Boolean).join(" · "), 100);

/** Whether the definition says that the tool asks somebody first. */
const gateOf = ({ approval }) => approval !== undefined && approval !== "auto" && approval !== false;
