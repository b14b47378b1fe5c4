// Queues: the calls that wait for workers, since when, and which workers were seen.
import { html } from "../html.js";
import { Badge, Empty, NotYet, Trouble } from "../parts.js";
import { useNow, usePoll } from "../poll.js";
import { get } from "../session.js";
import { ago, clip, count, duration, plural, visible } from "../text.js";

/** A worker asks again within a minute, unless all that it has is work. */
const GONE_AFTER_MS = 90_000;

export function View() {
  const { data, error, refresh } = usePoll((signal) => get("/admin/queues", { signal }), "queues", 3_000);
  if (!data) return html`<${NotYet} title="Queues" error=${error} retry=${refresh} />`;
  const { queues } = data;
  return html`<div class="list-view"><header class="view-head"><h1>Queues</h1><p class="count">${queues.length > 0 && plural(queues.length, "queue")}</p></header>
    <${Trouble} error=${error} retry=${refresh} />
    ${queues.length === 0 && html`<${Empty} title="No queue is in use"><p>A tool that says <code>run: {queue: mail}</code> is run by workers: programs in any language that take calls over HTTP, from behind any firewall.</p><//>`}
    ${queues.map((it) => html`<${Queue} key=${`${it.queue.tenant ?? ""}/${nameOf(it)}`} it=${it} />`)}</div>`;
}

const nameOf = ({ queue }) => (typeof queue === "string" ? queue : [queue.tenant, queue.name ?? queue.queue].filter(Boolean).join("/"));

function Queue({ it }) {
  const time = useNow();
  const isAlone = it.depth > 0 && !it.workers.some((worker) => time - Date.parse(worker.last_seen) < GONE_AFTER_MS);
  return html`<section class="node" aria-label=${`Queue ${nameOf(it)}`}><header><h2>${visible(clip(nameOf(it), 80))}</h2>
      ${isAlone && html`<${Badge} tone="bad">${it.last_seen ? `no worker was seen for ${duration(time - Date.parse(it.last_seen))}` : "no worker was seen"}<//>`}</header>
    <p class="big">${count(it.depth)} <span>waiting${it.oldest && `, the oldest for ${duration(time - Date.parse(it.oldest))}`}</span></p>
    ${it.tools.length > 0 && html`<ul class="tools">${it.tools.map((tool) => html`<li key=${tool.tool}><code>${visible(clip(tool.tool, 64))}</code> ${count(tool.depth)}</li>`)}</ul>`}
    ${it.workers.length > 0 && html`<ul class="rows flat">${it.workers.map((worker) => html`<li key=${worker.name} class="row-item"><span class="row-main">
      <span class="row-title">${visible(clip(worker.name, 80))}</span><span class="row-meta">${worker.tools ? visible(clip(worker.tools.join(", "), 160)) : "any tool"} · ${plural(worker.offered, "call")}</span>
      <span class="row-side">${ago(time - Date.parse(worker.last_seen))}</span></span></li>`)}</ul>`}</section>`;
}
