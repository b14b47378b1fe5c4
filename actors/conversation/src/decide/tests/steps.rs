//! Steps, and the ways in which a turn ends.

use std::sync::Arc;

use serde_json::{Value, json};

use super::scenario::*;
use crate::command::{Action, CallPlan, Command, ModelFailed, ToolReturned};
use crate::event::{CallKind, EventData, Executor};
use crate::message::{ErrorType, Outcome, Ui};
use crate::{Attempt, CallArgs, CallId, Rejection, Step, Transition, TurnId, decide_and_fold};

fn failed(step: Step, cut: bool) -> Action {
    Action::ModelFailed(ModelFailed {
        turn: TurnId::new("turn_1"),
        step,
        reason: "HTTP 500".to_owned(),
        partial: cut.then(|| partial(step)),
    })
}

fn halting(call: &str) -> Action {
    let (call, halt) = (CallId::new(call), Some("enough".to_owned()));
    let outcome = Outcome::Ok(json!(1));
    Action::ToolReturned(ToolReturned {
        call,
        attempt: Attempt::FIRST,
        outcome,
        ui: None,
        halt,
        changes: Vec::new(),
        input_request: None,
        effective_args: None,
    })
}

/// `reference/semantics.md#what-must-not-go-wrong` no. 16
#[test]
fn a_turn_without_end_is_halted_at_max_steps() {
    let mut scenario = Scenario::with_turn();
    for step in 1..=5 {
        assert_eq!(scenario.wanted(), [format!("model step {step} of turn_1")]);
        scenario.reply(vec![server("a")]).unwrap();
        let call = scenario.state.turn.as_ref().unwrap().calls[0].id.to_string();
        scenario.then(returned(&call, 1));
    }
    assert_eq!(scenario.turn_ends(), [("halted".to_owned(), Some("max_steps".to_owned()))]);
    assert!(scenario.wanted().is_empty());
}

#[test]
fn the_last_step_may_still_answer() {
    let mut scenario = Scenario::with_turn();
    for _ in 1..5 {
        let refused = Outcome::Err("unknown tool: tool".to_owned(), ErrorType::ToolNotFound);
        scenario.reply(vec![answered_call("a", Executor::Server, refused)]).unwrap();
    }
    scenario.reply(vec![]).unwrap();
    assert_eq!(scenario.turn_ends(), [("completed".to_owned(), None)]);
}

#[test]
fn a_last_step_whose_calls_are_answered_at_once_is_halted_in_the_same_commit() {
    let mut scenario = Scenario::with_turn();
    for _ in 1..5 {
        scenario.reply(vec![answered_call("a", Executor::Client, Outcome::Ok(json!(1)))]).unwrap();
    }
    let events =
        scenario.reply(vec![answered_call("a", Executor::Client, Outcome::Ok(json!(1)))]).unwrap();
    assert_eq!(events, ["assistant_msg", "tool_call", "tool_result", "turn_ended"]);
}

#[test]
fn an_answer_or_an_expiry_in_the_last_step_ends_the_turn_too() {
    for (call, closing) in [
        (human("a"), answer("a~5", None, json!(1))),
        (human("a"), Action::Wake),
        (client("a"), missing("a~5", 1)),
        (gated("a"), deny("a~5", None)),
    ] {
        let mut scenario = Scenario::with_turn();
        for _ in 1..5 {
            scenario
                .reply(vec![answered_call("a", Executor::Server, Outcome::Ok(json!(1)))])
                .unwrap();
        }
        scenario.reply(vec![call]).unwrap();
        if closing == Action::Wake {
            scenario.advance(TIMEOUT_MS);
        }
        assert_eq!(scenario.apply(closing).unwrap().last(), Some(&"turn_ended"));
        assert_eq!(scenario.turn_ends(), [("halted".to_owned(), Some("max_steps".to_owned()))]);
    }
}

/// `reference/semantics.md#what-must-not-go-wrong` no. 15
#[test]
fn a_provider_failure_is_turn_failed_with_a_reason() {
    let mut scenario = Scenario::with_turn();
    assert_eq!(scenario.apply(failed(Step::FIRST, false)).unwrap(), ["turn_ended"]);
    assert_eq!(scenario.turn_ends(), [("failed".to_owned(), Some("HTTP 500".to_owned()))]);
    assert!(scenario.wanted().is_empty());
}

/// `reference/semantics.md#what-must-not-go-wrong` no. 14
#[test]
fn the_partial_text_of_a_failed_stream_is_kept_once_and_marked() {
    let mut scenario = Scenario::with_turn();
    assert_eq!(scenario.apply(failed(Step::FIRST, true)).unwrap(), ["assistant_msg", "turn_ended"]);
    let EventData::AssistantMsg(spoken) = &scenario.journal[3].data else { unreachable!() };
    let spoken = serde_json::to_value(spoken).unwrap();
    assert_eq!(
        (&spoken["status"], &spoken["message"]["status"]),
        (&json!("error"), &json!("error"))
    );
    assert_eq!(scenario.apply(failed(Step::FIRST, true)), Err(Rejection::Stale));
}

#[test]
fn a_reply_or_a_failure_of_another_step_or_turn_is_stale() {
    let mut scenario = Scenario::with_turn();
    let first = scenario.model_reply(vec![server("a")]);
    scenario.then(first.clone());
    assert_eq!(scenario.apply(first.clone()), Err(Rejection::Stale));
    assert_eq!(
        scenario.apply(failed(Step::new(2), false)),
        Err(Rejection::Stale),
        "a call is open"
    );
    scenario.then(returned("a", 1));
    assert_eq!(scenario.apply(first.clone()), Err(Rejection::Stale));
    assert_eq!(scenario.apply(failed(Step::FIRST, false)), Err(Rejection::Stale));
    assert_eq!(scenario.apply(failed(Step::new(3), false)), Err(Rejection::Stale));
    scenario.then(cancel()).then(send("turn_2"));
    assert_eq!(scenario.apply(first), Err(Rejection::Stale));
}

#[test]
fn a_halt_gives_every_other_call_a_result() {
    let mut scenario = Scenario::with_calls(vec![server("a"), server("b"), human("c"), gated("d")]);
    let events = scenario.apply(halting("a")).unwrap();
    assert_eq!(events, [vec!["tool_result"; 4], vec!["turn_ended"]].concat());
    assert!(scenario.result("a").unwrap().outcome.is_ok());
    for call in ["b", "c", "d"] {
        assert_eq!(scenario.error(call), json!(["[cancelled]", "CANCELLED"]));
    }
    assert_eq!(scenario.turn_ends(), [("halted".to_owned(), Some("enough".to_owned()))]);
    assert_eq!((scenario.state.alarm(), scenario.wanted()), (None, vec![]));
}

#[test]
fn what_a_tool_shows_to_people_is_beside_its_result() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    let ui = Some(Ui { kind: "chart".to_owned(), payload: json!([1]) });
    let (call, outcome) = (CallId::new("a"), Outcome::Ok(json!("drawn")));
    let back = ToolReturned {
        call,
        attempt: Attempt::FIRST,
        outcome,
        ui: ui.clone(),
        halt: None,
        changes: Vec::new(),
        input_request: None,
        effective_args: None,
    };
    scenario.then(Action::ToolReturned(back));
    assert_eq!(scenario.result("a").unwrap().ui, ui);
}

/// `reference/semantics.md#what-must-not-go-wrong` no. 12, as far as it concerns the core
#[test]
fn a_call_whose_tool_is_gone_when_it_is_approved_ends_with_an_error() {
    let mut scenario = Scenario::with_calls(vec![gated("a")]);
    scenario.then(approve("a", None));
    let outcome = Outcome::Err("unknown tool: tool".to_owned(), ErrorType::ToolNotFound);
    let call = CallId::new("a");
    let back = ToolReturned {
        call,
        attempt: Attempt::FIRST,
        outcome,
        ui: None,
        halt: None,
        changes: Vec::new(),
        input_request: None,
        effective_args: None,
    };
    scenario.then(Action::ToolReturned(back));
    assert_eq!(scenario.error("a"), json!(["unknown tool: tool", "TOOL_NOT_FOUND"]));
    assert_eq!(scenario.wanted(), ["model step 2 of turn_1"]);
}

#[test]
fn calls_in_one_lane_run_one_after_another_in_call_order() {
    let in_lane = |id: &str, gate: bool, name: &str| {
        let mut planned = call(id, Executor::Server, gate);
        if let CallPlan::Execute { kind: CallKind::Server { lane, .. }, .. } = &mut planned.plan {
            *lane = Some(name.to_owned());
        }
        planned
    };
    let calls = vec![
        in_lane("a", true, "x"),
        in_lane("c", false, "x"),
        in_lane("b", false, "x"),
        in_lane("d", false, "y"),
        server("e"),
    ];
    let mut scenario = Scenario::with_calls(calls);
    let first = ["attempt 1 of c", "attempt 1 of d", "attempt 1 of e"];
    assert_eq!(scenario.wanted(), first, "what waits for a person holds up nobody");
    scenario.then(approve("a", None));
    assert_eq!(scenario.wanted(), ["attempt 1 of a", "attempt 1 of d", "attempt 1 of e"]);
    scenario.then(returned("a", 1)).then(returned("c", 1));
    assert_eq!(scenario.wanted(), ["attempt 1 of b", "attempt 1 of d", "attempt 1 of e"]);
}

#[test]
fn what_is_made_from_a_call_shares_its_arguments() {
    let scenario = Scenario::with_turn();
    let action = scenario.model_reply(vec![gated("a")]);
    let command = Command { at: scenario.at, action };
    let Transition { events, state } = decide_and_fold(&Arc::new(scenario.state), command).unwrap();
    let shared: *const Value = &*state.call(&CallId::new("a")).unwrap().args;
    let mut named: Vec<&CallArgs> = Vec::new();
    for event in &events {
        match &event.data {
            EventData::AssistantMsg(it) => named.push(&it.message.tool_calls[0].args),
            EventData::ToolCall(it) => named.push(&it.args),
            EventData::Suspension(it) => named.push(&it.args),
            _ => {}
        }
    }
    let pending = state.pending_calls();
    named.push(&pending[0].args);
    assert_eq!(named.len(), 4);
    assert!(named.into_iter().all(|args| std::ptr::eq(&**args, shared)));
}
