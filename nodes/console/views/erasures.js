// Erasures: a person is erased, how far that has come, and the report for them.
import { html, useState } from "../html.js";
import { notify } from "../notices.js";
import { Badge, Dialog, Elapsed, Empty, Loading, NotYet, Trouble } from "../parts.js";
import { usePoll } from "../poll.js";
import { go, link } from "../router.js";
import { get, post } from "../session.js";
import { clip, clock, count, plural, visible, words } from "../text.js";

const path = "erasures";
const PAGE = 200;
const TONES = { running: "run", done: "ok" };
const STEPS = ["sources", "conversations", "others", "things", "operations", "last", "disk"];

export function View({ route: { id } }) {
  const { data, error, refresh } = usePoll((signal) => get(`/v1/erasures?limit=${PAGE}`, { signal }), path, 4_000);
  const [isNew, setNew] = useState(false);
  if (!data) return html`<${NotYet} title="Erasures" error=${error} retry=${refresh} />`;
  const { erasures } = data;
  return html`<div class="list-view"><header class="view-head"><h1>Erasures</h1><p class="count">${erasures.length > 0 && plural(erasures.length, "erasure")}</p>
      <button type="button" class="primary" onClick=${() => setNew(true)}>New …</button></header>
    <${Trouble} error=${error} retry=${refresh} />
    ${erasures.length === 0 && html`<${Empty} title="Nobody was erased"><p>An erasure deletes what a person has, and takes their name out of what is others'.</p><//>`}
    <div class=${`panes wide-ish ${id ? "has-detail" : ""}`}><div class="pane-list"><ul class="rows flat">${erasures.map((it) => html`<li key=${it.id} class="row-item">
      <a class="row-main" href=${link(path, it.id)} aria-current=${it.id === id ? "true" : undefined}><span class="row-title">${visible(clip(it.owner ?? it.alias, 80))}</span>
      <span class="row-meta">${plural(it.conversations, "conversation")} <time datetime=${it.started_at}>${clock(it.started_at)}</time></span>
      <span class="row-side"><${Badge} tone=${TONES[it.state]}>${it.state}<//></span></a></li>`)}</ul></div>
      ${id && html`<div class="pane-detail"><p class="back"><a href=${link(path)}>All erasures</a></p><${Erasure} key=${id} id=${id} /></div>`}</div>
    ${isNew && html`<${NewErasure} onClose=${() => setNew(false)} changed=${refresh} />`}</div>`;
}

function Erasure({ id }) {
  const { data, error, refresh } = usePoll((signal) => get(`/v1/erasures/${encodeURIComponent(id)}`, { signal }), id, 1_500);
  if (!data) return error ? html`<${Trouble} error=${error} retry=${refresh} />` : html`<${Loading} />`;
  const { deleted, rewritten, conversation_ids: ids } = data;
  return html`<article class="detail"><header><h2>${visible(clip(data.owner ?? data.alias, 200))}</h2></header>
    <${Trouble} error=${error} />
    ${data.state === "running" && html`<p><progress max=${STEPS.length} value=${STEPS.indexOf(data.step)} aria-label="Progress"></progress> ${words(data.step)}</p>`}
    ${data.problem && html`<p class="note">It is tried again: ${visible(clip(data.problem, 400))}</p>`}
    <dl class="facts"><div><dt>State</dt><dd><${Badge} tone=${TONES[data.state]}>${data.state}<//></dd></div>
      <div><dt>Erasure</dt><dd>${visible(data.id)}</dd></div><div><dt>Named from now on</dt><dd>${data.alias}</dd></div>
      <div><dt>Began</dt><dd>${clock(data.started_at)}</dd></div><div><dt>Took</dt><dd><${Elapsed} from=${data.started_at} to=${data.ended_at ?? undefined} /></dd></div>
      ${data.expires_at && html`<div><dt>This report goes</dt><dd>${clock(data.expires_at)}</dd></div>`}
      <div><dt>Deleted</dt><dd>${plural(deleted.conversations, "conversation")}, ${plural(deleted.schedules, "schedule")}, ${plural(deleted.api_keys, "API key")}, ${plural(deleted.decisions, "decision")}, ${plural(deleted.blobs ?? 0, "blob")}</dd></div>
      <div><dt>Rewritten</dt><dd>${plural(rewritten.conversations, "conversation")} of others, ${plural(rewritten.events, "event")}, ${count(rewritten.operations)} in the operators' audit</dd></div>
      ${data.made_since > 0 && html`<div><dt>Made since</dt><dd>${plural(data.made_since, "conversation")}: erase once more</dd></div>`}</dl>
    ${ids.length > 0 && html`<details><summary>The deleted conversations</summary><ul class="plain">${ids.slice(0, PAGE).map((it) => html`<li key=${it}>${visible(it)}</li>`)}</ul></details>`}
    <h3>Not covered</h3><ul>${data.not_covered.map((it) => html`<li key=${it}>${it}</li>`)}</ul></article>`;
}

function NewErasure({ onClose, changed }) {
  const [error, setError] = useState();
  const submit = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    try {
      const { id } = await post("/v1/erasures", { owner: form.get("owner") });
      notify("The erasure runs.");
      changed();
      onClose();
      go(link(path, id));
    } catch (problem) {
      setError(problem);
    }
  };
  return html`<${Dialog} title="Erase a person" onClose=${onClose}><form onSubmit=${submit}>
    <p>Their conversations are deleted for ever.</p>
    <div class="field"><label for="new-owner">Owner</label><input id="new-owner" name="owner" required maxlength="255" autocomplete="off" /></div>
    <${Trouble} error=${error} />
    <p class="row end"><button type="button" class="plain" onClick=${onClose}>Back</button><button class="deny">Erase for ever</button></p></form><//>`;
}
