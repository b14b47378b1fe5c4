// A turn as bars over time: the model's steps, and for each call where it waited and where it ran.
import { html } from "../../html.js";
import { useNow } from "../../poll.js";
import { clip, duration, visible } from "../../text.js";

/** A bar is at least this share of the width, so that an instant is seen. */
const MIN_SHARE = 0.004;
const MAX_LANES = 100;
const TONES = { wait: "wait", run: "run", asks: "run", vote: "wait", lost: "bad" };

/** The bars of a call: `{from, to, tone, label}` in ms; `end` is now, or when the turn ended. */
export function barsOf(call, end) {
  const bars = [];
  call.steps.forEach((step, index) => {
    const next = call.steps[index + 1];
    const from = Date.parse(step.at);
    const to = next ? Date.parse(next.at) : Date.parse(call.ended_at ?? "") || end;
    if (TONES[step.kind] && step.kind !== "lost") bars.push({ from, to, tone: TONES[step.kind], label: step.label });
    if (["lost", "result", "answer"].includes(step.kind)) bars.push({ from, to: from, tone: step.tone, label: step.label, isMark: true });
  });
  return bars;
}

export function Timeline({ turn, calls }) {
  const time = useNow(turn.ended_at === undefined);
  const begin = Date.parse(turn.began_at);
  const end = turn.ended_at ? Date.parse(turn.ended_at) : Math.max(time, begin + 1);
  const models = turn.models.map((step) => ({ from: Date.parse(step.from), to: Date.parse(step.at), tone: "model", label: `model, step ${step.step}` }));
  const lanes = [{ name: "model", bars: models }, ...calls.slice(0, MAX_LANES).map((call) => ({ name: call.tool ?? call.id, bars: barsOf(call, end) }))];
  const outcome = turn.outcome && `${turn.outcome}${turn.reason ? `: ${turn.reason}` : ""}`;
  return html`<div class="timeline"><p class="note">${outcome ? html`Turn <b>${visible(clip(outcome, 300))}</b> after ${duration(end - begin)}` : html`The turn runs since ${duration(end - begin)}`}</p>
    <div class="lanes">${lanes.map((lane, index) => html`<${Lane} key=${index} ...${{ ...lane, begin, end }} />`)}</div>
    <p class="scale" aria-hidden="true"><span>0</span><span>${duration((end - begin) / 2)}</span><span>${duration(end - begin)}</span></p>
    <p class="key"><span><i class="bar-key model"></i>model</span><span><i class="bar-key wait"></i>waits</span><span><i class="bar-key run"></i>runs</span><span><i class="bar-key bad"></i>interrupted or failed</span></p></div>`;
}

function Lane({ name, bars, begin, end }) {
  const whole = Math.max(1, end - begin);
  const share = (ms) => Math.min(1, Math.max(0, ms / whole));
  const told = bars.map((bar) => `${bar.label}${bar.isMark ? "" : ` ${duration(bar.to - bar.from)}`}`).join(", ");
  return html`<div class="lane"><span class="lane-name" title=${clip(name, 300)}>${visible(clip(name, 28))}</span>
    <div class="track" role="img" aria-label=${`${clip(name, 60)}: ${clip(told, 400)}`}>${bars.map((bar, index) => html`<i key=${index}
      class=${`${bar.isMark ? "mark" : ""} ${bar.tone ?? ""}`} title=${`${bar.label}${bar.isMark ? "" : `, ${duration(bar.to - bar.from)}`}`}
      style=${{ left: `${Math.min(share(bar.from - begin), 1 - MIN_SHARE) * 100}%`, width: bar.isMark ? undefined : `${Math.max(MIN_SHARE, share(bar.to - bar.from)) * 100}%` }}></i>`)}</div></div>`;
}
