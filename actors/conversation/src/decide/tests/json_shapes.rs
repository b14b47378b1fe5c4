//! Events and states as JSON: the forms of `reference/journal.md` and `reference/results.md`.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::scenario::*;
use crate::command::{Action, IfBusy, ToolReturned};
use crate::event::{AnswerFormat, Event, Executor};
use crate::message::{ErrorType, Outcome, Ui, text_block};
use crate::{Attempt, CallId, Timestamp, from_json};

fn written(scenario: &Scenario) -> Vec<Value> {
    scenario.journal.iter().map(|event| serde_json::to_value(event).unwrap()).collect()
}

fn data(scenario: &Scenario, name: &str) -> Value {
    let found = written(scenario).into_iter().rfind(|event| event["type"] == name);
    found.unwrap()["data"].clone()
}

#[test]
fn an_event_has_its_seq_type_time_turn_and_data() {
    let mut scenario = Scenario::with_calls(vec![gated("a")]);
    scenario.then(cancel());
    let events = written(&scenario);
    assert_eq!(
        events[0],
        json!({"seq": 1, "type": "created", "at": "2027-01-15T08:00:00.000Z",
            "data": {"agent": "demo"}})
    );
    assert_eq!(
        events[2],
        json!({"seq": 3, "type": "turn_started", "at": "2027-01-15T08:00:00.000Z", "turn_id": "turn_1",
            "data": {"agent": "demo", "revision": "0123456789abcdef", "max_steps": 5}})
    );
    assert_eq!(
        events[5],
        json!({"seq": 6, "type": "suspension", "at": "2027-01-15T08:00:00.000Z", "turn_id": "turn_1",
            "data": {"call_id": "a", "kind": "approval", "suspension": 1,
                "expires_at": "2027-01-15T08:01:00.000Z", "tool": "tool", "executor": "server",
                "intent": "action", "args": {"n": 1}, "message": "May it?"}})
    );
}

#[test]
fn a_user_msg_has_its_message_and_its_principal() {
    let mut scenario = Scenario::empty();
    let mut sent = message("turn_1", IfBusy::Reject);
    sent.message_id = Some("m1".to_owned());
    sent.content.push(json!({"type": "hologram", "depth": 3}));
    scenario.then(Action::Send(sent));
    assert_eq!(
        data(&scenario, "user_msg"),
        json!({"message": {"id": "user_turn_1", "role": "user", "content":
                [{"type": "text", "text": "hello"}, {"type": "hologram", "depth": 3}]},
            "message_id": "m1", "principal": "user"})
    );
}

#[test]
fn an_assistant_msg_has_its_calls_status_and_usage() {
    let mut scenario = Scenario::with_turn();
    let Action::ModelReplied(mut reply) = scenario.model_reply(vec![server("a")]) else {
        unreachable!()
    };
    reply.usage =
        Some(crate::usage::Usage { input_tokens: 7, output_tokens: 2, ..Default::default() });
    scenario.then(Action::ModelReplied(reply));
    assert_eq!(
        data(&scenario, "assistant_msg"),
        json!({"message": {"id": "msg_3", "role": "assistant",
                "content": [{"type": "text", "text": "said"}],
                "tool_calls": [{"id": "a", "name": "tool", "args": {"n": 1}}]},
            "status": "complete", "step": 1, "usage": {"input_tokens": 7, "output_tokens": 2}})
    );
}

#[test]
fn a_call_its_resolution_and_its_result_have_the_contracts_fields() {
    let mut scenario = Scenario::with_calls(vec![gated_client("a")]);
    assert_eq!(
        data(&scenario, "tool_call"),
        json!({"call_id": "a", "tool": "tool", "args": {"n": 1}, "executor": "client",
            "intent": "action", "started": false, "message": "Please answer.",
            "timeout_ms": 60_000, "grace_ms": 5_000, "on_interrupt": "redispatch",
            "gate": {"decision": "ask", "rule": "auto", "phase": "default",
                "fingerprint": "0123456789abcdef"}})
    );
    scenario.then(approve_with("a", json!({"n": 2})));
    assert_eq!(
        data(&scenario, "resolution"),
        json!({"call_id": "a", "kind": "approval", "suspension": 1, "by": "boss",
            "approved": true, "args": {"n": 2},
            "gate": {"decision": "allow", "rule": "auto", "phase": "default",
                "fingerprint": "0123456789abcdef"}})
    );
    assert_eq!(
        data(&scenario, "tool_started"),
        json!({"call_id": "a", "tool": "tool", "executor": "client", "intent": "action",
            "args": {"n": 2}, "attempt": 1})
    );
    scenario.then(answer("a", Some(2), json!({"x": 1})));
    assert_eq!(
        data(&scenario, "resolution"),
        json!({"call_id": "a", "kind": "client_exec", "suspension": 2, "by": "boss"})
    );
    let result = json!({"call_id": "a", "ok": true, "result": {"x": 1}});
    assert_eq!(data(&scenario, "tool_result"), result);
    scenario.then(cancel());
    let usage = json!({"input_tokens": 0, "output_tokens": 0});
    assert_eq!(data(&scenario, "turn_ended"), json!({"outcome": "cancelled", "usage": usage}));
}

#[test]
fn an_error_result_has_its_type_and_a_shown_one_its_ui() {
    let mut scenario = Scenario::with_calls(vec![server("a"), server("b")]);
    scenario.then(Action::ToolReturned(ToolReturned {
        call: CallId::new("a"),
        attempt: Attempt::FIRST,
        outcome: Outcome::Err("broken".to_owned(), ErrorType::ToolCrashed),
        ui: Some(Ui { kind: "chart".to_owned(), payload: json!([1]) }),
        halt: None,
        changes: Vec::new(),
        input_request: None,
        effective_args: None,
    }));
    assert_eq!(
        data(&scenario, "tool_result"),
        json!({"call_id": "a", "ok": false, "error": "broken", "error_type": "TOOL_CRASHED",
            "ui": {"kind": "chart", "payload": [1]}})
    );
}

#[test]
fn error_types_and_outcomes_are_spelt_as_the_contract_does() {
    use ErrorType::*;
    let all = [
        (Denied, "DENIED"),
        (PermissionDenied, "PERMISSION_DENIED"),
        (Expired, "EXPIRED"),
        (Cancelled, "CANCELLED"),
        (ToolNotFound, "TOOL_NOT_FOUND"),
        (ValidationError, "VALIDATION_ERROR"),
        (ToolError, "TOOL_ERROR"),
        (ToolCrashed, "TOOL_CRASHED"),
        (Timeout, "TIMEOUT"),
        (Interrupted, "INTERRUPTED"),
        (NoClient, "NO_CLIENT"),
    ];
    for (error_type, name) in all {
        let outcome = Outcome::Err("e".to_owned(), error_type);
        let json = json!({"ok": false, "error": "e", "error_type": name});
        assert_eq!(serde_json::to_value(&outcome).unwrap(), json);
        assert_eq!(serde_json::from_value::<Outcome>(json).unwrap(), outcome);
    }
    assert_eq!(serde_json::to_value(Outcome::Ok(json!(null))).unwrap()["result"], json!(null));
    assert!(serde_json::from_value::<Outcome>(json!({"ok": false})).is_err());
    assert!(serde_json::from_value::<Outcome>(json!({"result": 1})).is_err());
}

#[test]
fn a_messages_own_shape_and_assigns_survive() {
    for shape in [
        AnswerFormat::Plain,
        AnswerFormat::Schema(json!({"type": "null"})),
        AnswerFormat::Schema(json!(null)),
    ] {
        let mut scenario = Scenario::empty();
        let mut sent = message("turn_1", IfBusy::Reject);
        sent.answer_format = shape.clone();
        sent.assigns.insert("user_id".to_owned(), json!(7));
        scenario.then(Action::Send(sent));
        let turn = scenario.state.turn.unwrap();
        assert_eq!((turn.answer_format, &turn.assigns["user_id"]), (shape, &json!(7)));
    }
}

/// A value may be as deep as the limit on input; its event is a few levels deeper.
#[test]
fn an_event_reads_back_however_deep_the_value_inside_it_is() {
    let text = format!("{}{}", "[".repeat(127), "]".repeat(127));
    let deep: Value = serde_json::from_str(&text).unwrap();
    let mut planned = gated("a");
    planned.args = deep.clone().into();
    let mut scenario = Scenario::with_calls(vec![planned]);
    scenario.then(approve_with("a", deep.clone())).then(Action::ToolReturned(ToolReturned {
        call: CallId::new("a"),
        attempt: Attempt::FIRST,
        outcome: Outcome::Ok(deep),
        ui: None,
        halt: None,
        changes: Vec::new(),
        input_request: None,
        effective_args: None,
    }));
}

#[test]
fn what_is_not_one_whole_event_is_refused() {
    let event = serde_json::to_string(&Scenario::with_turn().journal[0]).unwrap();
    let cut = event.as_bytes().split_last().unwrap().1;
    for wrong in [cut, format!("{event}x").as_bytes(), b"", b"null", b"\xff"] {
        assert!(from_json::<Event>(wrong).is_err());
    }
}

#[test]
fn the_text_of_a_message_is_its_text_blocks() {
    let content = vec![text_block("a"), json!({"type": "image"}), json!(7), text_block("b")];
    let mut sent = message("turn_1", IfBusy::Reject);
    sent.content = content;
    let mut scenario = Scenario::empty();
    scenario.then(Action::Send(sent));
    let crate::event::EventData::UserMsg(message) = &scenario.journal[1].data else {
        unreachable!()
    };
    assert_eq!(message.message.text(), "ab");
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_value_anywhere_reads_back_exactly(value in value(), ms in any::<u64>()) {
        let mut planned = call("a", Executor::Server, true);
        planned.args = value.clone().into();
        if let crate::command::CallPlan::Execute { timeout_ms, .. } = &mut planned.plan {
            *timeout_ms = ms;
        }
        let mut scenario = Scenario::with_calls(vec![planned, human("b")]);
        scenario.then(answer("b", None, value.clone()));
        if scenario.state.alarm() > Some(scenario.at) {
            scenario.then(approve_with("a", value));
        }
        prop_assert!(scenario.at < Timestamp::MAX);
    }
}
