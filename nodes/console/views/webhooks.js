// Webhooks: who is told of what, how that goes, and what nobody tries any more.
import { html, useState } from "../html.js";
import { notify } from "../notices.js";
import { Badge, Confirm, Countdown, Dialog, Empty, Loading, NotYet, Trouble } from "../parts.js";
import { useNow, usePoll } from "../poll.js";
import { go, link } from "../router.js";
import { get, post, send } from "../session.js";
import { ago, clip, count, plural, visible } from "../text.js";

const path = "webhooks";
const TONES = { active: "ok", failing: "bad", ended: "quiet" };
const EVENTS = ["conversation.created", "conversation.deleted", "turn.completed", "turn.halted", "turn.failed", "turn.cancelled",
  "call.suspended", "call.voted", "call.expiring", "call.escalated", "call.resolved", "call.expired"];

const at = (name, verb = "") => `/v1/webhooks/${encodeURIComponent(name)}${verb && `/${verb}`}`;
const told = ({ events }) => (events === "all" ? "everything" : events.join(", "));

export function View({ route: { id } }) {
  const { data, error, refresh } = usePoll((signal) => get("/v1/webhooks", { signal }), path, 5_000);
  const [isNew, setNew] = useState(false);
  const [secret, showSecret] = useState();
  if (!data) return html`<${NotYet} title="Webhooks" error=${error} retry=${refresh} />`;
  const { webhooks } = data;
  const current = webhooks.find((it) => it.name === id);
  return html`<div class="list-view"><header class="view-head"><h1>Webhooks</h1><p class="count">${webhooks.length > 0 && plural(webhooks.length, "webhook")}</p>
      <button type="button" class="primary" onClick=${() => setNew(true)}>New …</button></header>
    <${Trouble} error=${error} retry=${refresh} />
    ${webhooks.length === 0 && html`<${Empty} title="No webhook yet"><p>A webhook is told of what happens: a call that waits, a turn that ended. What is owed to it outlives every node.</p><//>`}
    <div class=${`panes wide-ish ${id ? "has-detail" : ""}`}><div class="pane-list"><ul class="rows flat">${webhooks.map((it) => html`<li key=${it.name} class="row-item">
      <a class="row-main" href=${link(path, it.name)} aria-current=${it.name === id ? "true" : undefined}><span class="row-title">${visible(it.name)}</span>
      <span class="row-args">${visible(clip(it.url, 160))}</span><span class="row-meta">${visible(clip(told(it), 120))}</span>
      <span class="row-side"><${Badge} tone=${TONES[it.state]}>${it.state}<//></span></a></li>`)}</ul></div>
      ${id && html`<div class="pane-detail"><p class="back"><a href=${link(path)}>All webhooks</a></p>${current ? html`<${Webhook} key=${id} name=${id} changed=${refresh} showSecret=${showSecret} />` :
        html`<${Empty} title="There is no such webhook"><p><a href=${link(path)}>All webhooks</a></p><//>`}</div>`}</div>
    ${isNew && html`<${NewWebhook} onClose=${() => setNew(false)} showSecret=${showSecret} changed=${refresh} />`}
    ${secret && html`<${Dialog} title="Its secret" onClose=${() => showSecret(undefined)}><p>It signs every notice. It is shown this once.</p>
      <pre class="snippet" tabindex="0">${secret}</pre><p class="row end"><button type="button" class="primary" onClick=${() => showSecret(undefined)}>I have it</button></p><//>`}</div>`;
}

function Webhook({ name, changed, showSecret }) {
  const { data, error, refresh } = usePoll((signal) => get(at(name), { signal }), name, 4_000);
  const [trouble, setTrouble] = useState();
  const [asks, ask] = useState();
  const time = useNow();
  if (!data) return error ? html`<${Trouble} error=${error} retry=${refresh} />` : html`<${Loading} />`;
  const test = async () => {
    setTrouble(undefined);
    try {
      const { delivered, error: reason } = await post(at(name, "test"));
      if (delivered) notify("The receiver took the test.");
      else setTrouble(`The test was not delivered: ${reason}`);
      refresh();
    } catch (problem) {
      setTrouble(problem);
    }
  };
  const rotate = async () => {
    showSecret((await post(at(name, "rotate"))).secret);
    refresh();
  };
  const remove = async () => {
    await send("DELETE", at(name));
    notify(`Deleted ${name}.`);
    go(link(path));
    changed();
  };
  const asked = {
    rotate: { title: "Rotate its secret?", verb: "Rotate", act: rotate, about: "There is a new one. For a day both sign." },
    remove: { title: `Delete ${clip(name, 40)}?`, verb: "Delete", tone: "bad", act: remove, about: "What is owed to it is dropped." },
  }[asks];
  return html`<article class="detail"><header class="row spread"><h2>${visible(name)}</h2><span class="row">
      <button type="button" class="plain" onClick=${test}>Test</button>
      ${!data.secret_env && html`<button type="button" class="plain" onClick=${() => ask("rotate")}>Rotate …</button>`}
      <button type="button" class="deny" onClick=${() => ask("remove")}>Delete …</button></span></header>
    <${Trouble} error=${trouble ?? error} />
    <dl class="facts"><div><dt>State</dt><dd><${Badge} tone=${TONES[data.state]}>${data.state}<//> ${data.failing_since && html`since ${ago(time - Date.parse(data.failing_since)).replace(" ago", "")}`}</dd></div>
      <div><dt>Address</dt><dd>${visible(clip(data.url, 400))}</dd></div><div><dt>Told of</dt><dd>${visible(told(data))}</dd></div>
      ${data.agents && html`<div><dt>Agents</dt><dd>${visible(clip(data.agents.join(", "), 400))}</dd></div>`}
      <div><dt>Owed</dt><dd>${count(data.owed)}${data.oldest_owed_at && `, the oldest for ${ago(time - Date.parse(data.oldest_owed_at)).replace(" ago", "")}`}</dd></div>
      <div><dt>Dead</dt><dd>${count(data.dead)}</dd></div>
      ${data.last_error && html`<div><dt>Last error</dt><dd>${visible(clip(data.last_error, 400))}</dd></div>`}
      ${data.next_attempt_at && html`<div><dt>Next attempt</dt><dd><${Countdown} at=${data.next_attempt_at} due="now" /></dd></div>`}</dl>
    ${data.owed > 0 && html`<${Deliveries} name=${name} state="owed" title="Owed" />`}
    ${data.dead > 0 && html`<${Deliveries} name=${name} state="dead" title="Nobody tries these any more" changed=${refresh} />`}
    ${asked && html`<${Confirm} ...${asked} onClose=${() => ask(undefined)}><p>${asked.about}</p><//>`}</article>`;
}

function Deliveries({ name, state, title, changed }) {
  const { data, error, refresh } = usePoll((signal) => get(`${at(name, "deliveries")}?state=${state}`, { signal }), `${name}/${state}`, 5_000);
  const [trouble, setTrouble] = useState();
  const again = async (id) => {
    try {
      await post(at(name, `deliveries/${encodeURIComponent(id)}/redeliver`));
      notify("It is sent once more.");
      refresh();
      changed?.();
    } catch (problem) {
      setTrouble(problem);
    }
  };
  return html`<h3>${title}</h3><${Trouble} error=${trouble ?? error} /><ul class="rows flat">${(data?.deliveries ?? []).map((it) => html`<li key=${it.id} class="row-item">
    <span class="row-main"><span class="row-title"><a href=${link("c", it.conversation_id)}>${visible(clip(it.conversation_id, 60))}</a> ${visible(it.type)}</span>
    <span class="row-meta">${plural(it.attempts, "attempt")} ${it.last_error && html`<span class="note">${visible(clip(it.last_error, 160))}</span>`}</span>
    <span class="row-side">${it.next_attempt_at && html`<${Countdown} at=${it.next_attempt_at} due="now" />`}<button type="button" class="link" onClick=${() => again(it.id)}>Send again</button></span></span></li>`)}</ul>
    ${data?.cursor && html`<p class="note">There are more.</p>`}`;
}

function NewWebhook({ onClose, showSecret, changed }) {
  const [error, setError] = useState();
  const submit = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const chosen = form.getAll("events");
    const body = { url: form.get("url"), events: chosen.length === 0 || chosen.length === EVENTS.length ? "all" : chosen };
    try {
      const { secret } = await send("PUT", at(form.get("name")), body);
      changed();
      onClose();
      go(link(path, form.get("name")));
      showSecret(secret);
    } catch (problem) {
      setError(problem);
    }
  };
  return html`<${Dialog} title="New webhook" onClose=${onClose}><form onSubmit=${submit}>
    <div class="field"><label for="new-name">Name</label><input id="new-name" name="name" required pattern="[a-z0-9][a-z0-9_\\-]*" maxlength="64" autocomplete="off" /></div>
    <div class="field"><label for="new-url">Address</label><input id="new-url" name="url" type="url" required placeholder="https://example.com/abide" autocomplete="off" /></div>
    <fieldset class="field"><legend>Told of <span class="optional">none: everything</span></legend>
      <div class="options">${EVENTS.map((event) => html`<label class="option"><input type="checkbox" name="events" value=${event} />${event}</label>`)}</div></fieldset>
    <${Trouble} error=${error} />
    <p class="row end"><button type="button" class="plain" onClick=${onClose}>Back</button><button class="primary">Put it</button></p></form><//>`;
}
