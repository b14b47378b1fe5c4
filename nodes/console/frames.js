// The frames of an event stream: how they are read, and what each changes in the state of a page.

/** The longest frame of a stream; longer than the largest snapshot. */
const MAX_FRAME_CHARS = 64 << 20;
/** Frames that mirror no event. Other frames without an id belong to the next frame with one. */
export const LIVE_FRAMES = ["state_changed", "text_delta", "thinking_delta", "tool_call_delta", "tool_progress",
  "child_suspended",
  "child_call_closed", "credential_ended"];

/** Returns a function that takes chunks of bytes, cut anywhere, and calls `onFrame` with the name, id
 * (or undefined) and data of each server-sent event in them. */
export function parser(onFrame) {
  const utf8 = new TextDecoder();
  let rest = "";
  /** Whether `rest` ends with a \r, and the length of the frame's lines so far. */
  let [isHalf, length] = [false, 0];
  let [name, id, data] = ["", undefined, []];
  const parseLine = (line) => {
    const [, field, value] = /^([^:]*)(?:: ?(.*))?$/s.exec(line);
    if (field === "event") name = value ?? "";
    if (field === "id") id = value ?? "";
    if (field === "data") data.push(value ?? "");
    if (line !== "") {
      // Comments keep a stream alive and take no memory.
      if (field !== "") length += line.length;
      return;
    }
    if (data.length > 0) onFrame({ name, id, data: data.join("\n") });
    [name, id, data] = ["", undefined, []];
    length = 0;
  };
  return (bytes) => {
    const chunk = utf8.decode(bytes, { stream: true });
    rest += chunk;
    // A long line is split when it ends, not with each of its chunks.
    if (isHalf || /[\r\n]/.test(chunk)) {
      // A \r at the end may be half of a \r\n.
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      isHalf = rest.endsWith("\r");
      lines.forEach(parseLine);
    }
    if (length + rest.length > MAX_FRAME_CHARS) throw new Error("a frame of the stream is too long");
  };
}

/** The members of the state that each frame changes. */
const CHANGES = {
  // A node of an older version does not tell what children wait for.
  snapshot: (_, { streaming_message: streaming, child_pending = [], ...data }) =>
    ({ ...data, child_pending, streaming }),
  // A message that a node had begun when it died is begun anew.
  state_changed: ({ streaming }, { state }) =>
    ({ state, streaming: state === "preparing" ? null : streaming }),
  // The message of a turn that was queued stands where the turn begins.
  turn_started: ({ messages }, { turn_id: id }) => {
    const asks = (it) => it.role === "user" && it.turn_id === id;
    return { turn: { id }, messages: [...messages.filter((it) => !asks(it)), ...messages.filter(asks)] };
  },
  user_message: ({ messages }, { turn_id, message }) =>
    ({ messages: withMessage(messages, { ...message, turn_id }) }),
  // The turn never starts, and its message is no part of the conversation.
  turn_withdrawn: ({ messages, queued = 1 }, { turn_id: id }) => ({
    queued: Math.max(0, queued - 1),
    messages: messages.filter((it) => it.role !== "user" || it.turn_id !== id),
  }),
  // What the page does not know of the branch that counts is read anew.
  rewound: ({ messages }, { to_seq: last, todos }) =>
    ({ todos, messages: messages.filter(({ seq }) => seq === undefined || seq <= last) }),
  text_delta: (state, data) => ({ streaming: withDelta(state, data, "text") }),
  thinking_delta: (state, data) => ({ streaming: withDelta(state, data, "thinking") }),
  message_completed: ({ messages }, { message }) =>
    ({ streaming: null, messages: withMessage(messages, message) }),
  // The call waits for nobody now; a `suspended` frame follows if it must wait again.
  tool_call_started: (state, call) => ({
    ...withoutCall(state, call),
    ...(call.executor === "server" && { in_flight: [...withoutCall(state, call).in_flight, call] }),
  }),
  tool_progress: ({ in_flight }, { call_id, payload: progress }) =>
    ({ in_flight: in_flight.map((it) => (it.call_id === call_id ? { ...it, progress } : it)) }),
  suspended: (state, call) => ({ pending: [...withoutCall(state, call).pending, call] }),
  tool_call_resolved: (state, data) => ({ ...withoutCall(state, data), messages: withResult(state, data) }),
  tool_call_errored: (state, data) => ({ ...withoutCall(state, data), messages: withResult(state, data) }),
  child_suspended: (state, call) => ({ child_pending: [...withoutChildCall(state, call), call] }),
  child_call_closed: (state, call) => ({ child_pending: withoutChildCall(state, call) }),
  todos_changed: (_, { todos }) => ({ todos }),
  phase_changed: (_, { phase }) => ({ phase }),
  // What stays is absent.
  conversation_updated: (_, data) => data,
};
for (const outcome of ["completed", "cancelled", "halted", "failed"]) {
  CHANGES[`turn_${outcome}`] = () => ({ turn: null, streaming: null, pending: [], in_flight: [] });
}

/** The state after a frame. */
export function fold(state, name, data) {
  return Object.hasOwn(CHANGES, name) ? { ...state, ...CHANGES[name](state, data) } : state;
}

function withoutCall({ pending, in_flight }, { call_id }) {
  const others = (list) => list.filter((call) => call.call_id !== call_id);
  return { pending: others(pending), in_flight: others(in_flight) };
}

function withoutChildCall({ child_pending }, closed) {
  const isSame = (call) =>
    ["conversation_id", "call_id", "suspension"].every((member) => call[member] === closed[member]);
  return child_pending.filter((call) => !isSame(call));
}

/** The streaming message with one more delta; a delta of a completed message changes nothing. */
function withDelta(state, data, kind) {
  if (state.messages.some(({ id }) => id === data.message_id)) return state.streaming;
  const empty = { id: data.message_id, text: "", thinking: "", delta_seq: 0 };
  const before = state.streaming?.id === data.message_id ? state.streaming : empty;
  if (data.delta_seq <= before.delta_seq) return before;
  return { ...before, [kind]: before[kind] + data.text, delta_seq: data.delta_seq };
}

/** The messages with the result of a call, in the form in which the node lists it. */
function withResult({ messages }, { call_id: tool_call_id, result }) {
  const content = [{ type: "json", data: result, text: JSON.stringify(result) }];
  return withMessage(messages, { id: `result_${tool_call_id}`, role: "tool", content, tool_call_id });
}

const withMessage = (messages, message) =>
  messages.some(({ id }) => id === message.id) ? messages : [...messages, message];
export const ids = (messages) => new Set(messages.map(({ id }) => id));
