// Where one writes: always in view; Enter sends. While a turn runs one chooses what becomes of it.
import { html, useEffect, useRef, useState } from "../../html.js";
import { Icon } from "../../parts.js";
import { explain, useSession } from "../../session.js";
import { Queue } from "./queue.js";

const MAX_HEIGHT_PX = 240;
/** What was written and not sent, by conversation. */
const drafts = new Map();

export function Composer({ abide, state }) {
  const [text, setText] = useState(drafts.get(state.id) ?? "");
  const [ifBusy, setIfBusy] = useState("queue");
  const [trouble, setTrouble] = useState("");
  const [sending, setSending] = useState(false);
  const { away } = useSession();
  const box = useRef();
  const isBusy = Boolean(state.turn) || state.state !== "idle";
  useEffect(() => {
    drafts.set(state.id, text);
    box.current.style.height = "auto";
    box.current.style.height = `${Math.min(MAX_HEIGHT_PX, box.current.scrollHeight + 2)}px`;
  }, [text]);
  useEffect(() => {
    if (matchMedia("(min-width: 1000px)").matches) box.current.focus({ preventScroll: true });
  }, []);
  const run = async (act) => {
    setTrouble("");
    try {
      await act();
      return true;
    } catch (error) {
      setTrouble(away ? "The node does not answer. What you wrote stays here." : explain(error));
      return false;
    }
  };
  const send = async (event) => {
    event.preventDefault();
    const said = text;
    if (said.trim() === "" || sending) return;
    setSending(true);
    setText("");
    const isSent = await run(() => abide.send(said, { if_busy: isBusy ? ifBusy : "queue" }));
    if (!isSent) setText((now) => (now === "" ? said : `${said}\n${now}`));
    setSending(false);
    box.current?.focus();
  };
  const press = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
  };
  const choice = (value, label, about) => html`<button type="button" aria-pressed=${ifBusy === value} title=${about} onClick=${() => setIfBusy(value)}>${label}</button>`;
  return html`<form class="composer" id="say" onSubmit=${send}>
    ${trouble && html`<p class="trouble" id="trouble" role="alert">${trouble}</p>`}
    <${Queue} ...${{ abide, state, run }} />
    ${isBusy && html`<div class="busy"><span class="note">A turn is open. Your message</span><div class="segments small">
      ${choice("queue", "waits", "Its turn starts when this one has ended")}${choice("steer", "steers", "The model reads it before its next step")}${choice("interrupt", "interrupts", "This turn ends as cancelled")}</div>
      <button type="button" class="plain stop" id="cancel" onClick=${() => run(() => abide.cancel())}><${Icon} name="stop" />Stop the turn</button></div>`}
    <div class="write"><textarea ref=${box} id="text" rows="1" aria-label="Message" placeholder="Write a message" dir="auto" value=${text}
      onInput=${(event) => setText(event.target.value)} onKeyDown=${press}></textarea>
      <button class="primary send" disabled=${text.trim() === ""} aria-label="Send" title="Send (Enter)"><${Icon} name="send" /></button></div>
  </form>`;
}
