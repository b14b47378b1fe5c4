// Markdown as vnodes. There is no HTML at any point, so that markup in a text is seen as text.
import { html } from "./html.js";
import { lexer } from "./lexer.js";
import { clip, visible } from "./text.js";

/** A longer text is shown as it is: cutting it into tokens would stop the page. */
const MAX_MARKDOWN_CHARS = 200_000;
/** Entities that people and models write in Markdown. */
const ENTITIES = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'" };

const unescape = (text) => text.replace(/&(?:amp|lt|gt|quot|#39);/g, (entity) => ENTITIES[entity]);

/** The address of a link, if following it does no harm. */
export function safeLink(href) {
  try {
    const url = new URL(href);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : undefined;
  } catch {
    return undefined;
  }
}

/** The vnodes of a text. */
export function markdown(text) {
  if (text.length > MAX_MARKDOWN_CHARS) return html`<pre class="plain">${visible(text)}</pre>`;
  return drawAll(lexer(text));
}

const drawAll = (tokens) => tokens.map((token) => DRAW[token.type](token));
const cells = (Tag, row) => row.map((tokens) => html`<${Tag}>${drawAll(tokens)}<//>`);

/** How each type of token is drawn. */
const DRAW = {
  hr: () => html`<hr />`,
  heading: ({ depth, tokens }) => html`<p class=${`h h${depth}`} role="heading" aria-level="2">${drawAll(tokens)}</p>`,
  paragraph: ({ tokens }) => html`<p dir="auto">${drawAll(tokens)}</p>`,
  code: ({ lang, text }) => html`<figure class="code">${lang && html`<figcaption>${visible(clip(lang, 30))}</figcaption>`}
    <pre tabindex="0"><code>${visible(text)}</code></pre></figure>`,
  checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  blockquote: ({ tokens }) => html`<blockquote>${drawAll(tokens)}</blockquote>`,
  list: ({ ordered, start, items }) => {
    const rows = items.map((tokens) => html`<li dir="auto">${drawAll(tokens)}</li>`);
    return ordered ? html`<ol start=${start}>${rows}</ol>` : html`<ul>${rows}</ul>`;
  },
  table: ({ header, rows }) => html`<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>
    <thead><tr>${cells("th", header)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${cells("td", row)}</tr>`)}</tbody></table></div>`,
  strong: ({ tokens }) => html`<strong>${drawAll(tokens)}</strong>`,
  em: ({ tokens }) => html`<em>${drawAll(tokens)}</em>`,
  del: ({ tokens }) => html`<del>${drawAll(tokens)}</del>`,
  codespan: ({ text }) => html`<code>${visible(text)}</code>`,
  br: () => html`<br />`,
  escape: ({ text }) => text,
  text: ({ tokens, text }) => (tokens ? drawAll(tokens) : visible(unescape(text))),
  // An image would tell a stranger's server that the page was read.
  image: ({ href, text, raw }) => link(href, visible(text || "image"), raw),
  link: ({ href, tokens, raw }) => link(href, drawAll(tokens), raw),
};

function link(href, content, raw) {
  const address = safeLink(href);
  if (!address) return visible(raw);
  return html`<a href=${address} title=${address} target="_blank" rel="noopener noreferrer">${content}</a>`;
}
