//! Events of the tests.

use abide_conversation::event::Event;
use serde_json::{Value, json};

/// The events of turn `t`, each with its type and data, from seq 1.
pub(in crate::protocols) fn journal(events: &[(&str, Value)]) -> Vec<Event> {
    let event = |(index, (kind, data)): (usize, &(&str, Value))| {
        let event = json!({"seq": index + 1, "at": "2026-01-01T00:00:00.000Z", "turn_id": "t",
            "type": kind, "data": data});
        serde_json::from_value(event).unwrap()
    };
    events.iter().enumerate().map(event).collect()
}

pub(in crate::protocols) fn started() -> (&'static str, Value) {
    ("turn_started", json!({"agent": "a", "revision": "00112233aabbccdd", "max_steps": 9}))
}

/// A message of this step with calls of the tool that each is named like.
pub(in crate::protocols) fn message(
    id: &str,
    step: u32,
    text: &str,
    calls: &[&str],
) -> (&'static str, Value) {
    let calls: Vec<Value> =
        calls.iter().map(|id| json!({"id": id, "name": id, "args": {}})).collect();
    let message = json!({"id": id, "role": "assistant", "tool_calls": calls,
        "content": [{"type": "reasoning", "text": "Hm."}, {"type": "text", "text": text}]});
    ("assistant_msg", json!({"message": message, "status": "complete", "step": step}))
}

pub(in crate::protocols) fn called(
    id: &str,
    executor: &str,
    started: bool,
) -> (&'static str, Value) {
    let call = json!({"call_id": id, "tool": id, "args": {}, "executor": executor,
        "started": started, "timeout_ms": 1000});
    ("tool_call", call)
}

pub(in crate::protocols) fn suspended(id: &str, kind: &str, number: u32) -> (&'static str, Value) {
    let suspension = json!({"call_id": id, "kind": kind, "suspension": number, "tool": id,
        "executor": "client", "args": {}, "message": "Well?",
        "expires_at": "2026-01-02T00:00:00.000Z"});
    ("suspension", suspension)
}

pub(in crate::protocols) fn resolved(id: &str, kind: &str, number: u32) -> (&'static str, Value) {
    ("resolution", json!({"call_id": id, "kind": kind, "suspension": number, "by": "ada"}))
}

pub(in crate::protocols) fn result(id: &str) -> (&'static str, Value) {
    ("tool_result", json!({"call_id": id, "ok": true, "result": 1}))
}

pub(in crate::protocols) fn ended() -> (&'static str, Value) {
    ("turn_ended", json!({"outcome": "completed"}))
}

/// A message that somebody adds to the turn.
pub(in crate::protocols) fn steered(id: &str) -> (&'static str, Value) {
    let content = json!([{"type": "text", "text": "And quickly."}]);
    let message = json!({"id": id, "role": "user", "content": content});
    ("steered", json!({"message": message, "message_id": format!("own_{id}"), "principal": "ada"}))
}
