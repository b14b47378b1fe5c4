//! The JSON of the calls of every kind, in journals and in stored states.

use serde_json::{Value, json};

use super::CallKind;
use crate::event::{Executor, Intent, OnInterrupt, ToolCall};
use crate::permission::{Decision, PermissionPhase, Verdict};
use crate::state::{Call, CallPhase};
use crate::{CallId, ConversationId, Principal, from_json};

/// Each kind, with everything set that it has.
fn kinds() -> [CallKind; 5] {
    let (child, lane) = (Some(ConversationId::new("kid")), Some("file".to_owned()));
    [
        CallKind::Server { on_interrupt: OnInterrupt::Fail, child, lane, answerers: None },
        CallKind::from(Executor::Server),
        CallKind::Client { grace_ms: Some(5_000), default_result: Some(Value::Null) },
        CallKind::Human,
        CallKind::Provider,
    ]
}

fn planned(kind: CallKind) -> ToolCall {
    ToolCall {
        call_id: CallId::new("a"),
        tool: "t".to_owned(),
        args: json!({"n": 1}).into(),
        kind,
        intent: Intent::Action,
        started: false,
        message: String::new(),
        timeout_ms: 60_000,
        gate: None,
        answer_schema: None,
        waiting_rules: None,
    }
}

fn call(kind: CallKind) -> Call {
    Call {
        id: CallId::new("a"),
        tool: "t".to_owned(),
        args: json!({"n": 1}).into(),
        kind,
        intent: Intent::Action,
        message: String::new(),
        timeout_ms: 60_000,
        principal: Principal::new("ada"),
        suspensions: 0,
        gate: None,
        approvals: Vec::new(),
        approved: false,
        pending_input: None,
        answer_schema: None,
        waiting_rules: None,
        failed_attempts: 0,
        phase: CallPhase::Requested,
    }
}

#[test]
fn a_planned_call_is_written_as_it_always_was() {
    let written = kinds().map(|kind| serde_json::to_string(&planned(kind)).unwrap());
    assert_eq!(
        written,
        [
            r#"{"call_id":"a","tool":"t","args":{"n":1},"executor":"server","intent":"action","started":false,"timeout_ms":60000,"on_interrupt":"fail","child":"kid","lane":"file"}"#,
            r#"{"call_id":"a","tool":"t","args":{"n":1},"executor":"server","intent":"action","started":false,"timeout_ms":60000,"on_interrupt":"redispatch"}"#,
            r#"{"call_id":"a","tool":"t","args":{"n":1},"executor":"client","intent":"action","started":false,"timeout_ms":60000,"grace_ms":5000,"on_interrupt":"redispatch","answer":null}"#,
            r#"{"call_id":"a","tool":"t","args":{"n":1},"executor":"human","intent":"action","started":false,"timeout_ms":60000,"on_interrupt":"redispatch"}"#,
            r#"{"call_id":"a","tool":"t","args":{"n":1},"executor":"provider","intent":"action","started":false,"timeout_ms":60000,"on_interrupt":"redispatch"}"#,
        ]
    );
    for kind in kinds() {
        let json = serde_json::to_vec(&planned(kind.clone())).unwrap();
        assert_eq!(from_json::<ToolCall>(&json).unwrap(), planned(kind));
    }
}

#[test]
fn a_planned_call_has_its_message_before_and_its_gate_between_the_settings_of_its_kind() {
    let [server, _, client, ..] = kinds();
    let gate = Verdict {
        decision: Decision::Allow,
        rule: "r".to_owned(),
        phase: PermissionPhase::Default,
        fingerprint: "f".to_owned(),
        by: None,
        approvals: Vec::new(),
    };
    let with_all = |kind| {
        let (message, gate) = ("Go?".to_owned(), Some(gate.clone()));
        serde_json::to_string(&ToolCall { message, gate, ..planned(kind) }).unwrap()
    };
    assert_eq!(
        with_all(server),
        r#"{"call_id":"a","tool":"t","args":{"n":1},"executor":"server","intent":"action","started":false,"message":"Go?","timeout_ms":60000,"on_interrupt":"fail","gate":{"decision":"allow","rule":"r","phase":"default","fingerprint":"f"},"child":"kid","lane":"file"}"#
    );
    assert_eq!(
        with_all(client),
        r#"{"call_id":"a","tool":"t","args":{"n":1},"executor":"client","intent":"action","started":false,"message":"Go?","timeout_ms":60000,"grace_ms":5000,"on_interrupt":"redispatch","answer":null,"gate":{"decision":"allow","rule":"r","phase":"default","fingerprint":"f"}}"#
    );
}

#[test]
fn a_call_of_the_state_is_written_as_it_always_was() {
    let written = kinds().map(|kind| serde_json::to_string(&call(kind)).unwrap());
    assert_eq!(
        written,
        [
            r#"{"id":"a","tool":"t","args":{"n":1},"executor":"server","intent":"action","message":"","timeout_ms":60000,"grace_ms":null,"on_interrupt":"fail","principal":"ada","suspensions":0,"gate":null,"approved":false,"input":null,"child":"kid","lane":"file","phase":"requested"}"#,
            r#"{"id":"a","tool":"t","args":{"n":1},"executor":"server","intent":"action","message":"","timeout_ms":60000,"grace_ms":null,"on_interrupt":"redispatch","principal":"ada","suspensions":0,"gate":null,"approved":false,"input":null,"child":null,"lane":null,"phase":"requested"}"#,
            r#"{"id":"a","tool":"t","args":{"n":1},"executor":"client","intent":"action","message":"","timeout_ms":60000,"grace_ms":5000,"on_interrupt":"redispatch","answer":null,"principal":"ada","suspensions":0,"gate":null,"approved":false,"input":null,"child":null,"lane":null,"phase":"requested"}"#,
            r#"{"id":"a","tool":"t","args":{"n":1},"executor":"human","intent":"action","message":"","timeout_ms":60000,"grace_ms":null,"on_interrupt":"redispatch","principal":"ada","suspensions":0,"gate":null,"approved":false,"input":null,"child":null,"lane":null,"phase":"requested"}"#,
            r#"{"id":"a","tool":"t","args":{"n":1},"executor":"provider","intent":"action","message":"","timeout_ms":60000,"grace_ms":null,"on_interrupt":"redispatch","principal":"ada","suspensions":0,"gate":null,"approved":false,"input":null,"child":null,"lane":null,"phase":"requested"}"#,
        ]
    );
    for kind in kinds() {
        let json = serde_json::to_vec(&call(kind.clone())).unwrap();
        assert_eq!(from_json::<Call>(&json).unwrap(), call(kind));
    }
}

#[test]
fn calls_of_older_programs_have_defaults_for_what_they_lack() {
    let json = br#"{"call_id":"a","tool":"t","args":{"n":1},"executor":"server","started":true}"#;
    let read: ToolCall = from_json(json).unwrap();
    let kind = CallKind::from(Executor::Server);
    let intent = Intent::Compute;
    assert_eq!(read, ToolCall { intent, started: true, timeout_ms: 0, ..planned(kind) });

    let json = br#"{"id":"a","tool":"t","args":{"n":1},"executor":"client","intent":"action","message":"","timeout_ms":60000,"grace_ms":null,"on_interrupt":"redispatch","principal":"ada","suspensions":0,"phase":"requested"}"#;
    let read: Call = from_json(json).unwrap();
    assert_eq!(read, call(CallKind::from(Executor::Client)));
}

#[test]
fn settings_of_another_kind_which_had_no_effect_are_read_and_dropped() {
    let rest = json!({
        "id": "a", "call_id": "a", "tool": "t", "args": {"n": 1}, "intent": "action",
        "started": false, "message": "", "timeout_ms": 60_000, "principal": "ada",
        "suspensions": 0, "phase": "requested",
        "grace_ms": 5_000, "on_interrupt": "fail", "answer": 7, "child": "kid", "lane": "file",
    });
    let (child, lane) = (Some(ConversationId::new("kid")), Some("file".to_owned()));
    for (executor, kind) in [
        (
            "server",
            CallKind::Server { on_interrupt: OnInterrupt::Fail, child, lane, answerers: None },
        ),
        ("client", CallKind::Client { grace_ms: Some(5_000), default_result: Some(json!(7)) }),
        ("human", CallKind::Human),
        ("provider", CallKind::Provider),
    ] {
        let mut json = rest.clone();
        json["executor"] = executor.into();
        let json = json.to_string();
        assert_eq!(from_json::<ToolCall>(json.as_bytes()).unwrap(), planned(kind.clone()));
        assert_eq!(from_json::<Call>(json.as_bytes()).unwrap(), call(kind));
    }
}
