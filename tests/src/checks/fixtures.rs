//! Evidence of one conversation that keeps every promise, for the tests of the checks to break.

use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use super::Evidence;
use crate::client::Answer;
use crate::frames::Frame;
use crate::history::Exchange;
use crate::journal::Journal;
use crate::request_log::Request;

/// The conversation `c`: the turn `t1` calls `send`, which is approved and then runs twice, and
/// `once`, which expires; `t2` is cancelled.
pub(super) fn evidence() -> Evidence {
    let streams = vec![("c".to_owned(), frames())];
    let exchanges = vec![
        post("c/messages", json!({"text": "go", "message_id": "m1"}), 202, sent("t1", 2)),
        post("c/calls/send/resolution", json!({"approved": true}), 200, json!({"seq": 8})),
        post("c/messages", json!({"text": "again"}), 202, sent("t2", 14)),
        post("c/cancel", Value::Null, 200, json!({"cancelled": true})),
    ];
    Evidence {
        exchanges,
        journals: [("c".to_owned(), journal())].into(),
        streams,
        runs: vec![run("send", 1), run("send", 2)],
        ..Evidence::default()
    }
}

impl Evidence {
    pub(super) fn journal(&mut self) -> &mut Journal {
        self.journals.get_mut("c").unwrap()
    }
}

/// Fails unless one of the violations contains these words.
pub(super) fn expect(check: fn(&Evidence) -> Vec<String>, evidence: &Evidence, words: &str) {
    let violations = check(evidence);
    assert!(
        violations.iter().any(|violation| violation.contains(words)),
        "no {words:?} in {violations:#?}"
    );
}

pub(super) fn run(call: &str, attempt: u64) -> Request {
    Request {
        path: "/answer".to_owned(),
        headers: vec![("idempotency-key".to_owned(), format!("c/{call}"))],
        body: json!({"conversation_id": "c", "call_id": call, "attempt": attempt, "args": {}}),
        at: second(9),
    }
}

fn post(path: &str, body: Value, status: u16, answer: Value) -> Exchange {
    Exchange {
        node: "node-1".to_owned(),
        method: Method::POST,
        path: format!("/v1/conversations/{path}"),
        key: None,
        body: Some(body),
        sent_at: second(0),
        ended_at: second(1),
        answer: Ok(Answer { status, body: answer }),
    }
}

fn sent(turn: &str, seq: u64) -> Value {
    json!({"conversation_id": "c", "turn_id": turn, "seq": seq})
}

/// Event `n` happens in second `n`; suspensions expire after six seconds.
fn journal() -> Journal {
    let message = |text: &str| json!({"content": [{"type": "text", "text": text}]});
    let suspension = |call: &str, due| {
        let due = second(due).to_string();
        json!({"call_id": call, "kind": "approval", "suspension": 1, "expires_at": due})
    };
    let events = [
        ("created", Value::Null, json!({})),
        ("user_msg", json!("t1"), json!({"message": message("go"), "message_id": "m1"})),
        ("turn_started", json!("t1"), json!({})),
        ("tool_call", json!("t1"), json!({"call_id": "send", "started": false})),
        (
            "tool_call",
            json!("t1"),
            json!({"call_id": "once", "started": false, "on_interrupt": "fail"}),
        ),
        ("suspension", json!("t1"), suspension("send", 12)),
        ("suspension", json!("t1"), suspension("once", 12)),
        ("resolution", json!("t1"), json!({"call_id": "send", "suspension": 1, "approved": true})),
        ("tool_started", json!("t1"), json!({"call_id": "send", "attempt": 1})),
        ("tool_started", json!("t1"), json!({"call_id": "send", "attempt": 2})),
        ("tool_result", json!("t1"), json!({"call_id": "send", "ok": true})),
        ("tool_result", json!("t1"), json!({"call_id": "once", "error_type": "EXPIRED"})),
        ("turn_ended", json!("t1"), json!({"outcome": "completed"})),
        ("user_msg", json!("t2"), json!({"message": message("again")})),
        ("turn_started", json!("t2"), json!({})),
        ("turn_ended", json!("t2"), json!({"outcome": "cancelled"})),
    ];
    let numbered = (1..).zip(events).map(|(seq, (kind, turn, data))| {
        let at = second(seq).to_string();
        json!({"seq": seq, "type": kind, "at": at, "turn_id": turn, "data": data})
    });
    Journal(numbered.collect())
}

fn frames() -> Vec<Frame> {
    let journal = journal();
    let mirrored = journal.mirrored();
    let frames = journal
        .0
        .iter()
        .filter(|event| event["seq"].as_u64().is_some_and(|seq| mirrored.contains(&seq)));
    let frames = frames.map(|event| {
        let outcome = event["data"]["outcome"].as_str();
        let name = outcome.map_or("other".to_owned(), |outcome| format!("turn_{outcome}"));
        let data = json!({"turn_id": event["turn_id"]});
        Frame { name, id: event["seq"].as_u64(), data }
    });
    frames.collect()
}

pub(super) fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}
