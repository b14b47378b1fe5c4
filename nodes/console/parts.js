// The small parts that all views are made of.
import { html, useEffect, useId, useMemo, useRef, useState } from "./html.js";
import { useNow } from "./poll.js";
import { explain, now } from "./session.js";
import { bytes, clip, duration, visible, words } from "./text.js";

/** How much of a JSON text is shown before somebody asks for the rest. */
const EXCERPT_CHARS = 4_000;
const MAX_SHOWN_CHARS = 400_000;
/** The last stretch before a deadline, in which it is shown as urgent. */
const URGENT_MS = 120_000;

const ICONS = {
  inbox: "M3 13h5l1.5 3h5L16 13h5M5.5 5h13l2.500 8v5a1 1 0 0 1-1 1h-16a1 1 0 0 1-1-1v-5z",
  chat: "M4 5h16v11H9l-5 4z",
  agents: "M12 3v3M6 9a3 3 0 0 1 3-3h6a3 3 0 0 1 3 3v7a3 3 0 0 1-3 3H9a3 3 0 0 1-3-3zM9.500 11.500v1M14.500 11.500v1M3 11v4M21 11v4",
  cluster: "M4 4h6v6H4zM14 4h6v6h-6zM4 14h6v6H4zM14 14h6v6h-6z",
  clock: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18M12 7v5l3 2",
  bell: "M6 16V11a6 6 0 0 1 12 0v5l1.500 2h-15zM10 21h4",
  stack: "M4 8l8-4 8 4-8 4zM4 12l8 4 8-4M4 16l8 4 8-4",
  eraser: "M9 19h11M4 14l9-9 6 6-8 8H8l-4-4z",
  key: "M14 10a4 4 0 1 0-3.500 4L12 12.500h2V11h2l4-4V4h-3z",
  theme: "M12 4a8 8 0 1 0 8 8 6 6 0 0 1-8-8",
  send: "M5 12h13M12 5l7 7-7 7",
  stop: "M7 7h10v10H7z",
  plus: "M12 5v14M5 12h14",
};

export const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
  <path d=${ICONS[name]} /></svg>`;

const TONES = {
  idle: "quiet", preparing: "run", streaming: "run", executing_tools: "run", awaiting_input: "wait",
  quarantined: "bad", up: "ok", draining: "wait", drained: "quiet", suspect: "bad",
};

export const toneOf = (state) => TONES[state] ?? "quiet";

/** A word with a colour that says how things are. */
export const Badge = ({ tone = "quiet", children }) => html`<span class=${`badge ${tone}`}>${children}</span>`;

export const State = ({ state }) => html`<${Badge} tone=${toneOf(state)}>${words(state)}<//>`;

/** The time that is left until `at`, which is a deadline unless `due` says what there is to say when it has come. */
export function Countdown({ at, due }) {
  const left = Date.parse(at) - useNow();
  const tone = due ? "" : left <= 0 ? "late" : left < URGENT_MS ? "urgent" : "";
  const text = left <= 0 ? (due ?? "deadline passed") : duration(Math.ceil(left / 1_000) * 1_000);
  return html`<time class=${`countdown ${tone}`} datetime=${at} title=${due ? at : `deadline ${at}`}>${text}</time>`;
}

/** A duration that grows as long as nothing has ended it. */
export function Elapsed({ from, to }) {
  const time = useNow(to === undefined);
  return duration((to === undefined ? Math.max(time, now()) : Date.parse(to)) - Date.parse(from));
}

/** JSON, or a text, of any size: its beginning first. */
export function Json({ value, label }) {
  const [all, showAll] = useState(false);
  const text = useMemo(() => (typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "")), [value]);
  const isLong = text.length > EXCERPT_CHARS;
  const shown = clip(text, all ? MAX_SHOWN_CHARS : EXCERPT_CHARS);
  return html`<div class="json"><pre tabindex="0" aria-label=${label ?? "JSON"}>${visible(shown)}</pre>
    ${isLong && !all && html`<button type="button" class="link" onClick=${() => showAll(true)}>
      Show all ${bytes(text.length)}</button>`}
    ${all && text.length > MAX_SHOWN_CHARS && html`<p class="note">The rest is not shown: it has ${bytes(text.length)}.</p>`}
  </div>`;
}

/** An object's members as a list of names and values; anything else as JSON. */
export function Values({ value, label }) {
  const entries = value && typeof value === "object" && !Array.isArray(value) ? Object.entries(value) : [];
  if (entries.length === 0 || entries.length > 30) {
    return entries.length === 0 && value && typeof value === "object" && !Array.isArray(value) ?
      html`<p class="note">No arguments</p>` : html`<${Json} value=${value} label=${label} />`;
  }
  const isShort = (it) => it === null || typeof it !== "object";
  return html`<dl class="values">${entries.map(([name, it]) => html`<div key=${name}>
    <dt>${visible(clip(name, 80))}</dt>
    <dd dir="auto">${isShort(it) && String(it).length <= EXCERPT_CHARS ?
      visible(it) : html`<${Json} value=${it} label=${name} />`}</dd></div>`)}</dl>`;
}

/** What went wrong, and what can be done about it. */
export function Trouble({ error, retry }) {
  if (!error) return null;
  return html`<div class="trouble" role="alert"><p>${visible(typeof error === "string" ? error : explain(error))}</p>
    ${retry && error.status !== 403 && html`<button type="button" onClick=${retry}>Try again</button>`}</div>`;
}

/** A part of a page that has nothing to show, and says why. */
export const Empty = ({ title, children, as = "p" }) => html`<div class="empty"><${as} class="empty-title">${title}<//>${children}</div>`;

/** A view of which the page knows nothing yet: it is on its way, or could not be had. */
export const NotYet = ({ title, error, retry }) => error ? html`<div class="list-view"><header class="view-head"><h1>${title}</h1></header><${Trouble} error=${error} retry=${retry} /></div>` :
  html`<${Loading} />`;

/** The lines that stand for what is on its way. */
export const Loading = () => html`<div class="loading" role="status" aria-label="Loading"><i></i><i></i><i></i></div>`;

/** A modal dialog, as the browser knows it: focus stays inside, Escape closes it. */
export function Dialog({ title, onClose, children }) {
  const ref = useRef();
  const id = useId();
  useEffect(() => {
    const element = ref.current;
    element.showModal();
    return () => element.close();
  }, []);
  const cancel = (event) => {
    event.preventDefault();
    onClose();
  };
  return html`<dialog ref=${ref} aria-labelledby=${id} onCancel=${cancel}>
    <h2 id=${id}>${title}</h2>${children}</dialog>`;
}

/** Asks before something is done. `act` may fail; its error is shown here. */
export function Confirm({ title, verb, tone = "", act, onClose, children }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState();
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await act();
      onClose();
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${title} onClose=${onClose}><form onSubmit=${submit}>
    ${children}<${Trouble} error=${error} />
    <p class="row end"><button type="button" class="plain" onClick=${onClose}>Back</button>
    <button class=${`primary ${tone}`} disabled=${busy}>${busy ? "Working …" : verb}</button></p></form><//>`;
}

/** A line that says what was just done; screen readers say it. */
export const Notices = ({ notices }) => html`<div class="notices" role="status" aria-live="polite">
  ${notices.map((it) => html`<p key=${it.id} class=${it.tone}>${visible(it.text)}</p>`)}</div>`;
