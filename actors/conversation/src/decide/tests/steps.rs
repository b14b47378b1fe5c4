//! Steps, and the ways in which a turn ends.

use serde_json::json;

use super::scenario::*;
use crate::command::{Action, ModelFailed, ToolReturned};
use crate::event::{EventData, Executor};
use crate::message::{ErrorType, Outcome, Ui};
use crate::{CallId, Rejection, TurnId};

fn failed(step: u32, cut: bool) -> Action {
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
        attempt: 1,
        outcome,
        ui: None,
        halt,
        changes: Vec::new(),
        input_request: None,
        effective_args: None,
    })
}

/// semantics §2.16
#[test]
fn a_turn_without_end_is_halted_at_max_steps() {
    let mut story = Scenario::with_turn();
    for step in 1..=5 {
        assert_eq!(story.wanted(), [format!("model step {step} of turn_1")]);
        story.reply(vec![server("a")]).unwrap();
        let call = story.state.turn.as_ref().unwrap().calls[0].id.to_string();
        story.then(returned(&call, 1));
    }
    assert_eq!(story.turn_ends(), [("halted".to_owned(), Some("max_steps".to_owned()))]);
    assert!(story.wanted().is_empty());
}

#[test]
fn the_last_step_may_still_answer() {
    let mut story = Scenario::with_turn();
    for _ in 1..5 {
        let refused = Outcome::Err("unknown tool: tool".to_owned(), ErrorType::ToolNotFound);
        story.reply(vec![answered_call("a", Executor::Server, refused)]).unwrap();
    }
    story.reply(vec![]).unwrap();
    assert_eq!(story.turn_ends(), [("completed".to_owned(), None)]);
}

#[test]
fn a_last_step_whose_calls_are_answered_at_once_is_halted_in_the_same_commit() {
    let mut story = Scenario::with_turn();
    for _ in 1..5 {
        story.reply(vec![answered_call("a", Executor::Client, Outcome::Ok(json!(1)))]).unwrap();
    }
    let told =
        story.reply(vec![answered_call("a", Executor::Client, Outcome::Ok(json!(1)))]).unwrap();
    assert_eq!(told, ["assistant_msg", "tool_call", "tool_result", "turn_ended"]);
}

#[test]
fn an_answer_or_an_expiry_in_the_last_step_ends_the_turn_too() {
    for (call, closing) in [
        (human("a"), answer("a~5", None, json!(1))),
        (human("a"), Action::Wake),
        (client("a"), missing("a~5", 1)),
        (gated("a"), deny("a~5", None)),
    ] {
        let mut story = Scenario::with_turn();
        for _ in 1..5 {
            story.reply(vec![answered_call("a", Executor::Server, Outcome::Ok(json!(1)))]).unwrap();
        }
        story.reply(vec![call]).unwrap();
        if closing == Action::Wake {
            story.advance(TIMEOUT_MS);
        }
        assert_eq!(story.apply(closing).unwrap().last(), Some(&"turn_ended"));
        assert_eq!(story.turn_ends(), [("halted".to_owned(), Some("max_steps".to_owned()))]);
    }
}

/// semantics §2.15
#[test]
fn a_provider_failure_is_turn_failed_with_a_reason() {
    let mut story = Scenario::with_turn();
    assert_eq!(story.apply(failed(1, false)).unwrap(), ["turn_ended"]);
    assert_eq!(story.turn_ends(), [("failed".to_owned(), Some("HTTP 500".to_owned()))]);
    assert!(story.wanted().is_empty());
}

/// semantics §2.14
#[test]
fn the_partial_text_of_a_failed_stream_is_kept_once_and_marked() {
    let mut story = Scenario::with_turn();
    assert_eq!(story.apply(failed(1, true)).unwrap(), ["assistant_msg", "turn_ended"]);
    let EventData::AssistantMsg(spoken) = &story.journal[3].data else { unreachable!() };
    let spoken = serde_json::to_value(spoken).unwrap();
    assert_eq!(
        (&spoken["status"], &spoken["message"]["status"]),
        (&json!("error"), &json!("error"))
    );
    assert_eq!(story.apply(failed(1, true)), Err(Rejection::Stale));
}

#[test]
fn a_reply_or_a_failure_of_another_step_or_turn_is_stale() {
    let mut story = Scenario::with_turn();
    let first = story.model_reply(vec![server("a")]);
    story.then(first.clone());
    assert_eq!(story.apply(first.clone()), Err(Rejection::Stale));
    assert_eq!(story.apply(failed(2, false)), Err(Rejection::Stale), "a call is open");
    story.then(returned("a", 1));
    assert_eq!(story.apply(first.clone()), Err(Rejection::Stale));
    assert_eq!(story.apply(failed(1, false)), Err(Rejection::Stale));
    assert_eq!(story.apply(failed(3, false)), Err(Rejection::Stale));
    story.then(cancel()).then(send("turn_2"));
    assert_eq!(story.apply(first), Err(Rejection::Stale));
}

#[test]
fn a_halt_gives_every_other_call_a_result() {
    let mut story = Scenario::with_calls(vec![server("a"), server("b"), human("c"), gated("d")]);
    let told = story.apply(halting("a")).unwrap();
    assert_eq!(told, [vec!["tool_result"; 4], vec!["turn_ended"]].concat());
    assert!(story.result("a").unwrap().outcome.is_ok());
    for call in ["b", "c", "d"] {
        assert_eq!(story.error(call), json!(["[cancelled]", "CANCELLED"]));
    }
    assert_eq!(story.turn_ends(), [("halted".to_owned(), Some("enough".to_owned()))]);
    assert_eq!((story.state.alarm(), story.wanted()), (None, vec![]));
}

#[test]
fn what_a_tool_shows_to_people_is_beside_its_result() {
    let mut story = Scenario::with_calls(vec![server("a")]);
    let ui = Some(Ui { kind: "chart".to_owned(), payload: json!([1]) });
    let (call, outcome) = (CallId::new("a"), Outcome::Ok(json!("drawn")));
    let back = ToolReturned {
        call,
        attempt: 1,
        outcome,
        ui: ui.clone(),
        halt: None,
        changes: Vec::new(),
        input_request: None,
        effective_args: None,
    };
    story.then(Action::ToolReturned(back));
    assert_eq!(story.result("a").unwrap().ui, ui);
}

/// semantics §2.12, as far as the core goes
#[test]
fn a_call_whose_tool_is_gone_when_it_is_approved_ends_with_an_error() {
    let mut story = Scenario::with_calls(vec![gated("a")]);
    story.then(approve("a", None));
    let outcome = Outcome::Err("unknown tool: tool".to_owned(), ErrorType::ToolNotFound);
    let call = CallId::new("a");
    let back = ToolReturned {
        call,
        attempt: 1,
        outcome,
        ui: None,
        halt: None,
        changes: Vec::new(),
        input_request: None,
        effective_args: None,
    };
    story.then(Action::ToolReturned(back));
    assert_eq!(story.error("a"), json!(["unknown tool: tool", "TOOL_NOT_FOUND"]));
    assert_eq!(story.wanted(), ["model step 2 of turn_1"]);
}

#[test]
fn calls_in_one_lane_run_one_after_another_in_call_order() {
    let in_lane = |id: &str, gate: bool, name: &str| {
        let mut planned = call(id, Executor::Server, gate);
        if let crate::command::CallPlan::Execute { lane, .. } = &mut planned.plan {
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
    let mut story = Scenario::with_calls(calls);
    let first = ["attempt 1 of c", "attempt 1 of d", "attempt 1 of e"];
    assert_eq!(story.wanted(), first, "what waits for a person holds up nobody");
    story.then(approve("a", None));
    assert_eq!(story.wanted(), ["attempt 1 of a", "attempt 1 of d", "attempt 1 of e"]);
    story.then(returned("a", 1)).then(returned("c", 1));
    assert_eq!(story.wanted(), ["attempt 1 of b", "attempt 1 of d", "attempt 1 of e"]);
}
