// Why a conversation waits, who can move it, and what an operator can do about it.
import { html, useId, useState } from "../html.js";
import { useJournal } from "../journal.js";
import { notify } from "../notices.js";
import { Badge, Confirm, Empty, Json, Loading, State, Trouble } from "../parts.js";
import { useNow, usePoll } from "../poll.js";
import { link } from "../router.js";
import { get, post } from "../session.js";
import { ago, bytes, clip, count, duration, visible } from "../text.js";
import { Timeline } from "./why/timeline.js";

/** What each verb does, in the words of the operators' reference. */
const VERBS = {
  retry: ["Retry", "Tries now what waits for a later attempt, lets the conversation out of quarantine, and starts what should run."],
  fail: ["Fail the call", "Ends the call with an error that the model reads. The turn goes on."],
  cancel: ["Cancel the turn", "Ends the turn. Open calls are cancelled; partial text is kept."],
  move: ["Move", "Another node takes the conversation over, with all that it was doing."],
  release: ["Release", "The holder gives it up; whoever needs it next starts it. A quarantine is lifted."],
  kill: ["Kill the actor", "Crashes the actor as a bug would. It is revived at once where it was."],
};
const MAY_FORCE = ["move", "release"];

export function View({ route: { id } }) {
  const read = (signal) => get(`/admin/actors/${encodeURIComponent(id)}`, { signal });
  const { data, error, refresh } = usePoll(read, id, 2_000);
  const [confirm, setConfirm] = useState();
  if (!id) return html`<${Empty} as="h1" title="Which conversation?"><p>Open one from the <a href="#/cluster">cluster</a> or the <a href="#/conversations">list</a>.</p><//>`;
  if (!data && !error) return html`<${Loading} />`;
  if (!data) return html`<${Empty} as="h1" title="It cannot be looked at"><${Trouble} error=${error} retry=${refresh} /><//>`;
  return html`<div class="why"><header class="view-head"><h1 title=${id}>${visible(clip(id, 60))}</h1><${State} state=${data.state} />
      <p class="row"><a href=${link("c", id)}>Conversation</a></p></header>
    <${Trouble} error=${error} />
    <${Sentence} why=${data.why} />
    <${Verbs} id=${id} data=${data} act=${setConfirm} />
    <${Facts} data=${data} />
    <${History} id=${id} version=${data.seq} />
    <details class="raw"><summary>As JSON</summary><${Json} value=${data} label="The answer of the node" /></details>
    ${confirm && html`<${Operate} ...${confirm} id=${id} refresh=${refresh} onClose=${() => setConfirm(undefined)} />`}</div>`;
}

function Sentence({ why }) {
  const time = useNow();
  return html`<section class="sentence" aria-label="Why it waits"><p class="lead">It waits for <b>${visible(clip(why.waits_for, 500))}</b>.</p>
    <dl class="facts">${why.since && html`<div><dt>Since</dt><dd>${ago(time - Date.parse(why.since))}</dd></div>`}
      <div><dt>Who can move it</dt><dd>${visible(clip(why.who_can_move_it, 300))}</dd></div>
      <div><dt>What happens next</dt><dd>${visible(clip(why.next, 300))}${why.next_at && ` in ${duration(Date.parse(why.next_at) - time)}`}</dd></div></dl></section>`;
}

/** The verb and the call of a request such as `POST /admin/actors/ID/calls/CALL/fail`. */
export function verbOf(request) {
  const found = /^POST \/admin\/actors\/[^/]+(?:\/calls\/(.+))?\/([a-z]+)$/.exec(request);
  return found && { call: found[1], verb: found[2], isAdvised: true };
}

function Verbs({ data, act }) {
  const advised = data.why.operators_can.map(verbOf).filter(Boolean);
  const others = ["retry", "move", "release", "kill", "cancel"].filter((verb) => !advised.some((it) => it.verb === verb));
  const more = others.filter((verb) => (verb === "cancel" ? data.turn : verb === "kill" ? data.node : true)).map((verb) => ({ verb }));
  const button = ({ verb, call, isAdvised }) => html`<button type="button" key=${verb + (call ?? "")} class=${isAdvised ? "" : "plain"}
    onClick=${() => act({ verb, call })}>${VERBS[verb]?.[0] ?? verb}${call ? html` <code>${clip(call, 24)}</code>` : ""} …</button>`;
  return html`<section class="verbs" aria-label="What an operator can do">${advised.length > 0 && html`<p class="row"><span class="note">This helps:</span>${advised.map(button)}</p>`}
    <details open=${advised.length === 0}><summary>Other interventions</summary><p class="row">${more.map(button)}</p></details></section>`;
}

function Operate({ id, verb, call, refresh, onClose }) {
  const [label, about] = VERBS[verb] ?? [verb, ""];
  const [form, setForm] = useState({});
  const nodes = usePoll((signal) => get("/admin/nodes", { signal }), "nodes", 0).data?.nodes ?? [];
  const field = useId();
  const act = async () => {
    const target = call ? `calls/${encodeURIComponent(call)}/${verb}` : verb;
    const body = Object.fromEntries(Object.entries(form).filter(([, value]) => value !== "" && value !== false));
    const answer = await post(`/admin/actors/${encodeURIComponent(id)}/${target}`, body);
    notify(saying(verb, answer));
    refresh();
  };
  const text = (member, name) => html`<div class="field"><label for=${field + member}>${name} <span class="optional">optional</span></label>
    <input id=${field + member} value=${form[member] ?? ""} maxlength=${member === "error" ? 2000 : 500} autocomplete="off"
      onInput=${(event) => setForm({ ...form, [member]: event.target.value })} /></div>`;
  return html`<${Confirm} title=${`${label}${call ? ` ${clip(call, 40)}` : ""}?`} verb=${label} tone="bad" act=${act} onClose=${onClose}>
    <p>${about}</p>
    ${verb === "fail" && text("error", "What the model reads")}
    ${verb === "move" && html`<div class="field"><label for=${`${field}-node`}>To</label><select id=${`${field}-node`} value=${form.node ?? ""}
      onChange=${(event) => setForm({ ...form, node: event.target.value })}><option value="">the node that the placement chooses</option>
      ${nodes.filter((it) => it.state === "up").map((it) => html`<option value=${it.name}>${clip(it.name, 60)}</option>`)}</select></div>`}
    ${MAY_FORCE.includes(verb) && html`<label class="option"><input type="checkbox" checked=${form.force === true}
      onChange=${(event) => setForm({ ...form, force: event.target.checked })} />Also interrupt calls that must not run twice</label>`}
    ${text("reason", "Reason, for the operators’ audit")}<//>`;
}

function saying(verb, answer) {
  if (verb === "move") return `Moved to ${clip(answer.node, 60)}.`;
  if (verb === "retry") return answer.retried.length > 0 ? `Retried: ${clip(answer.retried.join(", "), 120)}.` : "There was nothing to retry.";
  if (verb === "release") return answer.released ? "Released." : "Nobody held it.";
  if (verb === "cancel") return answer.cancelled ? "Cancelled." : "There was nothing to cancel.";
  return verb === "fail" ? "The call has failed." : "The actor was killed.";
}

const Facts = ({ data }) => html`<dl class="facts strip">
  <div><dt>Holder</dt><dd>${data.node ? `${clip(data.node, 40)}, epoch ${data.epoch}` : "no node"}</dd></div>
  <div><dt>Events</dt><dd>${count(data.seq)}</dd></div>
  <div><dt>Open calls</dt><dd>${data.open_calls}</dd></div>
  <div><dt>Mailbox</dt><dd>${data.mailbox_depth}</dd></div>
  <div><dt>Restarts</dt><dd>${data.restarts}</dd></div>
  <div><dt>Memory</dt><dd>${bytes(data.bytes_held)}</dd></div>
  ${data.running?.length > 0 && html`<div><dt>Runs now</dt><dd>${visible(clip(data.running.join(", "), 200))}</dd></div>`}
  ${data.alarm && html`<div><dt>Alarm</dt><dd><time datetime=${data.alarm}>${data.alarm.slice(11, 19)} UTC</time></dd></div>`}</dl>`;

/** The turns of the journal, the newest first; an operator who may not read it is told so. */
function History({ id, version }) {
  const { history, events, error } = useJournal(id, version);
  const [chosen, choose] = useState();
  if (error && !events) {
    return html`<section class="history"><h2>Timeline</h2><p class="note">${error.status ? "The journal is not yours to read: it has what people and models said." : "The journal cannot be read now."}</p></section>`;
  }
  if (!history) return html`<${Loading} />`;
  const turns = [...history.turns.values()].filter((turn) => turn.began_at).reverse();
  const turn = turns.find((it) => it.id === chosen) ?? turns[0];
  return html`<section class="history"><header class="row spread"><h2>Timeline</h2>${turns.length > 1 && html`<label class="pick"><span>Turn</span><select value=${turn?.id}
      onChange=${(event) => choose(event.target.value)}>${turns.slice(0, 200).map((it, index) => html`<option value=${it.id}>${index === 0 ? "the newest" : it.began_at.slice(0, 19).replace("T", " ")}</option>`)}</select></label>`}</header>
    ${turn ? html`<${Timeline} key=${turn.id} turn=${turn} calls=${[...history.calls.values()].filter((call) => call.turn_id === turn.id)} />` : html`<p class="note">No turn has begun.</p>`}
    <details><summary>Journal, the newest ${Math.min(events.length, 200)} events</summary><ol class="journal" tabindex="0" aria-label="Journal">${events.slice(-200).reverse().map((event) => html`<li key=${event.seq}>
      <details><summary><span class="seq">${event.seq}</span> <time>${event.at.slice(11, 23)}</time> <b>${event.type}</b> ${event.type === "operated" && html`<${Badge} tone="wait">${event.data.verb}<//>`}</summary><${Json} value=${event} label=${`Event ${event.seq}`} /></details></li>`)}</ol></details></section>`;
}

