// The console: shows one conversation and answers its calls. Content is shown as text, never as markup.
import { connect } from "./abide.js";

const query = new URLSearchParams(location.search);
const conversation = query.get("conversation") || `console-${Date.now().toString(36)}`;
const agent = query.get("agent") || "demo";
query.set("conversation", conversation);
history.replaceState(null, "", `?${query}`);

// The key stays in this tab, and is in no URL.
const key = sessionStorage.getItem("abide-key");
const abide = connect({ conversation, agent, ...(key && { token: () => key }) });
const at = (id) => document.getElementById(id);
at("where").textContent = `${conversation}, agent ${agent}`;

abide.tool("locate", () => ({
  time_zone: Intl.DateTimeFormat().resolvedOptions().timeZone,
  language: navigator.language,
}));

/** Makes an element with attributes and children; strings become text nodes. */
function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

const pretty = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

/** Makes the children of a parent match the entries; an existing child keeps what was typed in it. */
function reconcile(parent, entries, make) {
  const before = new Map(Array.from(parent.children, (child) => [child.dataset.key, child]));
  entries.forEach(([key, entry], index) => {
    const child = before.get(key) ?? make(entry);
    before.delete(key);
    child.dataset.key = key;
    const next = parent.children[index] ?? null;
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

/** Runs an action of the user and shows its error, if any. Returns whether it succeeded. */
async function attempt(action) {
  at("trouble").textContent = "";
  try {
    await action();
    return true;
  } catch (error) {
    at("trouble").textContent = error.message;
    return false;
  }
}

/** The form for a call that waits for an answer. */
function callForm(call) {
  const input = element("input", { type: "text", autocomplete: "off" });
  const field = (label) => element("label", {}, label, input);
  const button = (label, value) => {
    const node = element("button", { type: "button" }, label);
    node.addEventListener("click", () => {
      attempt(async () => abide.resolve(call, value()));
    });
    return node;
  };
  const asker = call.conversation_id ? `${call.agent}: ` : "";
  const legend = element("legend", {}, asker + (call.message || call.tool));
  const description = [legend, element("pre", {}, pretty(call.args))];
  if (call.kind === "client_exec") {
    return element("fieldset", {}, ...description, element("p", {}, `A page must execute ${call.tool}.`));
  }
  const form = element("form", {});
  if (call.kind === "approval") {
    const reason = () => (input.value ? { reason: input.value } : {});
    form.append(element("fieldset", {}, ...description, field("Reason "),
      button("Approve", () => ({ approved: true, ...reason() })), " ",
      button("Deny", () => ({ approved: false, ...reason() }))));
  } else {
    const json = element("input", { type: "checkbox" });
    const value = () => ({ result: json.checked ? JSON.parse(input.value) : input.value });
    form.append(element("fieldset", {}, ...description, field("Answer "),
      element("label", {}, json, " As JSON"), button("Answer", value)));
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (call.kind !== "approval") form.querySelector("button").click();
  });
  return form;
}

function draw() {
  drawn = 0;
  const { connected, state, messages, pending, child_pending, streaming, turn } = abide.state;
  at("status").textContent = connected ? (state ?? "") : abide.closed ? "Closed" : "Connecting …";
  at("cancel").disabled = !turn;
  const entries = messages.map((entry) => [entry.id, entry]);
  const text = streaming && (streaming.text || streaming.thinking);
  // A new key for each delta, so that the streaming message is drawn again.
  const streamed = { role: "assistant", content: [{ text }] };
  if (text) entries.push([`${streaming.id}/${streaming.delta_seq}`, streamed]);
  reconcile(at("messages"), entries, message);
  const keyOf = ({ conversation_id = "", call_id, suspension }) =>
    `${conversation_id}/${call_id}/${suspension}`;
  const open = [...pending, ...child_pending].map((call) => [keyOf(call), call]);
  reconcile(at("pending"), open, callForm);
}

let drawn = 0;
abide.on("change", () => {
  drawn ||= requestAnimationFrame(draw);
});
abide.on("error", (error) => {
  at("trouble").textContent = error.message;
  if (error.status === 401) at("login").hidden = false;
});
at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("abide-key", at("key").value);
  location.reload();
});
abide.on("turn_failed", ({ reason }) => (at("trouble").textContent = reason ?? "The turn failed."));
at("cancel").addEventListener("click", () => attempt(() => abide.cancel()));
at("say").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = at("text").value;
  if (await attempt(() => abide.send(text, { if_busy: "queue" }))) at("text").value = "";
});
