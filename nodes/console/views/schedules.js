// Schedules: messages that come at set times, what became of the last one, and when the next is due.
import { html, useState } from "../html.js";
import { notify } from "../notices.js";
import { Badge, Confirm, Countdown, Dialog, Empty, Loading, NotYet, Trouble } from "../parts.js";
import { useNow, usePoll } from "../poll.js";
import { go, link } from "../router.js";
import { get, post, send } from "../session.js";
import { ago, clip, plural, visible, words } from "../text.js";

const path = "schedules";
const PAGE = 1_000;
const TONES = { completed: "ok", running: "run", cancelled: "quiet", halted: "wait", failed: "bad", refused: "bad" };
const EXAMPLE = `curl -X PUT --json '{"agent": "demo", "cron": "0 9 * * mon-fri",
  "timezone": "Europe/Berlin", "text": "What is on today?"}' \\
  ${location.origin}/v1/schedules/morning`;

const at = (name, verb = "") => `/v1/schedules/${encodeURIComponent(name)}${verb && `/${verb}`}`;
const rhythm = ({ cron, every, timezone }) => (cron ? `${cron} ${timezone ?? "UTC"}` : `every ${every}`);
const said = ({ content }) => content.map((block) => block.text ?? block.type).join(" ");

export function View({ route: { id } }) {
  const { data, error, refresh } = usePoll((signal) => get(`/v1/schedules?limit=${PAGE}`, { signal }), path, 4_000);
  const [isNew, setNew] = useState(false);
  if (!data) return html`<${NotYet} title="Schedules" error=${error} retry=${refresh} />`;
  const { schedules } = data;
  return html`<div class="list-view"><header class="view-head"><h1>Schedules</h1><p class="count">${schedules.length > 0 && plural(schedules.length, "schedule")}</p>
      <button type="button" class="primary" onClick=${() => setNew(true)}>New …</button></header>
    <${Trouble} error=${error} retry=${refresh} />
    ${schedules.length === 0 && html`<${Empty} title="No schedule yet"><p>A schedule sends an agent a message at set times: each tick happens once, whatever dies.</p>
      <pre class="snippet" tabindex="0">${EXAMPLE}</pre><//>`}
    <div class=${`panes wide-ish ${id ? "has-detail" : ""}`}><div class="pane-list"><ul class="rows flat">${schedules.map((it) => html`<${Row} key=${it.name} it=${it} isCurrent=${it.name === id} />`)}</ul></div>
      ${id && html`<div class="pane-detail"><p class="back"><a href=${link(path)}>All schedules</a></p><${Schedule} key=${id} name=${id} changed=${refresh} /></div>`}</div>
    ${isNew && html`<${NewSchedule} onClose=${() => setNew(false)} changed=${refresh} />`}</div>`;
}

const Row = ({ it, isCurrent }) => html`<li class="row-item"><a class="row-main" href=${link(path, it.name)} aria-current=${isCurrent ? "true" : undefined}>
  <span class="row-title">${visible(it.name)}</span><span class="row-args">${visible(clip(said(it), 160))}</span>
  <span class="row-meta"><code>${visible(rhythm(it))}</code><span>${visible(it.agent)}</span></span>
  <span class="row-side">${it.paused ? html`<${Badge}>paused<//>` : it.next_at ? html`<${Countdown} at=${it.next_at} due="now" />` : html`<${Badge}>ended<//>`}</span></a></li>`;

function Schedule({ name, changed }) {
  const { data, error, refresh } = usePoll((signal) => get(at(name), { signal }), name, 4_000);
  const [trouble, setTrouble] = useState();
  const [isDeleting, setDeleting] = useState(false);
  const time = useNow();
  if (!data) return error ? html`<${Trouble} error=${error} retry=${refresh} />` : html`<${Loading} />`;
  const act = (verb, text) => async () => {
    try {
      const { conversation_id: conversation } = await post(at(name, verb));
      notify(text);
      if (conversation) go(link("c", conversation));
      refresh();
      changed();
    } catch (problem) {
      setTrouble(problem);
    }
  };
  const remove = async () => {
    await send("DELETE", at(name));
    notify(`Deleted ${name}.`);
    go(link(path));
    changed();
  };
  const { last } = data;
  return html`<article class="detail"><header class="row spread"><h2>${visible(name)}</h2>
      <span class="row"><button type="button" class="primary" onClick=${act("trigger", "Sent.")}>Send it now</button>
      ${data.paused ? html`<button type="button" class="plain" onClick=${act("resume", "Resumed.")}>Resume</button>` :
        html`<button type="button" class="plain" onClick=${act("pause", "Paused.")}>Pause</button>`}
      <button type="button" class="deny" onClick=${() => setDeleting(true)}>Delete …</button></span></header>
    <${Trouble} error=${trouble ?? error} />
    <p dir="auto">${visible(clip(said(data), 2_000))}</p>
    <dl class="facts"><div><dt>Rhythm</dt><dd><code>${visible(rhythm(data))}</code></dd></div>
      <div><dt>Next</dt><dd>${data.next_at ? html`<time datetime=${data.next_at}>${new Date(data.next_at).toLocaleString()}</time> (<${Countdown} at=${data.next_at} due="now" />)` : data.paused ? "paused" : "it has ended"}</dd></div>
      <div><dt>Last</dt><dd>${last ? html`${ago(time - Date.parse(last.at))} ${last.outcome && html`<${Badge} tone=${TONES[last.outcome]}>${words(last.outcome)}<//>`}
        ${last.conversation_id && html` <a href=${link("c", last.conversation_id)}>${visible(last.conversation_id)}</a>`}
        ${last.error && html` <span class="note">${visible(clip(last.error, 300))}</span>`}` : "never"}</dd></div>
      <div><dt>Agent</dt><dd><a href=${link("agents", data.agent)}>${visible(data.agent)}</a></dd></div>
      <div><dt>Conversation</dt><dd>${data.conversation ? html`<a href=${link("c", data.conversation)}>${visible(data.conversation)}</a>` : "a new one for each tick"}</dd></div>
      <div><dt>After an outage</dt><dd>${{ last: "the last tick that was missed", all: "every tick that was missed", skip: "no tick that was missed" }[data.missed]}</dd></div>
      <div><dt>Put by</dt><dd>${visible(data.principal)}</dd></div></dl>
    ${isDeleting && html`<${Confirm} title=${`Delete ${clip(name, 40)}?`} verb="Delete" tone="bad" act=${remove} onClose=${() => setDeleting(false)}>
      <p>It sends nothing any more. The conversations of its ticks stay.</p><//>`}</article>`;
}

function NewSchedule({ onClose, changed }) {
  const agents = usePoll((signal) => get("/v1/agents", { signal }), "agents", 0).data?.agents ?? [];
  const [error, setError] = useState();
  const submit = async (event) => {
    event.preventDefault();
    const { name, ...given } = Object.fromEntries(new FormData(event.target));
    const body = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== ""));
    try {
      await send("PUT", at(name), body);
      notify(`Put ${name}.`);
      changed();
      onClose();
      go(link(path, name));
    } catch (problem) {
      setError(problem);
    }
  };
  const field = (name, label, input) => html`<div class="field"><label for=${`new-${name}`}>${label}</label>${input}</div>`;
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return html`<${Dialog} title="New schedule" onClose=${onClose}><form onSubmit=${submit}>
    ${field("name", "Name", html`<input id="new-name" name="name" required pattern="[a-z0-9][a-z0-9_\\-]*" maxlength="64" autocomplete="off" />`)}
    ${field("agent", "Agent", html`<select id="new-agent" name="agent">${agents.map((it) => html`<option value=${it.name}>${clip(it.name, 60)}</option>`)}</select>`)}
    ${field("cron", "When: minute, hour, day, month, weekday", html`<input id="new-cron" name="cron" required maxlength="256" placeholder="0 9 * * mon-fri" autocomplete="off" />`)}
    ${field("timezone", "In the time zone", html`<input id="new-timezone" name="timezone" value=${zone} autocomplete="off" />`)}
    ${field("text", "Message", html`<textarea id="new-text" name="text" rows="2" required dir="auto"></textarea>`)}
    <${Trouble} error=${error} />
    <p class="row end"><button type="button" class="plain" onClick=${onClose}>Back</button><button class="primary">Put it</button></p></form><//>`;
}
