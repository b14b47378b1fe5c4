// What waits for somebody: an approval, a question, or a page's tool, with the form that answers it.
import { LATE, answerOf } from "./calls.js";
import { Fields, JsonEditor } from "./fields.js";
import { html, useEffect, useId, useMemo, useRef, useState } from "./html.js";
import { pathOf } from "./journal.js";
import { notify } from "./notices.js";
import { Badge, Countdown, Json, Trouble, Values } from "./parts.js";
import { useNow } from "./poll.js";
import { initial, invalid, misplaced, plan } from "./schema.js";
import { Problem, explain, get, post, useSession } from "./session.js";
import { bytes, clip, plural, visible } from "./text.js";

/** Larger arguments are shown and not edited: a request has at most 1 MiB. */
const MAX_EDITED_CHARS = 200_000;
const MAX_DRAFTS = 200;
const LIFETIMES = [["1h", "an hour"], ["24h", "a day"], ["168h", "a week"], ["720h", "30 days"]];

/** What somebody has typed into the forms, by call, so that it outlives the form. */
const drafts = new Map();
export const keyOf = (item) => `${item.conversation_id ?? ""}/${item.call_id}/${item.suspension}`;

function useDraft(item) {
  const key = keyOf(item);
  const [, draw] = useState(0);
  const set = (members) => {
    const next = { ...drafts.get(key), ...members };
    drafts.delete(key);
    drafts.set(key, next);
    if (drafts.size > MAX_DRAFTS) drafts.delete(drafts.keys().next().value);
    draw((count) => count + 1);
  };
  return [drafts.get(key) ?? {}, set];
}

/** The body that approves or denies a call, from what was typed. Throws `{path, message}` for a text that
 * is no JSON. */
export function decisionBody(item, draft, approved) {
  const wrong = approved && draft.args !== undefined && invalid(draft.args);
  if (wrong) throw wrong;
  const remember = draft.remember && { scope: draft.scope ?? "conversation", match: draft.match ?? "exact", for: draft.for ?? "24h" };
  return {
    approved, suspension: item.suspension,
    ...(draft.reason && { reason: draft.reason }),
    ...(approved && draft.args !== undefined && { args: draft.args }),
    ...(remember && { remember }),
  };
}

/** Sends an answer. Says what came of it: `{done, error, wrong}`. */
async function answer(item, conversation, body, root) {
  const path = `${pathOf(conversation)}/calls/${encodeURIComponent(item.call_id)}/resolution`;
  try {
    const { status, votes, needed } = await post(path, body);
    const did = body.approved === undefined ? "Answered" : body.approved ? "Approved" : "Denied";
    notify(status === "recorded" ? `Your vote counts: ${votes} of ${needed}.` : `${did} ${clip(item.tool, 60)}.`);
    return { done: true };
  } catch (error) {
    if (!(error instanceof Problem)) return { error };
    if (error.type === "call-not-open") return { over: await quicker(item, conversation) };
    const wrong = error.status === 422 && misplaced(error.message, root);
    return wrong ? { wrong } : { error };
  }
}

/** Who was quicker, as far as the caller may read that. */
export async function quicker(item, conversation) {
  const page = await get(`${pathOf(conversation)}/journal?after=${Math.max(0, (await lastSeq(conversation)) - 500)}&limit=500`).catch(() => undefined);
  const found = page && answerOf(page.events, item.call_id, item.suspension);
  if (found?.label === LATE) return "Nobody answered in time: the call has ended.";
  return found ? `Somebody was quicker: ${found.label}${found.reason ? `, “${clip(found.reason, 200)}”` : ""}.` :
    "It no longer waits: somebody was quicker, or its turn has ended.";
}

const lastSeq = (conversation) => get(pathOf(conversation)).then((snapshot) => snapshot.last_seq).catch(() => 0);

/** Approves or denies as typed, for keys and for buttons. */
export async function decide(item, approved) {
  const draft = drafts.get(keyOf(item)) ?? {};
  try {
    const outcome = await answer(item, item.conversation_id, decisionBody(item, draft, approved), "args");
    if (outcome.done) drafts.delete(keyOf(item));
    return outcome;
  } catch (wrong) {
    return { wrong };
  }
}

/** The card. `isInline`: it stands in the conversation, so that it need not say which one. */
export function AnswerCard({ item, conversation = item.conversation_id, refresh, isInline = false }) {
  const [draft, setDraft] = useDraft(item);
  const [state, setState] = useState({});
  const { away } = useSession();
  const isLate = Date.parse(item.expires_at) <= useNow();
  const isOff = isLate || state.busy || state.done || state.over !== undefined || item.may_answer === false;
  const run = async (act, root) => {
    setState({ busy: true });
    let outcome;
    try {
      outcome = await answer(item, conversation, act(), root);
    } catch (wrong) {
      outcome = { wrong };
    }
    setState(outcome);
    if (outcome.done) drafts.delete(keyOf(item));
    if (outcome.done || outcome.over) refresh?.(outcome);
  };
  const extend = () => post(`${pathOf(conversation)}/calls/${encodeURIComponent(item.call_id)}/extend`, { for: "1h" })
    .then(() => refresh?.({}), (error) => setState({ error }));
  const Form = { approval: Approval, elicitation: Question, client_exec: PageCall, in_doubt: Doubt }[item.kind] ?? Question;
  const id = useId();
  return html`<section class=${`answer ${item.kind}`} aria-labelledby=${id}>
    <h2 id=${id} dir="auto">${visible(clip(item.message || `${clip(item.tool, 60)} waits`, 2_000))}</h2>
    <p class="meta">${isInline ? null : html`<code title=${clip(item.tool, 300)}>${visible(clip(item.tool, 60))}</code> `}
      <span>answer within <${Countdown} at=${item.expires_at} /></span>
      ${!isOff && html`<button type="button" class="link" disabled=${isOff} onClick=${extend}>an hour more</button>`}
      ${item.needed > 1 && html`<${Badge} tone="wait">${item.votes.filter((vote) => vote.approved).length} of ${item.needed} approvals<//>`}</p>
    ${item.votes?.length > 0 && html`<p class="note">Voted: ${item.votes.map((vote) => `${clip(vote.by, 60)} ${vote.approved ? "yes" : "no"}`).join(", ")}</p>`}
    ${item.may_answer === false && html`<p class="note">You may not answer this${who(item.policy)}.</p>`}
    <${Form} ...${{ item, draft, setDraft, run, isOff, wrong: state.wrong, busy: state.busy }} />
    ${isLate && !state.over && html`<p class="trouble" role="alert">The deadline has passed. The call ends by itself.</p>`}
    ${state.over && html`<p class="trouble" role="alert">${visible(state.over)}</p>`}
    <${Trouble} error=${state.error && (away ? "The node does not answer. What you typed stays here." : explain(state.error))} />
  </section>`;
}

function who(policy) {
  const names = [...(policy?.roles ?? []), ...(policy?.groups ?? []).map((group) => `group ${group}`)];
  return names.length > 0 ? `: it asks for ${clip(names.join(", "), 200)}` : "";
}

function Approval({ item, draft, setDraft, run, isOff, wrong, busy }) {
  const decideBy = (approved) => run(() => decisionBody(item, draft, approved), "args");
  const size = useMemo(() => JSON.stringify(item.args ?? null).length, [item.args]);
  const schema = item.answer_schema?.properties?.args;
  const isEdited = draft.args !== undefined;
  const form = useRef();
  useEffect(() => {
    if (wrong) form.current?.querySelector("[aria-invalid=true]")?.focus();
  }, [wrong]);
  const submit = (event) => {
    event.preventDefault();
    decideBy(true);
  };
  return html`<form ref=${form} onSubmit=${submit}>
    ${!isEdited && html`<${Values} value=${item.args} label="Arguments" />`}
    ${item.original_args && html`<details><summary>Edited by another approver; as the model wrote it</summary><${Json} value=${item.original_args} /></details>`}
    ${isEdited && html`<${Fields} schema=${schema ?? {}} value=${draft.args} label="Arguments" error=${wrong}
      onChange=${(args) => setDraft({ args })} />`}
    ${wrong && !isEdited && html`<p class="wrong" role="alert">${wrong.message}</p>`}
    <p class="row small">${size > MAX_EDITED_CHARS ? html`<span class="note">Arguments of ${bytes(size)} are not edited here.</span>` :
      html`<button type="button" class="link" disabled=${isOff} data-key="e"
        onClick=${() => setDraft({ args: isEdited ? undefined : structuredClone(item.args) })}>
        ${isEdited ? "Undo my edits" : "Edit the arguments"}</button>`}</p>
    <${Reason} ...${{ draft, setDraft, isOff }} />
    <${Remember} ...${{ draft, setDraft, isOff }} />
    <p class="row"><button class="primary ok" disabled=${isOff}>${busy ? "Sending …" : isEdited ? "Approve as edited" : "Approve"}</button>
      <button type="button" class="deny" disabled=${isOff} onClick=${() => decideBy(false)}>Deny</button></p>
  </form>`;
}

function Reason({ draft, setDraft, isOff }) {
  const id = useId();
  return html`<div class="field"><label for=${id}>Reason <span class="optional">optional; the model reads that of a denial</span></label>
    <input id=${id} value=${draft.reason ?? ""} disabled=${isOff} dir="auto" autocomplete="off" maxlength="2000"
      onInput=${(event) => setDraft({ reason: event.target.value })} /></div>`;
}

function Remember({ draft, setDraft, isOff }) {
  const select = (name, label, options, fallback) => html`<label>${label}
    <select value=${draft[name] ?? fallback} onChange=${(event) => setDraft({ [name]: event.target.value })}>
    ${options.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select></label>`;
  return html`<div class="remember"><label class="option"><input type="checkbox" checked=${draft.remember === true} disabled=${isOff}
      onChange=${(event) => setDraft({ remember: event.target.checked })} />Remember the decision</label>
    ${draft.remember && html`<div class="row small">
      ${select("match", "for", [["exact", "this exact call"], ["tool", "every call of this tool"]], "exact")}
      ${select("scope", "in", [["conversation", "this conversation"], ["agent", "all of the agent’s conversations"]], "conversation")}
      ${select("for", "for", LIFETIMES, "24h")}</div>`}</div>`;
}

function Question({ item, draft, setDraft, run, isOff, wrong, busy, areShown }) {
  const schema = item.answer_schema ?? {};
  const value = "result" in draft ? draft.result : initial(schema);
  const [declining, setDeclining] = useState(false);
  const submit = (event) => {
    event.preventDefault();
    run(() => {
      const bad = invalid(value);
      if (bad) throw bad;
      return { result: value ?? null, suspension: item.suspension };
    }, "result");
  };
  const decline = () => run(() => ({ error: draft.reason || "declined", suspension: item.suspension }), "error");
  const isPlain = item.answer_schema === undefined;
  const set = (result) => setDraft({ result });
  const isOne = plan(schema).kind === "choice";
  return html`<form onSubmit=${submit}>
    ${!areShown && hasMore(item) && html`<details><summary>What it is about</summary><${Values} value=${item.args} label="Arguments" /></details>`}
    ${isPlain ? html`<${Plain} ...${{ draft, setDraft, value, set, wrong }} />` :
      html`<${Fields} schema=${schema} value=${value} label=${isOne ? "Your answer" : "Answer"} error=${wrong} onChange=${set} />`}
    ${declining && html`<${Reason} ...${{ draft, setDraft, isOff }} />`}
    <p class="row"><button class="primary" disabled=${isOff}>${busy ? "Sending …" : "Answer"}</button>
      ${declining ? html`<button type="button" class="deny" disabled=${isOff} onClick=${decline}>Decline</button>` :
        html`<button type="button" class="plain" disabled=${isOff} onClick=${() => setDeclining(true)}>Decline …</button>`}</p>
  </form>`;
}

/** Whether the arguments say more than the question. */
const hasMore = ({ args, message }) => Object.values(args ?? {}).some((value) => value !== message);

/** An answer that may be anything: a text, or JSON if somebody wants that. */
function Plain({ draft, setDraft, value, set, wrong }) {
  const id = useId();
  return html`<div class="field"><label for=${id}>Your answer</label>
    ${draft.asJson ? html`<${JsonEditor} id=${id} value=${value} onChange=${set} isBad=${Boolean(wrong)} />` :
      html`<textarea id=${id} rows="2" dir="auto" value=${typeof value === "string" ? value : ""} aria-invalid=${Boolean(wrong)}
        onInput=${(event) => set(event.target.value)}></textarea>`}
    ${wrong && html`<p class="wrong" role="alert">${wrong.message}</p>`}
    <label class="option"><input type="checkbox" checked=${draft.asJson === true}
      onChange=${(event) => setDraft({ asJson: event.target.checked, result: undefined })} />As JSON</label></div>`;
}

/** A tool that a page executes: the console shows it, and lets somebody act for the page. */
function PageCall(props) {
  const [byHand, setByHand] = useState(false);
  return html`<${Values} value=${props.item.args} label="Arguments" />
    <p class="note">A connected page executes this.</p>
    ${byHand ? html`<${Question} ...${props} areShown />` : html`<p class="row"><button type="button" class="plain" disabled=${props.isOff}
      onClick=${() => setByHand(true)}>Answer in its place …</button></p>`}`;
}

/** A call of which nobody knows whether it happened: its node died, or the connection broke. */
function Doubt(props) {
  const { item, run, isOff } = props;
  const [knows, setKnows] = useState(false);
  return html`<${Values} value=${item.args} label="Arguments" />
    <p class="note">It was cut off, and may have happened or not. Look where it acts before you decide.</p>
    ${knows ? html`<${Question} ...${props} areShown />` : html`<p class="row"><button type="button" class="primary" disabled=${isOff}
      onClick=${() => run(() => ({ outcome: "retry", suspension: item.suspension }), "outcome")}>Run it again</button>
      <button type="button" class="plain" disabled=${isOff} onClick=${() => setKnows(true)}>Tell what came of it …</button></p>`}`;
}

/** A line for a list: who asks, what, and until when. */
export const titleOf = (item) => item.message || `${clip(item.tool, 60)} waits for ${item.kind === "client_exec" ? "a page" : "an answer"}`;
export const alike = (items, item) => items.filter((other) => other.kind === "approval" && other.agent === item.agent &&
  other.tool === item.tool && other.may_answer !== false);
export const alikeText = (items) => plural(items.length, "call");
