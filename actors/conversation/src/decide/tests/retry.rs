//! An attempt that failed is followed by another one, at its time and wherever the actor lives then.

use serde_json::json;

use super::scenario::*;
use crate::command::{Action, AttemptFailed, CallPlan, PlannedCall};
use crate::event::{CallKind, EventData, OnInterrupt};
use crate::state::ConversationStatus;
use crate::{Attempt, CallId, Rejection};

const NOTHING: [&str; 0] = [];

fn failed(scenario: &Scenario, call: &str, attempt: u32, in_ms: i64) -> Action {
    Action::AttemptFailed(AttemptFailed {
        call: CallId::new(call),
        attempt: Attempt::new(attempt),
        error: "the tool answered 503".to_owned(),
        retry_at: scenario.after(in_ms),
    })
}

/// The call, in a lane that others share.
fn in_lane(mut planned: PlannedCall) -> PlannedCall {
    if let CallPlan::Execute { kind: CallKind::Server { lane, .. }, .. } = &mut planned.plan {
        *lane = Some("file".to_owned());
    }
    planned
}

#[test]
fn the_next_attempt_begins_at_its_time_and_nothing_runs_before() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    let action = failed(&scenario, "a", 1, 1_000);
    assert_eq!(scenario.apply(action).unwrap(), ["tool_attempt_failed"]);
    assert_eq!(scenario.wanted(), NOTHING);
    assert_eq!(scenario.state.alarm(), Some(scenario.after(1_000)));
    assert_eq!(scenario.state.status(), ConversationStatus::ExecutingTools);
    assert!(!scenario.state.rests(), "it goes on by itself");
    scenario.advance(999);
    assert_eq!(scenario.apply(Action::Wake).unwrap(), NOTHING);
    scenario.advance(1);
    assert_eq!(scenario.apply(Action::Wake).unwrap(), ["tool_started"]);
    assert_eq!(scenario.wanted(), ["attempt 2 of a"]);
    assert_eq!(scenario.state.call(&CallId::new("a")).unwrap().failed_attempts, 1);
    assert_eq!(scenario.apply(returned("a", 1)), Err(Rejection::Stale));
    assert_eq!(scenario.apply(returned("a", 2)).unwrap(), ["tool_result"]);
}

#[test]
fn a_new_actor_waits_on_and_begins_an_attempt_that_is_late() {
    let mut scenario = Scenario::with_calls(vec![run_once(server("a"))]);
    scenario.then(failed(&scenario, "a", 1, 1_000));
    assert_eq!(scenario.state.uninterruptible(), []);
    assert_eq!(scenario.apply(Action::Revive).unwrap(), NOTHING);
    scenario.advance(5_000);
    assert_eq!(scenario.apply(Action::Revive).unwrap(), ["tool_started"]);
    assert_eq!(scenario.wanted(), ["attempt 2 of a"]);
}

#[test]
fn an_operator_need_not_wait_for_the_time() {
    let mut scenario = Scenario::with_calls(vec![server("a"), server("b")]);
    scenario.then(super::dispatch::dispatch("d", OnInterrupt::Fail));
    scenario.then(failed(&scenario, "a", 1, 1_000));
    scenario.then(failed(&scenario, "d", 1, 1_000));
    let events = scenario.apply(Action::AttemptNow).unwrap();
    assert_eq!(events, ["tool_started", "dispatch_started"]);
    assert_eq!(scenario.wanted(), ["attempt 2 of a", "attempt 1 of b", "attempt 2 of d"]);
    assert_eq!(scenario.apply(Action::AttemptNow).unwrap(), NOTHING);
}

#[test]
fn a_late_report_of_a_failure_changes_nothing() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    let action = failed(&scenario, "a", 2, 1_000);
    assert_eq!(scenario.apply(action), Err(Rejection::Stale));
    scenario.then(failed(&scenario, "a", 1, 1_000));
    let action = failed(&scenario, "a", 1, 1_000);
    assert_eq!(scenario.apply(action), Err(Rejection::Stale), "it was reported");
    let action = failed(&scenario, "other", 1, 1_000);
    assert_eq!(scenario.apply(action), Err(Rejection::Stale));
}

#[test]
fn a_call_that_waits_for_its_next_attempt_ends_with_its_turn() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    scenario.then(failed(&scenario, "a", 1, 1_000));
    scenario.then(cancel());
    assert_eq!(scenario.error("a"), json!(["[cancelled]", "CANCELLED"]));
    assert_eq!(scenario.state.alarm(), None);
    scenario.advance(5_000);
    assert_eq!(scenario.apply(Action::Wake).unwrap(), NOTHING);
}

#[test]
fn a_lane_stays_taken_while_its_first_call_waits_for_its_next_attempt() {
    let calls = vec![in_lane(server("a")), in_lane(server("b"))];
    let mut scenario = Scenario::with_calls(calls);
    assert_eq!(scenario.wanted(), ["attempt 1 of a"]);
    scenario.then(failed(&scenario, "a", 1, 1_000));
    assert_eq!(scenario.wanted(), NOTHING);
    scenario.advance(1_000).then(Action::Wake).then(returned("a", 2));
    assert_eq!(scenario.wanted(), ["attempt 1 of b"]);
}

#[test]
fn a_dispatch_is_attempted_again_too() {
    let mut scenario = Scenario::with_turn();
    scenario.then(super::dispatch::dispatch("d", OnInterrupt::Fail));
    scenario.then(failed(&scenario, "d", 1, 1_000));
    assert_eq!(scenario.wanted(), ["model step 1 of turn_1"]);
    assert_eq!(scenario.apply(Action::Revive).unwrap(), NOTHING);
    scenario.advance(1_000);
    assert_eq!(scenario.apply(Action::Wake).unwrap(), ["dispatch_started"]);
    assert_eq!(scenario.wanted(), ["model step 1 of turn_1", "attempt 2 of d"]);
    scenario.then(failed(&scenario, "d", 2, 1_000));
    assert_eq!(scenario.state.dispatches[&CallId::new("d")].failed_attempts, 2);
    scenario.advance(1_000);
    assert_eq!(scenario.apply(Action::Revive).unwrap(), ["dispatch_started"]);
    scenario.then(returned("d", 3));
    assert!(matches!(scenario.journal.last().unwrap().data, EventData::DispatchFinished(_)));
}

#[test]
fn an_older_program_takes_the_wait_for_an_attempt_that_runs() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    scenario.then(failed(&scenario, "a", 1, 1_000));
    let stored = serde_json::to_value(&scenario.state.turn.as_ref().unwrap().calls[0]).unwrap();
    assert_eq!(stored["phase"]["running"]["attempt"], 1);
    assert_eq!(stored["retry"]["error"], "the tool answered 503");
}
