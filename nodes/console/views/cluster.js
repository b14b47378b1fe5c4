// The cluster: a column for each node, a cell for each live conversation, and the next alarms.
import { html, useState } from "../html.js";
import { notify } from "../notices.js";
import { Badge, Confirm, Loading, NotYet, State, Trouble, toneOf } from "../parts.js";
import { useNow, usePoll } from "../poll.js";
import { link } from "../router.js";
import { get, send } from "../session.js";
import { ago, clip, count, duration, plural, words } from "../text.js";

/** More cells than these are drawn as shares. */
const MAX_CELLS = 2_000;
const PAGE = 1_000;
const ORDER = ["quarantined", "awaiting_input", "streaming", "preparing", "executing_tools", "idle"];

async function readCluster(signal) {
  const { nodes } = await get("/admin/nodes", { signal });
  const actors = [];
  let cursor;
  do {
    const from = cursor ? `&cursor=${encodeURIComponent(cursor)}` : "";
    const page = await get(`/admin/actors?limit=${PAGE}${from}`, { signal });
    actors.push(...page.actors);
    cursor = page.cursor;
  } while (cursor && actors.length < MAX_CELLS);
  return { nodes, actors, hasMore: Boolean(cursor) };
}

export function View() {
  const { data, error, refresh } = usePoll(readCluster, "cluster", 2_000);
  const alarms = usePoll((signal) => get("/admin/alarms?limit=12", { signal }), "alarms", 5_000);
  const [confirm, setConfirm] = useState();
  if (!data) return html`<${NotYet} title="Cluster" error=${error} retry=${refresh} />`;
  const { nodes, actors, hasMore } = data;
  const byNode = Map.groupBy(actors, (actor) => actor.node);
  const total = nodes.reduce((sum, node) => sum + node.live_actors, 0);
  const isSampled = hasMore || actors.length > MAX_CELLS;
  return html`<div class="cluster"><header class="view-head"><h1>Cluster</h1>
      <p class="count">${plural(nodes.length, "node")}, ${plural(total, "live conversation")}</p></header>
    <${Trouble} error=${error} retry=${refresh} />
    <${Legend} actors=${actors} isSampled=${isSampled} />
    <div class="nodes">${nodes.map((node) => html`<${Node} key=${node.incarnation} node=${node} isSampled=${isSampled}
      actors=${byNode.get(node.name) ?? []} act=${setConfirm} isAlone=${nodes.length === 1} />`)}</div>
    <${Alarms} alarms=${alarms.data?.alarms} error=${alarms.error} />
    ${confirm && html`<${Operate} ...${confirm} refresh=${refresh} onClose=${() => setConfirm(undefined)} />`}</div>`;
}

function Legend({ actors, isSampled }) {
  const counts = Map.groupBy(actors, (actor) => actor.state);
  const states = [...ORDER.filter((state) => counts.has(state)), ...[...counts.keys()].filter((state) => !ORDER.includes(state))];
  return html`<ul class="legend" aria-label="States">${states.map((state) => html`<li key=${state}><i class=${`cell ${toneOf(state)} ${state}`}></i>
    ${words(state)} <b>${count(counts.get(state).length)}</b></li>`)}${isSampled && html`<li class="note">of the first ${count(actors.length)}</li>`}</ul>`;
}

function Node({ node, actors, act, isSampled, isAlone }) {
  const can = (verb) => () => act({ verb, node: node.name });
  const time = useNow();
  return html`<section class=${`node ${node.state}`} aria-label=${`Node ${node.name}`}><header><h2>${clip(node.name, 40)}</h2><${State} state=${node.state} /></header>
    <p class="big">${count(node.live_actors)} <span>live</span></p>
    ${isSampled ? html`<${Shares} actors=${actors} />` : html`<${Cells} actors=${actors} />`}
    <dl class="facts small"><div><dt>address</dt><dd>${node.address}</dd></div><div><dt>member</dt><dd>since ${ago(time - Date.parse(node.since)).replace(" ago", "")}</dd></div>
      <div><dt>heartbeat</dt><dd>${duration(node.heartbeat_age_ms)} ago</dd></div><div><dt>version</dt><dd>${node.version}</dd></div></dl>
    <p class="row">${node.state === "up" || node.state === "suspect" ? html`<button type="button" class="plain" onClick=${can("drain")}>Drain …</button>` : ""}
      ${!isAlone && node.state === "suspect" && html`<button type="button" class="deny" onClick=${can("declare-dead")}>Declare dead …</button>`}</p></section>`;
}

/** A link for each conversation; its colour is its state. Tab stops at one of them, arrows go to the others. */
const Cells = ({ actors }) => actors.length === 0 ? html`<p class="note">Nothing is live here.</p>` :
  html`<div class="cells" role="group" aria-label="Live conversations, arrow keys go from one to another" onKeyDown=${moveInGrid}>${actors.map((actor, index) => html`<a key=${actor.conversation_id}
    class=${`cell ${toneOf(actor.state)} ${actor.state}`} tabindex=${index === 0 ? 0 : -1}
    href=${link("why", actor.conversation_id)} title=${`${actor.conversation_id}: ${words(actor.state)}`}
    aria-label=${`${actor.conversation_id}, ${words(actor.state)}`}></a>`)}</div>`;

function moveInGrid(event) {
  const cells = event.currentTarget.children;
  const index = [...cells].indexOf(event.target);
  const { offsetTop } = cells[0];
  const second = [...cells].findIndex((it) => it.offsetTop !== offsetTop);
  const columns = second < 0 ? cells.length : second;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -index, End: cells.length - 1 - index }[event.key];
  const next = cells[index + step];
  if (!next) return;
  event.preventDefault();
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

/** The shares of the states, where there are too many conversations for cells. */
function Shares({ actors }) {
  const counts = [...Map.groupBy(actors, (actor) => actor.state)].sort((a, b) => ORDER.indexOf(a[0]) - ORDER.indexOf(b[0]));
  return html`<div class="shares" role="img" aria-label=${counts.map(([state, list]) => `${words(state)} ${list.length}`).join(", ")}>
    ${counts.map(([state, list]) => html`<i key=${state} class=${`cell ${toneOf(state)} ${state}`} style=${{ flexGrow: list.length }}></i>`)}</div>
    <ul class="share-list">${actors.filter((it) => it.state === "quarantined" || it.restarts > 0).slice(0, 10).map((it) => html`<li>
      <a href=${link("why", it.conversation_id)}>${clip(it.conversation_id, 40)}</a> <${State} state=${it.state} /></li>`)}</ul>`;
}

function Alarms({ alarms, error }) {
  const time = useNow();
  if (error) return html`<${Trouble} error=${error} />`;
  const late = (alarms ?? []).filter((it) => it.lag_ms > 5_000);
  return html`<section class="alarms" aria-label="Alarms"><h2>Next alarms ${late.length > 0 && html`<${Badge} tone="bad">${late.length} late<//>`}</h2>
    ${!alarms ? html`<${Loading} />` : alarms.length === 0 ? html`<p class="note">Nothing is due.</p>` :
      html`<ul class="rows flat">${alarms.map((it) => html`<li key=${it.conversation_id} class="row-item"><a class="row-main" href=${link("why", it.conversation_id)}>
        <span class="row-title">${clip(it.conversation_id, 60)}</span><span class="row-side">${it.lag_ms > 0 ? html`<${Badge} tone="bad">${duration(it.lag_ms)} late<//>` :
          `in ${duration(Date.parse(it.due_at) - time)}`}</span></a></li>`)}</ul>`}</section>`;
}

const TEXTS = {
  drain: ["Drain", "It takes no new conversations, lets what runs finish, and hands the rest over. It stays a member until it is stopped."],
  "declare-dead": ["Declare dead", "This incarnation is dead for ever, and the others take over what it holds. Tools that ran there run again. It is safe when the node lives: its writes are refused."],
};

function Operate({ verb, node, onClose, refresh }) {
  const [word, about] = TEXTS[verb];
  const act = async () => {
    await send("POST", `/admin/nodes/${encodeURIComponent(node)}/${verb}`, undefined, { key: null });
    notify(`${word}: ${node}.`);
    refresh();
  };
  return html`<${Confirm} title=${`${word} ${clip(node, 40)}?`} verb=${word} tone="bad" act=${act} onClose=${onClose}><p>${about}</p><//>`;
}
