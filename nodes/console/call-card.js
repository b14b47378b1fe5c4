// One call of a tool: what it is, how far it got, and what came of it.
import { AnswerCard } from "./answer-card.js";
import { html } from "./html.js";
import { Badge, Elapsed, Json, Values } from "./parts.js";
import { clip, duration, visible, words } from "./text.js";

/** How much of a tool's name and of a summary is shown in a line. */
const NAME_CHARS = 64;
const SUMMARY_CHARS = 120;

/** A card for a call of a message. `history` is what the journal tells of it, `pending` its open question,
 * `running` its entry of those in flight, `result` its message. */
export function CallCard({ call, history, pending, running, result, conversation, refresh }) {
  const envelope = result?.content?.[0]?.data;
  const outcome = history?.ended_at ? { ok: history.ok, value: history.result, type: history.error_type } :
    envelope && { ok: envelope.ok, value: envelope.ok ? envelope.result : envelope.error, type: envelope.error_type };
  const tone = pending ? "wait" : outcome ? (outcome.ok ? "ok" : "bad") : running ? "run" : "quiet";
  const name = call.name ?? history?.tool;
  return html`<article class=${`call ${tone}`} aria-label=${`Call of ${clip(name, NAME_CHARS)}`}>
    <header><span class="dot" aria-hidden="true"></span>
      <strong class="tool" title=${clip(name, 300)}>${visible(clip(name, NAME_CHARS))}</strong>
      <span class="summary">${visible(summary(call.args))}</span>
      <${Badge} tone=${tone}>${labelOf(tone, outcome, pending)}<//></header>
    ${history && html`<${Steps} history=${history} isOver=${Boolean(outcome)} />`}
    ${running && html`<${Progress} running=${running} />`}
    ${pending && html`<${AnswerCard} item=${pending} conversation=${conversation} refresh=${refresh} isInline />`}
    ${!pending && html`<details><summary>Arguments</summary><${Values} value=${history?.edited_args ?? call.args} label="Arguments" /></details>`}
    ${outcome && html`<details><summary>${outcome.ok ? "Result" : "Error"}</summary>
      <${Json} value=${outcome.value} label="Result" /></details>`}
    ${history?.ui && html`<details><summary>For people: ${visible(clip(history.ui.kind, NAME_CHARS))}</summary>
      <${Json} value=${history.ui.payload} label="Payload" /></details>`}
    ${history?.child_conversation_id && html`<p class="note"><a href=${`#/c/${encodeURIComponent(history.child_conversation_id)}`}>
      Open the child conversation</a></p>`}
  </article>`;
}

function labelOf(tone, outcome, pending) {
  if (pending) return { approval: "needs approval", elicitation: "asks you", client_exec: "waits for a page", in_doubt: "in doubt" }[pending.kind];
  if (outcome) return outcome.ok ? "done" : words(String(outcome.type ?? "error").toLowerCase());
  return tone === "run" ? "running" : "not started";
}

/** The arguments in a few words. */
export function summary(args) {
  if (args === null || typeof args !== "object") return clip(args ?? "", SUMMARY_CHARS);
  const short = Object.values(args).filter((value) => typeof value !== "object");
  return clip(short.slice(0, 4).map((value) => clip(value, 48)).join(" · "), SUMMARY_CHARS);
}

/** What happened, one step after another, with how long each took. */
export function Steps({ history, isOver }) {
  const { steps } = history;
  const between = (step, index) => {
    const next = steps[index + 1];
    const isOpen = !next && !isOver && ["wait", "run", "asks"].includes(step.kind);
    if (isOpen) return html`<${Elapsed} from=${step.at} />`;
    const ms = next ? Date.parse(next.at) - Date.parse(step.at) : 0;
    return ["wait", "run", "asks", "vote"].includes(step.kind) && next ? duration(ms) : undefined;
  };
  return html`<ol class="steps" aria-label="What happened">${steps.map((step, index) => {
    const took = between(step, index);
    return html`<li key=${index} class=${`step-${step.kind} ${step.tone ?? ""}`} title=${step.at}>
      <span>${visible(clip(step.label, 100))}${step.edited && " (edited)"}</span>
      ${step.reason && html`<q>${visible(clip(step.reason, 200))}</q>`}
      ${took && html`<span class="took">${took}</span>`}</li>`;
  })}</ol>`;
}

/** How far a running tool says that it is. */
function Progress({ running }) {
  const { progress } = running;
  if (progress === null || progress === undefined) return html`<div class="progress"><i class="unknown"></i></div>`;
  const share = shareOf(progress);
  const said = typeof progress === "string" ? progress : (progress.message ?? progress.text ?? progress.status);
  return html`<div class="progress">${share === undefined ? html`<i class="unknown"></i>` :
    html`<i style=${{ width: `${share * 100}%` }}></i>`}</div>
    <p class="note">${visible(clip(said ?? JSON.stringify(progress), 200))}${share !== undefined && ` · ${Math.round(share * 100)} %`}</p>`;
}

/** The share that is done, if a progress report has one; tools name it in several ways. */
export function shareOf(progress) {
  if (typeof progress !== "object" || progress === null) return undefined;
  const { total } = progress;
  const done = progress.progress ?? progress.done ?? progress.percent ?? progress.fraction;
  if (typeof done !== "number") return undefined;
  if (typeof total === "number" && total > 0) return Math.min(1, Math.max(0, done / total));
  if (progress.percent !== undefined || done > 1) return Math.min(1, Math.max(0, done / 100));
  return Math.max(0, done);
}
