// Calls that wait, and their answers.
import { randomName } from "./transport.js";

export const pathOf = (conversation) => `/v1/conversations/${encodeURIComponent(conversation)}`;

/** A call that waits, or a handle of one, made of its ids. `entry` is what the node said of it. */
export class Call {
  type = "suspended";
  #transport;

  constructor(transport, conversation, entry) {
    this.#transport = transport;
    this.entry = entry;
    this.conversationId = entry.conversation_id ?? conversation;
    this.callId = entry.call_id;
    this.suspension = entry.suspension;
    this.tool = entry.tool ?? "";
    this.kind = entry.kind ?? "";
    this.args = entry.args;
    this.message = entry.message ?? "";
    this.expiresAt = entry.expires_at;
    this.answerSchema = entry.answer_schema;
  }

  /** Approves the call, with edited arguments if there are any. `remember` answers later calls, too. */
  approve({ reason, args, remember } = {}) {
    return this.#resolve({ approved: true, reason, args, remember: decision(remember) });
  }

  /** Denies the call; the model reads the reason. */
  deny({ reason, remember } = {}) {
    return this.#resolve({ approved: false, reason, remember: decision(remember) });
  }

  /** Answers a question, or reports what a client tool returned. */
  answer(result) {
    return this.#resolve({ result: result ?? null });
  }

  /** Ends a question or a client call as an error, which the model reads. */
  fail(error) {
    return this.#resolve({ error: String(error).slice(0, 2_000).toWellFormed() || "failed" });
  }

  /** Has a call that is in doubt run once more. */
  retry() {
    return this.#resolve({ outcome: "retry" });
  }

  /** Lets the call wait longer: `for` a duration such as `"1h"`, or `until` a time. */
  extend({ for: duration, until }) {
    return this.#post("extend", { for: duration, until });
  }

  #resolve(answer) {
    return this.#post("resolution", { ...answer, suspension: this.suspension });
  }

  #post(verb, body) {
    const path = `${pathOf(this.conversationId)}/calls/${encodeURIComponent(this.callId)}/${verb}`;
    return this.#transport.request("POST", path, { body, key: randomName() });
  }
}

const decision = (remember) => (typeof remember === "string" ? { for: remember } : remember);
