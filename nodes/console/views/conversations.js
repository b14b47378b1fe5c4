// The list of conversations, and how to begin one.
import { html, useState } from "../html.js";
import { Badge, Empty, Icon, Loading, State, Trouble } from "../parts.js";
import { useNow, usePoll } from "../poll.js";
import { link, replace } from "../router.js";
import { get } from "../session.js";
import { ThreeThings, start } from "../start.js";
import { ago, clip, plural, visible, words } from "../text.js";
import { Rows } from "./inbox/rows.js";

const path = "conversations";

const PAGE = 100;
const MAX_SHOWN = 1_000;
const ROW_PX = 72;
const STATES = ["idle", "preparing", "executing_tools", "awaiting_input"];
/** The parameters that the page's own address has, too, with their names in the list's request. */
const FILTERS = ["agent", "state", "owner", "parent"];

/** What the list is asked for: `metadata` of the page's address is `key=value`. */
function request(query) {
  const asked = new URLSearchParams({ order: query.get("order") || "active" });
  for (const name of FILTERS) if (query.get(name)) asked.set(name, query.get(name));
  const [, key, value] = /^([^=]+)=(.*)$/.exec(query.get("metadata") ?? "") ?? [];
  if (key) asked.set(`metadata.${key.trim()}`, value.trim());
  return asked;
}

export function View({ route: { query } }) {
  const [limit, setLimit] = useState(PAGE);
  const asked = request(query);
  const isFiltered = [...asked].length > 1;
  const list = usePoll((signal) => get(`/v1/conversations?limit=${limit}&${asked}`, { signal }), `${asked}/${limit}`, 4_000);
  const agents = usePoll((signal) => get("/v1/agents", { signal }), "agents", 30_000).data?.agents ?? [];
  const [find, setFind] = useState("");
  const rows = (list.data?.conversations ?? []).filter(({ id, title }) => id.includes(find) || title?.includes(find));
  const set = (member, value) => replace(link(path, undefined, { ...Object.fromEntries(query), [member]: value }));
  const pick = (member, label, names, any = "any") => html`<label class="pick"><span>${label}</span><select value=${query.get(member) ?? ""}
    onChange=${(event) => set(member, event.target.value)}><option value="">${any}</option>
    ${names.map((it) => html`<option value=${it}>${words(clip(it, 60))}</option>`)}</select></label>`;
  const field = (member, label, hint) => html`<label class="pick"><span>${label}</span><input value=${query.get(member) ?? ""} autocomplete="off" placeholder=${hint}
    onChange=${(event) => set(member, event.target.value.trim())} /></label>`;
  const open = (event) => {
    event.preventDefault();
    // Enter in another field only asks for what it says.
    if (document.activeElement?.name === "id" && find.trim() !== "") location.hash = link("c", find.trim());
  };
  const isEmpty = list.data && list.data.conversations.length === 0;
  return html`<div class="list-view"><header class="view-head"><h1>Conversations</h1><${New} agents=${agents} /></header>
    <form class="filter" role="search" onSubmit=${open}><label class="pick grow"><span>Id</span><input name="id" value=${find} autocomplete="off" placeholder="type to filter, Enter opens it"
      onInput=${(event) => setFind(event.target.value)} /></label>
      ${pick("agent", "Agent", agents.map((it) => it.name))}${pick("state", "State", STATES)}${field("owner", "Owner", "anybody")}
      ${field("metadata", "Metadata", "key=value")}${pick("order", "Latest", ["created"], "active")}</form>
    ${query.get("parent") && html`<p class="note">The children of ${visible(clip(query.get("parent"), 128))}. <a href=${link(path)}>All conversations</a></p>`}
    ${list.data?.incomplete && html`<p class="note">This metadata is still being indexed: older conversations may be missing.</p>`}
    <${Trouble} error=${list.error} retry=${list.refresh} />
    ${!list.data && !list.error && html`<${Loading} />`}
    ${isEmpty && html`<${Empty} title=${isFiltered ? "Nothing fits this filter" : "No conversation yet"}>${!isFiltered && html`<${ThreeThings} agents=${agents} />`}<//>`}
    <${Rows} class="rows flat" items=${rows} keyOf=${idOf} draw=${(it) => html`<${Row} key=${it.id} it=${it} />`} guess=${ROW_PX} />
    ${list.data?.cursor && (limit < MAX_SHOWN ? html`<p class="more"><button type="button" class="plain" onClick=${() => setLimit(Math.min(MAX_SHOWN, limit * 3))}>Show more</button></p>` :
      html`<p class="note">The latest ${MAX_SHOWN} are shown. Type an id and press Enter to open any other.</p>`)}
  </div>`;
}

const idOf = ({ id }) => id;

function Row({ it }) {
  const time = useNow();
  const metadata = Object.entries(it.metadata ?? {}).slice(0, 3);
  const at = it.active_at ?? it.created_at;
  return html`<li class="row-item" data-key=${it.id}><a class="row-main" href=${link("c", it.id)}>
    <span class="row-title" dir="auto">${visible(clip(it.title ?? it.id, 160))}</span>
    <span class="row-meta"><${State} state=${it.state} />${it.pending > 0 && html`<${Badge} tone="wait">${plural(it.pending, "call")} waiting<//>`}
      <span>${visible(clip(it.agent, 40))}</span>${it.title && html`<span>${visible(clip(it.id, 60))}</span>`}${it.owner && html`<span>${visible(clip(it.owner, 60))}</span>`}
      ${metadata.map(([key, value]) => html`<${Badge}>${visible(clip(`${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`, 40))}<//>`)}</span>
    <span class="row-side">${at ? ago(time - Date.parse(at)) : ""}</span></a></li>`;
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
