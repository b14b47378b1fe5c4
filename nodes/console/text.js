// Texts for people: times, sizes, and texts of others, in which nothing may pose as something else.
import { html } from "./html.js";

// Characters that change the direction of what follows, or are invisible.
const HIDDEN = /[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
const ANY_HIDDEN = new RegExp(HIDDEN.source);

/** A text of others, in which controls of direction and invisible characters are seen as such. */
export function visible(value) {
  const text = String(value ?? "");
  if (!ANY_HIDDEN.test(text)) return text;
  const parts = [];
  let from = 0;
  for (const { 0: sign, index } of text.matchAll(HIDDEN)) {
    const code = sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    parts.push(text.slice(from, index), html`<span class="hidden-sign" title="hidden character">U+${code}</span>`);
    from = index + sign.length;
  }
  return [...parts, text.slice(from)];
}

/** The beginning of a text; whole characters, and at most `length` of their units. */
export function clip(value, length) {
  const text = String(value ?? "");
  return text.length <= length ? text : `${text.slice(0, length).toWellFormed()}…`;
}

/** A duration, such as `840 ms`, `1.2 s`, `4 min 5 s`, `2 h 3 min`, `3 d 4 h`. */
export function duration(ms) {
  const value = Math.max(0, ms);
  if (value < 1_000) return `${Math.round(value)} ms`;
  if (value < 10_000) return `${(value / 1_000).toFixed(1)} s`;
  const seconds = Math.floor(value / 1_000);
  if (seconds < 60) return `${seconds} s`;
  const pair = (whole, part, unit, small) => (part > 0 ? `${whole} ${unit} ${part} ${small}` : `${whole} ${unit}`);
  const [minutes, hours] = [Math.floor(seconds / 60), Math.floor(seconds / 3_600)];
  if (minutes < 60) return pair(minutes, seconds % 60, "min", "s");
  if (hours < 24) return pair(hours, minutes % 60, "h", "min");
  return pair(Math.floor(hours / 24), hours % 24, "d", "h");
}

/** How long ago something was. */
export const ago = (ms) => (ms < 5_000 ? "just now" : `${duration(ms).split(" ").slice(0, 2).join(" ")} ago`);

/** A size in bytes. */
export function bytes(count) {
  if (count < 1_024) return `${count} B`;
  return count < 1 << 20 ? `${(count / 1_024).toFixed(1)} KiB` : `${(count / (1 << 20)).toFixed(1)} MiB`;
}

/** A count, such as `12,345`. */
export const count = (value) => Number(value ?? 0).toLocaleString("en");

/** `1 node`, `2 nodes`. */
export const plural = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** The time of a day, and the date unless it is today. */
export function clock(at, today = new Date()) {
  const date = new Date(at);
  const time = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return date.toDateString() === today.toDateString() ? time : `${date.toLocaleDateString()} ${time}`;
}

/** A state in words. */
export const words = (state) => String(state ?? "").replaceAll("_", " ");
