// Markdown as vnodes: marked only cuts the text into tokens. There is no HTML at any point, so that markup in
// a text is seen as text.
import { html } from "./html.js";
import { clip, visible } from "./text.js";
import { getDefaults, lexer } from "./vendor/marked.js";

/** A longer text is shown as it is: cutting it into tokens would stop the page. */
const MAX_MARKDOWN_CHARS = 200_000;
/** How deep lists and quotes are drawn. */
const MAX_DEPTH = 12;
/** A line of a chat ends where its writer ended it. */
const OPTIONS = { ...getDefaults(), breaks: true };
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
  try {
    return blocks(lexer(text, OPTIONS), 0);
  } catch {
    return html`<p class="plain">${visible(text)}</p>`;
  }
}

const blocks = (tokens, depth) => tokens.map((token) => block(token, depth));

const BLOCKS = {
  space: () => null,
  hr: () => html`<hr />`,
  heading: (token) => html`<p class=${`h h${token.depth}`} role="heading" aria-level=${token.depth + 2}>
    ${inline(token.tokens)}</p>`,
  paragraph: (token) => html`<p dir="auto">${inline(token.tokens)}</p>`,
  text: (token) => (token.tokens ? inline(token.tokens) : visible(unescape(token.text))),
  code: (token) => html`<figure class="code">
    ${token.lang && html`<figcaption>${visible(clip(token.lang, 30))}</figcaption>`}
    <pre tabindex="0"><code>${visible(token.text)}</code></pre></figure>`,
  checkbox: (token) => (token.checked ? "☑ " : "☐ "),
  blockquote: (token, depth) => html`<blockquote>${blocks(token.tokens, depth + 1)}</blockquote>`,
  list: (token, depth) => {
    const items = token.items.map((item) => html`<li dir="auto">${blocks(item.tokens, depth + 1)}</li>`);
    return token.ordered ? html`<ol start=${token.start || 1}>${items}</ol>` : html`<ul>${items}</ul>`;
  },
  table: (token) => {
    const cell = (Tag) => (it) => html`<${Tag}>${inline(it.tokens)}<//>`;
    return html`<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>
      <thead><tr>${token.header.map(cell("th"))}</tr></thead>
      <tbody>${token.rows.map((row) => html`<tr>${row.map(cell("td"))}</tr>`)}</tbody></table></div>`;
  },
};

function block(token, depth) {
  if (depth > MAX_DEPTH || !Object.hasOwn(BLOCKS, token.type)) {
    return token.tokens && depth <= MAX_DEPTH ? inline([token]) : html`<p class="plain">${visible(token.raw)}</p>`;
  }
  return BLOCKS[token.type](token, depth);
}

const SPANS = {
  strong: (token, depth) => html`<strong>${inline(token.tokens, depth)}</strong>`,
  em: (token, depth) => html`<em>${inline(token.tokens, depth)}</em>`,
  del: (token, depth) => html`<del>${inline(token.tokens, depth)}</del>`,
  codespan: (token) => html`<code>${visible(token.text)}</code>`,
  br: () => html`<br />`,
  escape: (token) => visible(unescape(token.text)),
  text: (token, depth) => (token.tokens ? inline(token.tokens, depth) : visible(unescape(token.text))),
  // An image would tell a stranger's server that the page was read.
  image: (token) => link(token.href, token.text || "image", token.raw),
  link: (token, depth) => link(token.href, inline(token.tokens, depth), token.raw),
};

function link(href, content, raw) {
  const address = safeLink(href);
  if (!address) return visible(raw);
  return html`<a href=${address} title=${address} target="_blank" rel="noopener noreferrer">${content}</a>`;
}

function inline(tokens, depth = 0) {
  return tokens.map((token) => {
    if (depth > MAX_DEPTH || !Object.hasOwn(SPANS, token.type)) return visible(token.raw);
    return SPANS[token.type](token, depth + 1);
  });
}
