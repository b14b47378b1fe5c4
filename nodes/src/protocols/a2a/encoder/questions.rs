//! What a task asks its caller.

use serde_json::{Value, json};

use crate::protocols::feed::SuspendedCall;

/// The parts of the message that asks: a text for people, and data for each question.
pub(super) fn parts(calls: &[&SuspendedCall]) -> Vec<Value> {
    let texts: Vec<&str> = calls.iter().map(|call| call.message.as_str()).collect();
    let text = json!({"text": texts.join("\n")});
    [text].into_iter().chain(calls.iter().map(|call| part(call))).collect()
}

fn part(call: &SuspendedCall) -> Value {
    let question = json!({
        "kind": call.kind,
        "call_id": call.call,
        "suspension": call.suspension,
        "tool": call.tool,
        "args": call.args,
        "message": call.message,
        "intent": call.intent,
        "answer_schema": call.answer_schema,
        "expires_at": call.expires_at,
    });
    json!({"data": {"abide": question}, "mediaType": "application/json"})
}
