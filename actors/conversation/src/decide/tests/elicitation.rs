//! A tool that needs something from a person before it can go on.

use serde_json::json;

use super::scenario::*;
use crate::command::{Action, ToolReturned};
use crate::elicitation::{InputAnswer, InputRequest};
use crate::event::{EventData, Executor, OnInterrupt, SuspensionKind};
use crate::message::Outcome;
use crate::{Attempt, CallId, Rejection};

fn asking_for(call: &str, attempt: u32, state: &str) -> Action {
    Action::ToolReturned(ToolReturned {
        call: CallId::new(call),
        attempt: Attempt::new(attempt),
        outcome: Outcome::Ok(json!(null)),
        ui: None,
        halt: None,
        changes: Vec::new(),
        input_request: Some(InputRequest {
            message: "Which seat?".to_owned(),
            requests: json!({"seat": {"type": "string"}}),
            request_state: Some(state.to_owned()),
        }),
        effective_args: None,
    })
}

#[test]
fn a_tool_that_asks_waits_and_goes_on_with_the_answer_as_its_next_attempt() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    assert_eq!(scenario.apply(asking_for("a", 1, "s1")), Ok(vec!["input_required", "suspension"]));
    let pending = scenario.state.pending_calls().pop().unwrap();
    assert_eq!((pending.kind, pending.executor), (SuspensionKind::Elicitation, Executor::Server));
    assert_eq!(pending.requests, Some(json!({"seat": {"type": "string"}})));
    assert!(scenario.wanted().is_empty(), "nothing runs while it waits");
    let events = scenario.apply(answer("a", Some(1), json!("12A")));
    assert_eq!(events, Ok(vec!["resolution", "tool_started"]));
    assert_eq!(scenario.wanted(), ["attempt 2 of a"]);
    let input = scenario.state.call(&CallId::new("a")).unwrap().pending_input.clone().unwrap();
    assert_eq!(input.answer, Some(InputAnswer::Result(json!("12A"))));
    assert_eq!(input.request.request_state.as_deref(), Some("s1"));
    scenario.then(returned("a", 2));
    assert_eq!(scenario.result("a").unwrap().outcome, Outcome::Ok(json!("done")));
}

#[test]
fn a_kill_while_it_waits_or_goes_on_keeps_what_was_asked_and_answered() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    scenario.then(asking_for("a", 1, "s1")).then(Action::Revive);
    assert_eq!(scenario.phase("a"), "suspended");
    scenario.then(answer("a", None, json!(1))).then(Action::Revive);
    assert_eq!(scenario.wanted(), ["attempt 3 of a"]);
    let input = scenario.state.call(&CallId::new("a")).unwrap().pending_input.clone().unwrap();
    assert_eq!(input.answer, Some(InputAnswer::Result(json!(1))));
}

#[test]
fn a_refused_question_goes_back_to_the_tool_which_has_the_last_word() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    scenario.then(asking_for("a", 1, "s1"));
    scenario.then(answer_error("a", "no seat")).then(returned("a", 2));
    assert_eq!(scenario.result("a").unwrap().outcome, Outcome::Ok(json!("done")));
}

#[test]
fn it_may_ask_again_but_not_for_ever() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    for attempt in 1..=10 {
        scenario.then(asking_for("a", attempt, "s")).then(answer("a", None, json!(attempt)));
    }
    scenario.then(asking_for("a", 11, "s"));
    assert_eq!(scenario.error("a"), json!(["the tool asked too often", "TOOL_ERROR"]));
    assert_eq!(scenario.wanted(), ["model step 2 of turn_1"]);
}

#[test]
fn what_it_asks_expires_and_is_cancelled_like_any_suspension() {
    let mut scenario = Scenario::with_calls(vec![server("a"), gated("b")]);
    scenario.then(approve("b", None)).then(asking_for("b", 1, "s")).then(asking_for("a", 1, "s"));
    assert_eq!(scenario.state.pending_calls().len(), 2);
    scenario.advance(TIMEOUT_MS).then(Action::Wake);
    assert_eq!(scenario.error("a"), json!(["timed out: no response", "EXPIRED"]));
    assert!(not_open(scenario.apply(answer("b", Some(2), json!(1)))));
}

#[test]
fn an_approval_does_not_answer_a_question() {
    let mut scenario = Scenario::with_calls(vec![gated("a")]);
    scenario.then(approve("a", None)).then(asking_for("a", 1, "s"));
    assert!(not_open(scenario.apply(approve("a", None))));
    assert!(not_open(scenario.apply(answer("a", Some(1), json!(1)))));
    assert_eq!(scenario.apply(asking_for("a", 1, "s")), Err(Rejection::Stale));
}

#[test]
fn a_dispatched_call_that_asks_ends_with_an_error() {
    let mut scenario = Scenario::with_turn();
    scenario
        .then(super::dispatch::dispatch("d", OnInterrupt::Redispatch))
        .then(asking_for("d", 1, "s"));
    let done = scenario.journal.iter().rev().find_map(|event| match &event.data {
        EventData::DispatchFinished(done) => Some(done.result.clone()),
        _ => None,
    });
    assert!(!done.unwrap().is_ok());
    assert!(scenario.state.dispatches.is_empty());
}
