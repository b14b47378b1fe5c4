// The list of conversations, and how to begin one.
import { html, useState } from "../html.js";
import { Badge, Empty, Icon, Loading, State, Trouble } from "../parts.js";
import { useNow, usePoll } from "../poll.js";
import { link, replace } from "../router.js";
import { get } from "../session.js";
import { ThreeThings, start } from "../start.js";
import { ago, clip, visible, words } from "../text.js";
import { Rows } from "./inbox/rows.js";

const path = "conversations";

const PAGE = 100;
const MAX_SHOWN = 1_000;
const ROW_PX = 72;
const STATES = ["idle", "preparing", "executing_tools", "awaiting_input"];

export function View({ route: { query } }) {
  const [limit, setLimit] = useState(PAGE);
  const filter = ["agent", "state"].filter((it) => query.get(it)).map((it) => `&${it}=${encodeURIComponent(query.get(it))}`).join("");
  const list = usePoll((signal) => get(`/v1/conversations?limit=${limit}${filter}`, { signal }), `${filter}/${limit}`, 4_000);
  const agents = usePoll((signal) => get("/v1/agents", { signal }), "agents", 30_000).data?.agents ?? [];
  const [find, setFind] = useState("");
  const rows = (list.data?.conversations ?? []).filter(({ id }) => id.includes(find))
    .sort((a, b) => (b.created_at ?? "").localeCompare(a.created_at ?? ""));
  const set = (member, value) => replace(link(path, undefined, { ...Object.fromEntries(query), [member]: value }));
  const pick = (member, label, names) => html`<label class="pick"><span>${label}</span><select value=${query.get(member) ?? ""}
    onChange=${(event) => set(member, event.target.value)}><option value="">any</option>
    ${names.map((it) => html`<option value=${it}>${words(clip(it, 60))}</option>`)}</select></label>`;
  const open = (event) => {
    event.preventDefault();
    if (find.trim() !== "") location.hash = link("c", find.trim());
  };
  const isEmpty = list.data && list.data.conversations.length === 0;
  return html`<div class="list-view"><header class="view-head"><h1>Conversations</h1><${New} agents=${agents} /></header>
    <form class="filter" role="search" onSubmit=${open}><label class="pick grow"><span>Id</span><input value=${find} autocomplete="off" placeholder="type to filter, Enter opens it"
      onInput=${(event) => setFind(event.target.value)} /></label>
      ${pick("agent", "Agent", agents.map((it) => it.name))}${pick("state", "State", STATES)}</form>
    <${Trouble} error=${list.error} retry=${list.refresh} />
    ${!list.data && !list.error && html`<${Loading} />`}
    ${isEmpty && html`<${Empty} title=${filter ? "Nothing fits this filter" : "No conversation yet"}>${!filter && html`<${ThreeThings} agents=${agents} />`}<//>`}
    <${Rows} class="rows flat" items=${rows} keyOf=${idOf} draw=${(it) => html`<${Row} key=${it.id} it=${it} />`} guess=${ROW_PX} />
    ${list.data?.cursor && (limit < MAX_SHOWN ? html`<p class="more"><button type="button" class="plain" onClick=${() => setLimit(Math.min(MAX_SHOWN, limit * 3))}>Show more</button></p>` :
      html`<p class="note">The first ${MAX_SHOWN} by id are shown. Type an id and press Enter to open any other.</p>`)}
  </div>`;
}

const idOf = ({ id }) => id;

function Row({ it }) {
  const time = useNow();
  const metadata = Object.entries(it.metadata ?? {}).slice(0, 3);
  return html`<li class="row-item" data-key=${it.id}><a class="row-main" href=${link("c", it.id)}>
    <span class="row-title">${visible(it.id)}</span>
    <span class="row-meta"><${State} state=${it.state} /><span>${visible(clip(it.agent, 40))}</span>
      ${metadata.map(([key, value]) => html`<${Badge}>${visible(clip(`${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`, 40))}<//>`)}</span>
    <span class="row-side">${it.created_at ? ago(time - Date.parse(it.created_at)) : ""}</span></a></li>`;
}

/** Begins a conversation with an agent. */
export function New({ agents }) {
  const [error, setError] = useState();
  if (agents.length === 0) return null;
  const run = (event) => {
    event.preventDefault();
    start(new FormData(event.target).get("agent")).catch(setError);
  };
  return html`<form class="row" onSubmit=${run}><label class="pick"><span>New with</span><select name="agent">
    ${agents.map((it) => html`<option value=${it.name}>${clip(it.name, 60)}</option>`)}</select></label>
    <button class="primary"><${Icon} name="plus" />Begin</button><${Trouble} error=${error} /></form>`;
}
