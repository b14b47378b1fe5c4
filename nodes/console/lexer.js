// Cuts the Markdown that people and models write in chats into tokens. It knows no HTML: a `<` is a text. Its
// time grows with the text alone, whatever the text is.

/** How deep quotes, lists and emphasis nest; what is deeper is plain text. */
const MAX_DEPTH = 12;
/** How far from its `[` the text of a link may end. */
const MAX_LABEL_CHARS = 300;
const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+|$)/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:( {1,4})|\t|$)/;
const DELIMITERS = /^ *\|?(?: *:?-+:? *\|)+(?: *:?-+:? *)?$/;
const TASK = /^\[([ xX])\] +/;

/** The tokens of a text. */
export function lexer(text) {
  return blocks(text.replace(/\r\n?/g, "\n").split("\n"), 0);
}

function blocks(lines, depth) {
  const tokens = [];
  for (let at = 0; at < lines.length;) {
    if (lines[at].trim() === "") {
      at += 1;
      continue;
    }
    const kind = depth < MAX_DEPTH ? BLOCKS.find((block) => block.begins(lines, at)) : undefined;
    const { token, next } = (kind?.read ?? paragraph)(lines, at, depth);
    tokens.push(token);
    at = next;
  }
  return tokens;
}

const BLOCKS = [
  { begins: (lines, at) => FENCE.test(lines[at]), read: code },
  { begins: (lines, at) => HEADING.test(lines[at]), read: heading },
  { begins: (lines, at) => RULE.test(lines[at]), read: (_, at) => ({ token: { type: "hr" }, next: at + 1 }) },
  { begins: (lines, at) => QUOTE.test(lines[at]), read: quote },
  { begins: (lines, at) => ITEM.test(lines[at]), read: list },
  { begins: (lines, at) => lines[at].includes("|") && DELIMITERS.test(lines[at + 1] ?? ""), read: table },
];

/** Whether a line ends the paragraph before it. A number ends one only if a list could begin with it. */
function interrupts(line) {
  const item = ITEM.exec(line);
  if (item) return !/^\d/.test(item[2]) || item[2].startsWith("1");
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line);
}

function paragraph(lines, at) {
  let next = at + 1;
  while (next < lines.length && lines[next].trim() !== "" && !interrupts(lines[next])) next += 1;
  const text = lines.slice(at, next).map((line) => line.trim()).join("\n");
  return { token: { type: "paragraph", tokens: inline(text) }, next };
}

function code(lines, at) {
  const [, indent, fence, lang] = FENCE.exec(lines[at]);
  const isEnd = (line) => {
    const text = line.trim();
    return text.length >= fence.length && text === fence[0].repeat(text.length);
  };
  let next = at + 1;
  while (next < lines.length && !isEnd(lines[next])) next += 1;
  const inner = lines.slice(at + 1, next).map((line) => (line.startsWith(indent) ? line.slice(indent.length) : line.trimStart()));
  return { token: { type: "code", lang: lang.trim(), text: inner.join("\n") }, next: next + 1 };
}

function heading(lines, at) {
  const { 0: mark, 1: signs } = HEADING.exec(lines[at]);
  const text = lines[at].slice(mark.length).trimEnd().replace(/[ \t]#+$/, "");
  return { token: { type: "heading", depth: signs.length, tokens: inline(text) }, next: at + 1 };
}

function quote(lines, at, depth) {
  let next = at;
  const inner = [];
  while (next < lines.length && (QUOTE.test(lines[next]) || (lines[next].trim() !== "" && !interrupts(lines[next])))) {
    inner.push(lines[next].replace(QUOTE, ""));
    next += 1;
  }
  return { token: { type: "blockquote", tokens: blocks(inner, depth + 1) }, next };
}

function list(lines, at, depth) {
  const begin = ITEM.exec(lines[at]);
  const ordered = /\d/.test(begin[2]);
  const items = [];
  let next = at;
  while (next < lines.length) {
    const mark = ITEM.exec(lines[next]);
    const isNext = mark && /\d/.test(mark[2]) === ordered && Math.abs(mark[1].length - begin[1].length) < 2 && !RULE.test(lines[next]);
    if (!isNext) break;
    const item = itemAt(lines, next, mark, depth);
    items.push(item.tokens);
    next = item.next;
  }
  // A mark that begins no item of its own list, such as a rule of stars, was taken by another block.
  const token = { type: "list", ordered, start: ordered ? Number.parseInt(begin[2], 10) : undefined, items };
  return { token, next: Math.max(next, at + 1) };
}

/** The lines of an item: those that are indented below its mark, and those that go on with its text. */
function itemAt(lines, at, mark, depth) {
  const indent = mark[0].length;
  const inner = [lines[at].slice(indent)];
  let next = at + 1;
  for (; next < lines.length; next += 1) {
    const line = lines[next];
    const isBlank = line.trim() === "";
    const isInside = isBlank || line.search(/[^ ]/) >= Math.min(indent, mark[1].length + 2);
    const goesOn = inner.at(-1).trim() !== "" && !interrupts(line) && !ITEM.test(line);
    if (!isInside && !goesOn) break;
    inner.push(isInside ? line.slice(Math.min(indent, Math.max(0, line.search(/[^ ]|$/)))) : line);
  }
  const task = TASK.exec(inner[0]);
  if (task) inner[0] = inner[0].slice(task[0].length);
  const tokens = blocks(inner, depth + 1).map((token) => (token.type === "paragraph" ? { ...token, type: "text" } : token));
  return { tokens: task ? [{ type: "checkbox", checked: task[1] !== " " }, ...tokens] : tokens, next };
}

function table(lines, at) {
  const cells = (line) => line.trim().replace(/^\|/, "").replace(/\|$/, "").split(/(?<!\\)\|/)
    .map((cell) => inline(cell.trim().replaceAll("\\|", "|")));
  let next = at + 2;
  while (next < lines.length && lines[next].includes("|")) next += 1;
  return { token: { type: "table", header: cells(lines[at]), rows: lines.slice(at + 2, next).map(cells) }, next };
}

const PLAIN = /[^\\`![<*_~h\n]+/y;
const ESCAPE = /\\([!-/:-@[-`{-~])/y;
const TICKS = /`+/y;
const ADDRESS = /https?:\/\/[^\s<>"'`]+/y;
const ANGLED = /<((?:https?:\/\/|mailto:)[^\s<>]+)>/y;
const TARGET = /\([ \n]*<?([^\s<>()]*(?:\([^\s()]*\)[^\s<>()]*)*)>?(?:[ \n]+(?:"[^"]*"|'[^']*'))?[ \n]*\)/y;
const MARKS = { "**": "strong", __: "strong", "~~": "del", "*": "em", _: "em" };
const isWord = (sign) => sign !== undefined && /[\p{L}\p{N}]/u.test(sign);

/** The tokens within a line or a paragraph. */
function inline(text, depth = 0) {
  const tokens = [];
  // Marks and ticks that end nowhere from here on, so that nobody looks for their ends again.
  const endless = new Set();
  const push = (type, members) => tokens.push({ type, ...members });
  const match = (pattern, at) => {
    pattern.lastIndex = at;
    return pattern.exec(text);
  };
  const plain = (part) => {
    if (tokens.at(-1)?.type === "text") tokens.at(-1).text += part;
    else push("text", { text: part });
  };
  for (let at = 0; at < text.length;) {
    const found = match(PLAIN, at);
    if (found) {
      plain(found[0]);
      at += found[0].length;
      continue;
    }
    const read = depth < MAX_DEPTH && span({ text, at, match, endless, depth });
    if (read) push(...read.token);
    else plain(text[at]);
    at = read ? read.next : at + 1;
  }
  return tokens;
}

/** The token that begins at a sign which may mean something. */
function span(context) {
  const { text, at, match } = context;
  switch (text[at]) {
    case "\n":
      return { token: ["br"], next: at + 1 };
    case "\\": {
      const found = match(ESCAPE, at);
      return found && { token: ["escape", { text: found[1] }], next: at + 2 };
    }
    case "`":
      return ticked(context);
    case "<": {
      const found = match(ANGLED, at);
      return found && linkTo(found[1], found[0], at);
    }
    case "h": {
      const found = !isWord(text[at - 1]) && match(ADDRESS, at);
      return found && linkTo(found[0].replace(/[.,;:!?)\]}*_~]{1,9}$/, ""), undefined, at);
    }
    case "!":
    case "[":
      return link(context);
    default:
      return emphasis(context);
  }
}

const linkTo = (href, raw, at) => ({ token: ["link", { href, raw: raw ?? href, tokens: [{ type: "text", text: href }] }], next: at + (raw ?? href).length });

function ticked({ text, at, match, endless }) {
  const [run] = match(TICKS, at);
  let end = endless.has(run) ? -1 : text.indexOf(run, at + run.length);
  while (end >= 0 && text[end + run.length] === "`") {
    let after = end;
    while (text[after] === "`") after += 1;
    end = text.indexOf(run, after);
  }
  if (end < 0) {
    endless.add(run);
    return { token: ["text", { text: run }], next: at + run.length };
  }
  const inner = text.slice(at + run.length, end).replaceAll("\n", " ");
  const isPadded = inner.startsWith(" ") && inner.endsWith(" ") && inner.trim() !== "";
  return { token: ["codespan", { text: isPadded ? inner.slice(1, -1) : inner }], next: end + run.length };
}

function link({ text, at, match, depth }) {
  const isImage = text[at] === "!";
  const begin = isImage ? at + 1 : at;
  if (text[begin] !== "[") return undefined;
  let open = 0;
  let end = begin;
  const last = Math.min(text.length, begin + MAX_LABEL_CHARS);
  for (; end < last; end += 1) {
    if (text[end] === "\\") end += 1;
    else if (text[end] === "[") open += 1;
    else if (text[end] === "]" && (open -= 1) === 0) break;
  }
  const target = text[end] === "]" && match(TARGET, end + 1);
  if (!target) return undefined;
  const next = end + 1 + target[0].length;
  const label = text.slice(begin + 1, end);
  const members = { href: target[1], raw: text.slice(at, next) };
  return { token: isImage ? ["image", { ...members, text: label }] : ["link", { ...members, tokens: inline(label, depth + 1) }], next };
}

function emphasis({ text, at, endless, depth }) {
  const mark = ["**", "__", "~~", "*", "_"].find((it) => text.startsWith(it, at));
  if (!mark || endless.has(mark) || /\s/.test(text[at + mark.length] ?? " ")) return undefined;
  const isInWord = mark[0] === "_" && isWord(text[at - 1]);
  if (isInWord) return undefined;
  const isEnd = (end) => !/\s/.test(text[end - 1]) && end > at + mark.length &&
    (mark.length === 2 || (text[end + 1] !== mark && text[end - 1] !== mark)) && (mark[0] !== "_" || !isWord(text[end + mark.length]));
  let end = text.indexOf(mark, at + mark.length);
  while (end >= 0 && !isEnd(end)) end = text.indexOf(mark, end + 1);
  if (end < 0) {
    endless.add(mark);
    return undefined;
  }
  // The end of `**a *b***` is the last of its stars.
  while (mark.length === 2 && text[end + 2] === mark[0] && text[end + 1] === mark[0]) end += 1;
  return { token: [MARKS[mark], { tokens: inline(text.slice(at + mark.length, end), depth + 1) }], next: end + mark.length };
}
