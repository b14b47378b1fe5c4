// One conversation, live: its messages with their calls, what waits, how it is, and where one writes.
import { connect } from "../abide.js";
import { AnswerCard, keyOf } from "../answer-card.js";
import { CallCard } from "../call-card.js";
import { Composer } from "./conversation/composer.js";
import { Facts } from "./conversation/facts.js";
import { Fragment, html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { pathOf, useJournal } from "../journal.js";
import { markdown } from "../markdown.js";
import { Badge, Empty, Json, Loading, State, Trouble } from "../parts.js";
import { link } from "../router.js";
import { credential, get, trackedFetch } from "../session.js";
import { ThreeThings } from "../start.js";
import { clip, clock, duration, visible } from "../text.js";

/** How near to its end a list follows what is added. */
const FOLLOW_PX = 120;

/** The conversation as `abide.js` follows it: `{abide, state, error}`. */
function useConversation(id, agent) {
  const [seen, setSeen] = useState({});
  useEffect(() => {
    const known = credential();
    const abide = connect({ conversation: id, agent, fetch: trackedFetch, ...(known && { token: credential }) });
    abide.tool("locate", () => ({
      time_zone: Intl.DateTimeFormat().resolvedOptions().timeZone,
      language: navigator.language,
    }));
    let frame = 0;
    const draw = () => {
      frame = 0;
      setSeen((before) => ({ ...before, abide, state: abide.state }));
    };
    abide.on("change", () => (frame ||= requestAnimationFrame(draw)));
    // A vote that does not decide changes nothing that the frames tell of.
    abide.on("voted", () => setSeen((before) => ({ ...before, votes: (before.votes ?? 0) + 1 })));
    abide.on("error", (error) => setSeen((before) => ({ ...before, abide, error })));
    setSeen({ abide, state: abide.state });
    return () => {
      cancelAnimationFrame(frame);
      abide.close();
    };
  }, [id, agent]);
  return seen;
}

export function View({ route: { id, query } }) {
  const { abide, state: followed, error, votes } = useConversation(id, query.get("agent") ?? undefined);
  const version = useVersion(followed, votes);
  const state = useEntries(id, followed, version);
  const journal = useJournal(id, version);
  const older = useOlder(id, state);
  const [showFacts, setShowFacts] = useState(false);
  const [refusal, setRefusal] = useState();
  const act = (what) => what().then(() => setRefusal(undefined), setRefusal);
  if (!id) return html`<${Empty} as="h1" title="Which conversation?"><p><a href="#/conversations">All conversations</a></p><//>`;
  const isLost = error && state?.id === undefined && abide?.closed;
  if (isLost) return html`<${Empty} as="h1" title=${error.status === 404 ? "There is no such conversation" : "It cannot be shown"}>
    ${error.status !== 404 && html`<${Trouble} error=${error} />`}<p><a href="#/conversations">All conversations</a></p><//>`;
  if (!abide || state?.id === undefined) return html`<${Loading} />`;
  const messages = older.messages.length > 0 ? [...older.messages, ...state.messages] : state.messages;
  return html`<div class=${`conversation ${showFacts ? "show-facts" : ""}`}>
    <section class="thread" aria-label="Conversation"><header class="thread-head"><h1 title=${id}>${visible(clip(id, 60))}</h1>
        <span id="status"><${State} state=${state.state} /></span>${!state.connected && html`<${Badge} tone="bad">reconnecting<//>`}
        ${state.queued > 0 && html`<${Badge} tone="wait">${state.queued} queued<//>`}
        <button type="button" class="plain facts-button" aria-expanded=${showFacts} onClick=${() => setShowFacts(!showFacts)}>Details</button></header>
      <${Messages} ...${{ id, state, messages, older, journal, abide, act }} />
      <${Trouble} error=${refusal ?? (error && !isLost ? error : undefined)} />
      <${Composer} abide=${abide} state=${state} /></section>
    <${Facts} id=${id} state=${state} events=${journal.events} /></div>`;
}

/** Changes when the journal may have more. */
function useVersion(state, votes) {
  const last = useRef({ version: 0 });
  const { messages, pending, in_flight, turn, todos, child_pending } = state ?? {};
  const now = [messages, pending, in_flight, turn, todos, child_pending, votes];
  if (!last.current.seen || now.some((it, index) => it !== last.current.seen[index])) {
    last.current = { seen: now, version: last.current.version + 1 };
  }
  return last.current.version;
}

/** The state with what only the inbox knows of pending calls: votes, who may answer, and the policy. */
function useEntries(id, state, version) {
  const [entries, setEntries] = useState([]);
  const isNeeded = state?.pending?.length > 0;
  useEffect(() => {
    if (!isNeeded) return undefined;
    const stop = new AbortController();
    const read = get(`/v1/pending?limit=200&conversation=${encodeURIComponent(id)}`, { signal: stop.signal });
    read.then(({ pending }) => setEntries(pending)).catch(() => {});
    return () => stop.abort();
  }, [id, version, isNeeded]);
  const pending = useMemo(() => {
    const isOf = (call) => (it) => it.conversation_id === id && it.call_id === call.call_id && it.suspension === call.suspension;
    return state?.pending?.map((call) => {
      // The entry stays that of this conversation: what was typed for it is found again by its members.
      const { conversation_id: _, ...more } = entries.find(isOf(call)) ?? {};
      return { ...call, ...more };
    });
  }, [state?.pending, entries]);
  return isNeeded ? { ...state, pending } : state;
}

/** Messages above the newest page, asked for one page at a time. */
function useOlder(id, state) {
  const [older, setOlder] = useState({ messages: [] });
  const isReady = state?.id !== undefined;
  useEffect(() => {
    if (!isReady) return;
    get(`${pathOf(id)}/messages`).then(({ cursor, more, messages }) => setOlder((before) => ({ cursor, more, isEmpty: messages.length === 0, ...before }))).catch(() => {});
  }, [id, isReady]);
  const load = async () => {
    const page = await get(`${pathOf(id)}/messages?limit=200&before=${encodeURIComponent(older.cursor)}`);
    setOlder((before) => ({ cursor: page.cursor, more: page.more, messages: [...page.messages, ...before.messages] }));
  };
  const known = new Set((state?.messages ?? []).map((it) => it.id));
  return { ...older, messages: older.messages.filter((it) => !known.has(it.id)), load };
}

function Messages({ id, state, messages, older, journal, abide, act }) {
  const list = useRef();
  const [isAtEnd, setAtEnd] = useState(true);
  const column = useRef();
  const follow = useRef(true);
  const lastTop = useRef(0);
  // Only a person scrolls upwards: what grows below moves nothing.
  const scrolled = () => {
    const { scrollTop, clientHeight, scrollHeight } = list.current;
    const isNear = scrollHeight - scrollTop - clientHeight < FOLLOW_PX;
    follow.current = isNear || (follow.current && scrollTop >= lastTop.current);
    lastTop.current = scrollTop;
    setAtEnd(follow.current);
  };
  const toEnd = () => {
    follow.current = true;
    list.current.scrollTo({ top: list.current.scrollHeight });
  };
  useLayoutEffect(() => {
    const grown = new ResizeObserver(() => follow.current && toEnd());
    grown.observe(column.current);
    grown.observe(list.current);
    return () => grown.disconnect();
  }, []);
  const results = useMemo(() => new Map(messages.filter((it) => it.role === "tool").map((it) => [it.tool_call_id, it])), [messages]);
  const unlessSame = useUnlessSame();
  const turns = journal.history?.turns;
  const shown = messages.filter((it) => it.role !== "tool");
  const drawn = new Set();
  const items = shown.map((message, index) => {
    const endsTurn = shown[index + 1]?.turn_id !== message.turn_id;
    (message.tool_calls ?? []).forEach((call) => drawn.add(call.id));
    const calls = (message.tool_calls ?? []).map(({ id: call }) => [journal.history?.calls.get(call), state.pending.find((it) => it.call_id === call),
      state.in_flight.find((it) => it.call_id === call), results.get(call)]);
    const draw = () => html`<${Message} key=${message.id} ...${{ id, message, agent: state.agent, calls }} />`;
    return html`<${Fragment} key=${message.id}>${unlessSame(message.id, [message, state.agent, ...calls.flat()], draw)}
      ${endsTurn && html`<${TurnEnd} turn=${turns?.get(message.turn_id)} ...${{ abide, act }} isIdle=${state.state === "idle"} isLast=${index === shown.length - 1} />`}<//>`;
  });
  // A dispatched call, and one whose message is on an older page, stands by itself; not one whose message is on its way.
  const areKnown = messages.length > 0 || older.isEmpty;
  const loose = areKnown ? state.pending.filter((call) => !drawn.has(call.call_id)) : [];
  return html`<div class="messages" ref=${list} onScroll=${scrolled} role="log" aria-label="Messages" tabindex="0">
    <div class="column" ref=${column}>${older.more && html`<p class="more"><button type="button" class="plain" onClick=${older.load}>Earlier messages</button></p>`}
      ${items.length === 0 && !state.streaming && html`<${Empty} title="Say something"><p>This conversation with <b>${visible(clip(state.agent, 60))}</b> is empty. What you write is kept before it is answered.</p>${state.agent === "demo" && html`<${ThreeThings} agents=${[{ name: "demo" }]} />`}<//>`}
      ${items}
      ${state.streaming && html`<${Streaming} streaming=${state.streaming} />`}
      ${loose.map((call) => html`<${AnswerCard} key=${keyOf(call)} item=${call} conversation=${id} />`)}
      ${state.child_pending.map((call) => html`<div class="child-call" key=${keyOf(call)}><p class="note">The child conversation <a href=${link("c", call.conversation_id)}>${visible(clip(call.conversation_id, 60))}</a> of ${visible(clip(call.agent, 40))} waits:</p><${AnswerCard} item=${call} /></div>`)}
    </div>
    ${!isAtEnd && html`<button type="button" class="to-end" onClick=${toEnd}>To the newest</button>`}</div>`;
}

const NAMES = { user: "You", assistant: "Agent" };

/** Returns a function that draws anew what is drawn from other things than before: hundreds of messages stay as
 * they are while one is written. */
function useUnlessSame() {
  const drawn = useRef(new Map());
  return (key, from, draw) => {
    const before = drawn.current.get(key);
    if (before && before.from.length === from.length && before.from.every((it, index) => it === from[index])) return before.vnode;
    const vnode = draw();
    drawn.current.set(key, { from, vnode });
    return vnode;
  };
}

/** A message. `calls` has the history, the pending entry, the running entry and the result of each of its calls. */
function Message({ id, message, agent, calls: known }) {
  const { role, content, tool_calls = [], status, at } = message;
  const body = useMemo(() => content.map((block, index) => html`<${Block} key=${index} block=${block} isOwn=${role === "user"} />`), [message]);
  const calls = tool_calls.map((call, index) => {
    const [history, pending, running, result] = known[index];
    return html`<${CallCard} key=${call.id} ...${{ call, history, pending, running, result }} conversation=${id} />`;
  });
  const who = role === "assistant" ? agent : (NAMES[role] ?? role);
  return html`<article class=${`message ${role}`} aria-label=${who}><header><span class="who">${visible(clip(who, 40))}</span>
      ${at && html`<time datetime=${at}>${clock(at)}</time>`}${status && status !== "complete" && html`<${Badge} tone="bad">${status}<//>`}</header>
    <div class="text">${body}</div>${calls}</article>`;
}

/** A block of content; media are named, not loaded: they need the credential. */
function Block({ block, isOwn }) {
  if (block.type === "text" && block.text) return isOwn ? html`<p class="plain" dir="auto">${visible(block.text)}</p>` : markdown(block.text);
  if (block.type === "code") return html`<figure class="code"><figcaption>${visible(clip(block.language, 30))}</figcaption><pre tabindex="0"><code>${visible(block.text)}</code></pre></figure>`;
  if (block.type === "reasoning") return html`<details class="thinking"><summary>Thinking</summary><p class="plain">${visible(block.text ?? "")}</p></details>`;
  if (block.type === "text" || block.type === "tool_use") return null;
  if (typeof block.text === "string" && block.type !== "json") return html`<p class="plain" dir="auto">${visible(block.text)}</p>`;
  return html`<details><summary>${visible(clip(block.type, 40))}${block.title ? ` ${clip(block.title, 80)}` : ""}</summary><${Json} value=${block.data ?? block} /></details>`;
}

function Streaming({ streaming: { text, thinking } }) {
  return html`<article class="message assistant streaming" aria-label="The agent writes">
    ${thinking && html`<details class="thinking" open=${!text}><summary>Thinking</summary><p class="plain">${visible(thinking)}</p></details>`}
    <div class="text">${text ? markdown(text) : !thinking && html`<span class="typing" role="status" aria-label="The agent writes"><i></i><i></i><i></i></span>`}</div></article>`;
}

/** The line under a turn: how it ended, how long it took, and what it used. While nothing is under way, the last turn
 * can be begun anew, and the conversation can go on from any other. */
function TurnEnd({ turn, abide, act, isIdle, isLast }) {
  if (!turn?.outcome) return null;
  const took = turn.began_at ? duration(Date.parse(turn.ended_at) - Date.parse(turn.began_at)) : "";
  const tokens = (turn.usage?.input_tokens ?? 0) + (turn.usage?.output_tokens ?? 0);
  const parts = [took, tokens > 0 && `${tokens.toLocaleString("en")} tokens`, turn.usage?.cost_usd && `$${turn.usage.cost_usd.toFixed(4)}`].filter(Boolean);
  const isBad = turn.outcome !== "completed";
  return html`<p class=${`turn-end ${isBad ? "bad" : ""}`}>${isBad && html`<b>${turn.outcome}</b>`}${turn.reason && html` ${visible(clip(turn.reason, 400))}`} <span>${parts.join(" · ")}</span>
    ${isIdle && isLast && html`<button type="button" class="plain" title="Asks the model once more; this answer counts no longer" onClick=${() => act(() => abide.regenerate(turn.id))}>Again</button>`}
    ${isIdle && !isLast && html`<button type="button" class="plain" title="What came after this counts no longer; the journal keeps it" onClick=${() => act(() => abide.rewind(turn.ended_seq))}>Go on from here</button>`}</p>`;
}

