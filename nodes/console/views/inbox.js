// The inbox: everything that waits for somebody, the earliest deadline first.
import { AnswerCard, alike, alikeText, decide, keyOf, quicker, titleOf } from "../answer-card.js";
import { summary } from "../call-card.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { pathOf } from "../journal.js";
import { notify } from "../notices.js";
import { Badge, Confirm, Countdown, Empty, Loading, Trouble } from "../parts.js";
import { useNow, usePoll } from "../poll.js";
import { Recent } from "./inbox/recent.js";
import { Rows } from "./inbox/rows.js";
import { go, link, replace } from "../router.js";
import { explain, get, post } from "../session.js";
import { ThreeThings } from "../start.js";
import { ago, clip, count, visible } from "../text.js";

const path = "inbox";

const PAGE = 100;
/** The node's longest page; what is later is on the next one. */
const MAX_SHOWN = 1_000;
const ROW_PX = 94;
/** How many agents, and how many tools, the filter offers. */
const MAX_NAMES = 300;
/** How many answers one request has. */
const MAX_ANSWERS = 100;
const KINDS = [["", "All"], ["approval", "Approvals"], ["elicitation", "Questions"], ["client_exec", "Pages"], ["in_doubt", "In doubt"]];
const KIND_WORDS = { approval: "approval", elicitation: "question", client_exec: "page", in_doubt: "in doubt" };
const WIDE = matchMedia("(min-width: 1000px)");

function useWide() {
  const [wide, setWide] = useState(WIDE.matches);
  useEffect(() => {
    const changed = () => setWide(WIDE.matches);
    WIDE.addEventListener("change", changed);
    return () => WIDE.removeEventListener("change", changed);
  }, []);
  return wide;
}

/** A page of the inbox, from a cursor on; an entry that has not changed stays the same object. */
function usePending(query, limit, from) {
  const filter = ["kind", "agent", "tool", "mine"].filter((it) => query.get(it));
  const text = filter.map((it) => `&${it}=${encodeURIComponent(query.get(it))}`).join("") + (from ? `&cursor=${encodeURIComponent(from)}` : "");
  const kept = useRef(new Map());
  const read = async (signal) => {
    const page = await get(`/v1/pending?limit=${limit}${text}`, { signal });
    kept.current = new Map(page.pending.map((item) => {
      const { conversation_id, call_id, suspension, expires_at, may_answer, votes, policy } = item;
      const key = JSON.stringify([conversation_id, call_id, suspension, expires_at, may_answer, votes, policy]);
      return [key, kept.current.get(key) ?? item];
    }));
    return { ...page, pending: [...kept.current.values()] };
  };
  return usePoll(read, `${text}/${limit}`);
}

/** The names that entries have had since the view was opened, for the lists of the filter. */
function useNames(items, member) {
  const seen = useRef(new Set());
  items.forEach((item) => seen.current.size < MAX_NAMES && seen.current.add(item[member]));
  return [...seen.current].sort();
}

export function View({ route }) {
  const { query } = route;
  const [limit, setLimit] = useState(PAGE);
  const [pages, setPages] = useState({ query, cursors: [] });
  const cursors = pages.query === query ? pages.cursors : [];
  const { data, error, refresh } = usePending(query, limit, cursors.at(-1));
  const agents = usePoll((signal) => get("/v1/agents", { signal }).catch(() => ({})), "agents", 30_000);
  const last = useRef([]);
  if (data) last.current = data.pending;
  const items = data?.pending ?? last.current;
  const [selected, select] = useState();
  const [bulk, setBulk] = useState();
  const wide = useWide();
  const show = useRef();
  const current = items.find((item) => keyOf(item) === selected) ?? (wide ? items[0] : undefined);
  // A card that is open stays when its call no longer waits: it says what became of it.
  const gone = useGone(selected, current, items, data);
  const shown = gone ?? current;
  const detail = shown && html`<${Detail} key=${keyOf(shown)} item=${shown} isGone=${Boolean(gone)} items=${items} refresh=${refresh}
    onBulk=${setBulk} onClose=${() => select(undefined)} />`;
  useInboxKeys({ items, current: shown, select, refresh, setBulk, show });
  const isFiltered = ["kind", "agent", "tool", "mine"].some((it) => query.get(it));
  const open = shown && keyOf(shown);
  const row = (item) => html`<${Row} key=${keyOf(item)} item=${item} isCurrent=${keyOf(item) === open} isFirst=${!open && item === items[0]}
    onSelect=${() => select(!wide && keyOf(item) === selected ? undefined : keyOf(item))}
    detail=${!wide && keyOf(item) === open ? detail : undefined} />`;
  const turn = (next) => {
    setPages({ query, cursors: next });
    select(undefined);
    document.getElementById("main").scrollTop = 0;
  };
  const names = useNames(items, "agent");
  const tools = useNames(items, "tool");
  if (!data && !error && items.length === 0) return html`<${Loading} />`;
  if (error?.status === 403) return html`<${Empty} as="h1" title="This credential has no inbox"><p>${explain(error)}</p><//>`;
  return html`<div class="inbox">
    <header class="view-head"><h1>Inbox</h1><p class="count">${items.length === 0 ? "" : `${countOf(items, data, cursors)}, the earliest deadline first`}</p></header>
    ${(items.length > 0 || isFiltered) && html`<${Filter} query=${query} tools=${tools}
      agents=${[...new Set([...names, ...(agents.data?.agents ?? []).slice(0, MAX_NAMES).map((it) => it.name)])].sort()} />`}
    <${Trouble} error=${error && items.length === 0 ? error : undefined} retry=${refresh} />
    ${cursors.length > 0 && html`<p class="more"><button type="button" class="plain" onClick=${() => turn(cursors.slice(0, -1))}>Earlier deadlines</button></p>`}
    ${items.length === 0 && data && !gone ? html`<${Nothing} isFiltered=${isFiltered} isLater=${cursors.length > 0} agents=${agents.data?.agents} />` :
      html`<div class=${`panes ${wide ? "wide" : ""}`}><div class="pane-list"><${Rows} class="rows" aria-label="What waits" items=${items} keyOf=${keyOf} draw=${row} guess=${ROW_PX} show=${show} />
        ${!wide && gone && detail}
        ${data?.cursor && html`<p class="more">${limit < MAX_SHOWN && items.length >= limit ? html`<button type="button" class="plain" onClick=${() => setLimit(Math.min(MAX_SHOWN, limit * 4))}>Show more</button>` :
          html`<button type="button" class="plain" onClick=${() => turn([...cursors, data.cursor])}>Later deadlines</button>`}</p>`}</div>
        ${wide && html`<div class="pane-detail">${detail}</div>`}</div>`}
    ${bulk && html`<${Bulk} item=${bulk} items=${alike(items, bulk)} onClose=${() => setBulk(undefined)} onDone=${() => {
      select(undefined);
      refresh();
    }} />`}
  </div>`;
}

/** How many wait; nobody counts those that are on no page yet. */
function countOf(items, data, cursors) {
  if (cursors.length > 0) return `Page ${cursors.length + 1}`;
  return `${count(items.length)}${data?.cursor ? " or more" : ""} waiting`;
}

/** The entry that is open and was in the list before, but is no longer. */
function useGone(selected, current, items, data) {
  const open = useRef();
  if (current && (selected === undefined || keyOf(current) === selected)) open.current = current;
  if (!selected || !data || items.some((item) => keyOf(item) === selected)) return undefined;
  return open.current && keyOf(open.current) === selected ? open.current : undefined;
}

function Filter({ query, agents, tools }) {
  const set = (member, value) => {
    const next = Object.fromEntries(query);
    replace(link(path, undefined, { ...next, [member]: value }));
  };
  const list = (member, label, names) => html`<label class="pick"><span>${label}</span>
    <select value=${query.get(member) ?? ""} onChange=${(event) => set(member, event.target.value)}>
    <option value="">any</option>${[...new Set([...names, query.get(member)].filter(Boolean))].map((it) => html`<option value=${it}>${clip(it, 60)}</option>`)}</select></label>`;
  return html`<div class="filter" role="group" aria-label="Filter">
    <div class="segments">${KINDS.map(([kind, label]) => html`<button type="button" aria-pressed=${(query.get("kind") ?? "") === kind}
      data-filter=${kind === "" ? "first" : undefined} onClick=${() => set("kind", kind)}>${label}</button>`)}</div>
    ${list("agent", "Agent", agents)}${list("tool", "Tool", tools)}
    <label class="option"><input type="checkbox" checked=${query.get("mine") === "true"}
      onChange=${(event) => set("mine", event.target.checked ? "true" : "")} />I may answer</label></div>`;
}

/** A row. Of all rows, Tab stops at the one that is open: j and k go to the others. */
function Row({ item, isCurrent, isFirst, onSelect, detail }) {
  return html`<li class=${`row-item ${item.kind}`} data-key=${keyOf(item)}><button type="button" class="row-main" tabindex=${isCurrent || isFirst ? 0 : -1}
    aria-current=${isCurrent ? "true" : undefined} onClick=${onSelect}>
    <span class="row-title" dir="auto">${visible(clip(titleOf(item), 140))}</span>
    <span class="row-meta"><${Badge} tone=${item.kind === "approval" ? "wait" : "run"}>${KIND_WORDS[item.kind] ?? item.kind}<//>
      <span>${visible(clip(item.agent, 32))}</span><code>${visible(clip(item.tool, 32))}</code></span>
    <span class="row-args">${visible(summary(item.args))}</span>
    <${Countdown} at=${item.expires_at} /></button>${detail}</li>`;
}

function Detail({ item, isGone, items, refresh, onBulk, onClose }) {
  const same = alike(items, item);
  const time = useNow();
  const answered = (outcome) => {
    if (outcome.done) onClose();
    refresh();
  };
  return html`<div class="detail"><p class="detail-head"><a href=${link("c", item.conversation_id)}>${visible(clip(item.conversation_id, 60))}</a>
      <span class="note">${visible(clip(item.agent, 40))} asked ${ago(time - Date.parse(item.suspended_at))}</span>
      ${isGone && html`<button type="button" class="link" onClick=${onClose}>Close</button>`}</p>
    ${isGone ? html`<${Gone} item=${item} />` : html`<${AnswerCard} item=${item} refresh=${answered} />
      ${same.length > 1 && item.kind === "approval" && html`<p class="alike"><button type="button" class="plain" onClick=${() => onBulk(item)}>
        Approve all ${same.length} like this …</button></p>`}`}
    <${Recent} conversation=${item.conversation_id} /></div>`;
}

/** What became of an entry that was open. */
function Gone({ item }) {
  const [text, setText] = useState("It no longer waits.");
  useEffect(() => {
    quicker(item, item.conversation_id).then(setText, () => {});
  }, []);
  return html`<section class="answer gone"><h2 dir="auto">${visible(clip(titleOf(item), 500))}</h2><p class="trouble" role="status">${visible(text)}</p></section>`;
}

function Nothing({ isFiltered, isLater, agents }) {
  if (isLater) return html`<${Empty} title="Nothing is left on this page" />`;
  if (isFiltered) return html`<${Empty} title="Nothing fits this filter"><p><a href=${link(path)}>Show everything</a></p><//>`;
  return html`<${Empty} title="Nothing waits for you"><p>When an agent needs a decision, it appears here, with the time that is left.${agents && " Try one:"}</p>
    ${agents && html`<${ThreeThings} agents=${agents} />`}<//>`;
}

/** Approves all calls of one tool that an agent waits with. */
function Bulk({ item, items, onClose, onDone }) {
  const [done, setDone] = useState(0);
  const act = async () => {
    const byConversation = Map.groupBy(items, (it) => it.conversation_id);
    let [approved, failed] = [0, undefined];
    for (const [conversation, calls] of byConversation) {
      for (let from = 0; from < calls.length; from += MAX_ANSWERS) {
        const part = calls.slice(from, from + MAX_ANSWERS);
        const answers = part.map(({ call_id, suspension }) => ({ call_id, suspension, approved: true }));
        const { results } = await post(`${pathOf(conversation)}/resolutions`, { answers });
        approved += results.filter((it) => it.status).length;
        failed = results.find((it) => it.problem)?.problem ?? failed;
        setDone((before) => before + part.length);
      }
    }
    onDone();
    notify(`Approved ${approved} of ${items.length}.${failed ? ` ${failed.detail}` : ""}`, failed ? "wait" : "ok");
  };
  return html`<${Confirm} title=${`Approve ${alikeText(items)} of ${clip(item.tool, 60)}?`} verb="Approve all" tone="ok" act=${act} onClose=${onClose}>
    <p>Each with its arguments as they are:</p>
    <ul class="bulk-list" tabindex="0" aria-label="Calls">${items.slice(0, 50).map((it) => html`<li><code>${visible(clip(it.conversation_id, 30))}</code> ${visible(summary(it.args))}</li>`)}
      ${items.length > 50 && html`<li>and ${items.length - 50} more</li>`}</ul>
    ${done > 0 && html`<p role="status">${done} of ${items.length}</p>`}<//>`;
}

const isTyping = (target) => target.closest?.("input, textarea, select, dialog, summary");

function useInboxKeys(latest) {
  const state = useRef();
  state.current = latest;
  useEffect(() => {
    const press = (event) => {
      if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      const act = KEYS[event.key];
      if (act?.(state.current, event)) event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

function move(step) {
  return ({ items, current, select, show }) => {
    if (items.length === 0) return false;
    const index = current ? items.findIndex((item) => keyOf(item) === keyOf(current)) : -1;
    const next = Math.min(items.length - 1, Math.max(0, index + step));
    select(keyOf(items[next]));
    show.current?.(next);
    // The row is drawn by then, also if it was far away.
    requestAnimationFrame(() => {
      const row = [...document.querySelectorAll(".row-item")].find((it) => it.dataset.key === keyOf(items[next]));
      row?.querySelector("button").focus();
      row?.scrollIntoView({ block: "nearest" });
    });
    return true;
  };
}

function decideBy(approved) {
  return ({ current, items, refresh, select }) => {
    if (current?.kind !== "approval" || current.may_answer === false) return false;
    const index = items.findIndex((item) => keyOf(item) === keyOf(current));
    const next = items[index + 1] ?? items[index - 1];
    decide(current, approved).then(({ done, over, wrong, error }) => {
      if (over) notify(over, "wait");
      if (wrong || error) notify(wrong?.message ?? explain(error), "bad");
      if (done) select(next && keyOf(next));
      refresh();
    });
    return true;
  };
}

const press = (selector) => () => {
  const target = document.querySelector(selector);
  target?.click();
  target?.focus();
  return Boolean(target);
};

const KEYS = {
  j: move(1),
  k: move(-1),
  a: decideBy(true),
  d: decideBy(false),
  e: press(".answer [data-key=e]"),
  x: ({ current, items, setBulk }) => {
    if (current?.kind !== "approval") return false;
    if (alike(items, current).length > 1) setBulk(current);
    return true;
  },
  Enter: ({ current }, event) => {
    if (!current || event.target.closest("button:not(.row-main), a")) return false;
    go(link("c", current.conversation_id));
    return true;
  },
  "/": () => {
    document.querySelector("[data-filter=first]")?.focus();
    return true;
  },
};
