// What happened to each call and in each turn, told by the events of the journal.
import { words } from "./text.js";

/** The histories of calls and turns: `{calls, turns}`, both by id, in the order of their first event. */
export function empty() {
  return { calls: new Map(), turns: new Map(), lastSeq: 0 };
}

/** Takes more events, oldest first; the histories that they change are new objects. */
export function take(history, events) {
  const { calls, turns } = history;
  for (const event of events) {
    if (event.seq <= history.lastSeq) continue;
    history.lastSeq = event.seq;
    takeTurn(turns, event);
    const id = event.data?.call_id;
    if (id === undefined || !Object.hasOwn(STEPS, event.type)) continue;
    const before = calls.get(id) ?? { id, turn_id: event.turn_id, steps: [], attempts: 0 };
    const call = { ...before, steps: [...before.steps] };
    STEPS[event.type](call, event.data, event.at);
    calls.set(id, call);
  }
  return { ...history };
}

function takeTurn(turns, { type, at, seq, turn_id: id, data }) {
  if (id === undefined) return;
  const turn = turns.get(id) ?? { id, models: [], began_at: undefined };
  const next = { ...turn };
  if (type === "turn_started") Object.assign(next, { began_at: at, agent: data.agent, revision: data.revision });
  if (type === "assistant_msg") {
    const from = turn.ready_at ?? turn.began_at ?? at;
    next.models = [...turn.models, { from, at, step: data.step, usage: data.usage, status: data.status }];
  }
  if (type === "turn_ended") Object.assign(next, { ended_at: at, ended_seq: seq, ...data });
  // The model goes on when the last result is there.
  if (["turn_started", "tool_result", "assistant_msg"].includes(type)) next.ready_at = at;
  turns.set(id, next);
}

const push = (call, at, kind, label, more = {}) => call.steps.push({ at, kind, label, ...more });

export const LATE = "nobody answered in time";
const KINDS = { approval: "asked for approval", elicitation: "asked a person", client_exec: "asked a page", in_doubt: "was cut off" };

const STEPS = {
  tool_call(call, data, at) {
    Object.assign(call, { tool: data.tool, args: data.args, executor: data.executor, intent: data.intent,
      message: data.message, gate: data.gate, child: data.child, began_at: at });
    const rule = data.gate?.rule;
    const tone = data.gate?.decision === "deny" ? "bad" : "";
    if (rule && rule !== "approval: auto") push(call, at, "gate", rule.replace(/^approval: /, "").replaceAll("_", " "), { tone });
    if (data.started && data.executor === "server") attempt(call, at, 1);
  },
  suspension(call, data, at) {
    interrupted(call, at);
    push(call, at, "wait", KINDS[data.kind] ?? data.kind, { expires_at: data.expires_at, suspension: data.suspension });
  },
  voted(call, data, at) {
    const by = data.by?.name ?? data.by?.sub ?? "somebody";
    push(call, at, "vote", `${by} voted ${data.approved ? "yes" : "no"}`, { reason: data.reason });
  },
  resolution(call, data, at) {
    const by = data.identity?.name ?? data.by;
    const did = data.kind === "approval" ? (data.approved ? "approved" : "denied") : "answered";
    const tone = data.approved === false ? "bad" : "ok";
    const isExpiry = data.by === "system";
    const label = isExpiry ? LATE : `${did} by ${by}`;
    push(call, at, "answer", label, { tone: isExpiry ? "bad" : tone, reason: data.reason, edited: data.args !== undefined });
    if (data.args !== undefined) call.edited_args = data.args;
  },
  tool_started(call, data, at) {
    interrupted(call, at);
    call.tool ??= data.tool;
    call.args ??= data.args;
    call.began_at ??= at;
    if (data.executor === "server") attempt(call, at, data.attempt);
    else push(call, at, "wait", `waits for ${data.executor === "client" ? "a page" : "a person"}`);
  },
  input_required(call, data, at) {
    push(call, at, "asks", "the tool asks for input");
  },
  child_started(call, data, at) {
    Object.assign(call, { child_conversation_id: data.conversation_id });
    push(call, at, "run", "child conversation", { child: data.conversation_id });
  },
  child_ended(call, data, at) {
    push(call, at, "note", "child ended");
  },
  tool_result(call, data, at) {
    Object.assign(call, { ended_at: at, ok: data.ok, result: data.ok ? data.result : data.error,
      error_type: data.error_type, ui: data.ui });
    push(call, at, "result", data.ok ? "result" : ERRORS[data.error_type] ?? words(data.error_type ?? "error").toLowerCase(),
      { tone: data.ok ? "ok" : "bad" });
  },
};

/** What the types of errors are called in a line of states. */
const ERRORS = { EXPIRED: "ran out of time", CANCELLED: "cancelled", DENIED: "denied", NO_CLIENT: "no page came",
  INTERRUPTED: "interrupted", TIMEOUT: "ran too long", PERMISSION_DENIED: "not permitted", TOOL_ERROR: "failed" };

function attempt(call, at, number) {
  call.attempts = number;
  push(call, at, "run", `attempt ${number}`);
}

/** An attempt that another follows without a result was cut off: its node died, or gave the call away. */
function interrupted(call, at) {
  const last = call.steps.at(-1);
  if (last?.kind === "run" && last.child === undefined) {
    push(call, at, "lost", "interrupted", { tone: "bad" });
  }
}

/** What answered a suspension, for whom the answer came too late: `approved by ada`. */
export function answerOf(events, call_id, suspension) {
  const isIt = ({ type, data }) => type === "resolution" && data.call_id === call_id &&
    (suspension === undefined || data.suspension === suspension);
  const found = events.findLast(isIt);
  if (!found) {
    const isOver = ({ type, data }) => type === "tool_result" && data.call_id === call_id && data.error_type === "EXPIRED";
    return events.some(isOver) ? { label: LATE } : undefined;
  }
  const call = { steps: [] };
  STEPS.resolution(call, found.data, found.at);
  return { ...call.steps[0], by: found.data.by };
}
