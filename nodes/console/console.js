// The console: one conversation, shown and answered. What it shows is text, never markup.
import { connect } from "./abide.js";

const query = new URLSearchParams(location.search);
const conversation = query.get("conversation") || `console-${Date.now().toString(36)}`;
const agent = query.get("agent") || "demo";
query.set("conversation", conversation);
history.replaceState(null, "", `?${query}`);

const abide = connect({ conversation, agent });
const at = (id) => document.getElementById(id);
at("where").textContent = `${conversation}, agent ${agent}`;

abide.tool("locate", () => ({
  time_zone: Intl.DateTimeFormat().resolvedOptions().timeZone,
  language: navigator.language,
}));

/** An element with attributes and children; texts become text. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const pretty = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

/** Makes a parent's children those of the entries; one that is there stays, with what was typed. */
function show(parent, entries, make) {
  const before = new Map(Array.from(parent.children, (child) => [child.dataset.key, child]));
  entries.forEach(([key, entry], place) => {
    const child = before.get(key) ?? make(entry);
    before.delete(key);
    child.dataset.key = key;
    const next = parent.children[place] ?? null;
    if (next !== child) parent.insertBefore(child, next);
  });
  before.forEach((child) => child.remove());
}

const NAMES = { user: "You", assistant: "Agent", tool: "Result" };

function message({ role, content, tool_calls = [], status }) {
  const texts = content.map((block) => block.text ?? pretty(block.data ?? block));
  const calls = tool_calls.map(({ name, args }) => `→ ${name} ${JSON.stringify(args)}`);
  const cut = status === undefined || status === "complete" ? [] : [`(${status})`];
  const lines = [...texts, ...calls, ...cut].map((text) => element("p", {}, text));
  const who = element("span", { class: "who" }, NAMES[role] ?? role);
  return element("li", { class: role }, who, ...lines);
}

/** Does something on behalf of the person, and says why when it cannot. */
async function attempt(doing) {
  at("trouble").textContent = "";
  try {
    await doing();
    return true;
  } catch (error) {
    at("trouble").textContent = error.message;
    return false;
  }
}

/** What a call that waits asks of the person. */
function question(call) {
  const input = element("input", { type: "text", autocomplete: "off" });
  const field = (label) => element("label", {}, label, input);
  const button = (label, value) => {
    const made = element("button", { type: "button" }, label);
    made.addEventListener("click", () => {
      attempt(async () => abide.resolve(call.call_id, value()));
    });
    return made;
  };
  const legend = element("legend", {}, call.message || call.tool);
  const asked = [legend, element("pre", {}, pretty(call.args))];
  if (call.kind === "client_exec") {
    return element("fieldset", {}, ...asked, element("p", {}, `A page executes ${call.tool}.`));
  }
  const form = element("form", {});
  if (call.kind === "approval") {
    const reason = () => (input.value ? { reason: input.value } : {});
    form.append(element("fieldset", {}, ...asked, field("Reason "),
      button("Approve", () => ({ approved: true, ...reason() })), " ",
      button("Deny", () => ({ approved: false, ...reason() }))));
  } else {
    const json = element("input", { type: "checkbox" });
    const value = () => ({ result: json.checked ? JSON.parse(input.value) : input.value });
    form.append(element("fieldset", {}, ...asked, field("Answer "),
      element("label", {}, json, " It is JSON"), button("Answer", value)));
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (call.kind !== "approval") form.querySelector("button").click();
  });
  return form;
}

function draw() {
  drawn = 0;
  const { connected, state, messages, pending, streaming, turn } = abide.state;
  at("status").textContent = connected ? (state ?? "") : abide.closed ? "Closed" : "Connecting …";
  at("cancel").disabled = !turn;
  const shown = messages.map((entry) => [entry.id, entry]);
  const text = streaming && (streaming.text || streaming.thinking);
  // A key of its own for each length: what is being said is drawn anew.
  const spoken = { role: "assistant", content: [{ text }] };
  if (text) shown.push([`${streaming.id}/${streaming.delta_seq}`, spoken]);
  show(at("messages"), shown, message);
  const open = pending.map((call) => [`${call.call_id}/${call.suspension}`, call]);
  show(at("pending"), open, question);
}

let drawn = 0;
abide.on("change", () => {
  drawn ||= requestAnimationFrame(draw);
});
abide.on("error", (error) => (at("trouble").textContent = error.message));
abide.on("turn_failed", ({ reason }) => (at("trouble").textContent = reason ?? "The turn failed."));
at("cancel").addEventListener("click", () => attempt(() => abide.cancel()));
at("say").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = at("text").value;
  if (await attempt(() => abide.send(text, { if_busy: "queue" }))) at("text").value = "";
});
