// What the frames of a stream tell, as items.
import { Call } from "./calls.js";
import { ProtocolError } from "./errors.js";
import { snapshotPlace } from "./transport.js";

const ENDS = ["turn_completed", "turn_cancelled", "turn_halted", "turn_failed"];

/** The text of a message: its text blocks, joined. */
export const textOf = (message) =>
  (message?.content ?? []).filter(({ type }) => type === "text").map(({ text }) => text).join("");

/** Makes items of frames, and remembers what they need. */
export class Fold {
  /** The turn that the frames belong to, and the place of the last frame that has one. */
  turnId;
  place;
  #transport;
  #conversation;
  #snapshotSeq = 0;
  /** The calls that waited when the stream began. */
  #open = new Set();
  /** The message whose pieces came last, and how many characters of its text those are. */
  #streaming;
  #told = 0;

  constructor(transport, conversation, place, turnId) {
    [this.#transport, this.#conversation] = [transport, conversation];
    [this.place, this.turnId] = [place, turnId];
    const [, chars, thinking, message] = place?.split(".") ?? [];
    if (message) [this.#streaming, this.#told] = [message, Number(chars) - Number(thinking)];
  }

  /** The items of a frame. Frames that are not known are skipped. */
  take({ name, id, data }) {
    try {
      return [...this.#take(name, id, data)];
    } catch (error) {
      throw new ProtocolError(`a frame ${JSON.stringify(name)} lacks a member`, { cause: error });
    }
  }

  *#take(name, place, data) {
    if (name === "snapshot") yield* this.#takeSnapshot(data);
    else if (name === "turn_started") this.turnId = data.turn_id;
    else if (name === "text_delta" || name === "thinking_delta") yield* this.#takeDelta(name, data);
    else if (name === "message_completed") yield* this.#takeMessage(data.message);
    else if (name === "message_refused") {
      [this.#streaming, this.#told] = [undefined, 0];
      yield { type: "restart", messageId: data.message_id };
    } else if (name === "tool_call_started") {
      const { call_id: callId, tool, args, attempt } = data;
      yield { type: "start", callId, tool, args, attempt };
    } else if (name === "tool_progress") {
      yield { type: "progress", callId: data.call_id, payload: data.payload };
    } else if (name === "tool_call_resolved" || name === "tool_call_errored") {
      const { ok, result: value, error, error_type: errorType } = data.result;
      yield { type: "result", callId: data.call_id, ok, value, error, errorType };
    } else if (name === "suspended" || name === "child_suspended") {
      const isOld = place !== undefined && parseInt(place, 10) <= this.#snapshotSeq;
      // The snapshot knows that an old call was answered meanwhile.
      if (isOld && !this.#open.has(`${data.call_id}/${data.suspension}`)) return;
      yield new Call(this.#transport, this.#conversation, data);
    } else if (name === "turn_withdrawn") {
      // It never started: another turn may run.
      yield { type: "end", turnId: data.turn_id, outcome: "cancelled", reason: "withdrawn", usage: {} };
    } else if (ENDS.includes(name)) {
      [this.turnId, this.#streaming, this.#told] = [undefined, undefined, 0];
      const { turn_id: turnId, reason, usage = {} } = data;
      yield { type: "end", turnId, outcome: name.slice("turn_".length), reason, usage };
    }
  }

  *#takeSnapshot(data) {
    const { last_seq, pending, turn, streaming_message: message } = data;
    this.#snapshotSeq = last_seq;
    this.#open = new Set(pending.map(({ call_id, suspension }) => `${call_id}/${suspension}`));
    // Without a place to go on from, the stream begins in the middle of this turn.
    if (this.place !== undefined) return;
    [this.turnId, this.place] = [turn?.id, snapshotPlace(data)];
    if (!message) return;
    for (const kind of ["thinking", "text"]) {
      yield* this.#takeDelta(`${kind}_delta`, { message_id: message.id, text: message[kind] });
    }
  }

  *#takeDelta(name, { message_id: messageId, text }) {
    yield* this.#restartUnless(messageId);
    this.#streaming = messageId;
    if (text === "") return;
    if (name === "text_delta") this.#told += [...text].length;
    yield { type: name === "text_delta" ? "text" : "thinking", text, messageId };
  }

  /** The message, after what no piece has told of it, such as all of it if it was complete before the
   * stream began. */
  *#takeMessage(message) {
    if (message.role === "assistant") {
      yield* this.#restartUnless(message.id);
      const text = [...textOf(message)].slice(this.#told).join("");
      if (text !== "") yield { type: "text", text, messageId: message.id };
    }
    [this.#streaming, this.#told] = [undefined, 0];
    yield { type: "message", message, text: textOf(message), object: message.object };
  }

  *#restartUnless(messageId) {
    if (this.#streaming === undefined || this.#streaming === messageId) return;
    yield { type: "restart", messageId: this.#streaming };
    this.#told = 0;
  }
}
