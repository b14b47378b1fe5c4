//! A suspension has one absolute deadline, whichever node dies meanwhile.

use serde_json::json;

use super::scenario::*;
use crate::command::{Action, CallPlan, PlannedCall};
use crate::state::ConversationStatus;
use crate::{Rejection, Timestamp};

pub(super) fn lasting(mut planned: PlannedCall, ms: u64) -> PlannedCall {
    if let CallPlan::Execute { timeout_ms, .. } = &mut planned.plan {
        *timeout_ms = ms;
    }
    planned
}

/// `reference/semantics.md#what-must-not-go-wrong` no. 6
#[test]
fn a_deadline_that_passed_while_no_actor_lived_expires_the_call_and_the_turn_goes_on() {
    let mut scenario = Scenario::with_calls(vec![human("a")]);
    scenario.advance(10 * TIMEOUT_MS).then(Action::Revive);
    assert!(scenario.state.alarm().unwrap() < scenario.at, "the alarm is due");
    assert_eq!(scenario.apply(Action::Wake).unwrap(), ["tool_result"]);
    assert_eq!(scenario.error("a"), json!(["timed out: no response", "EXPIRED"]));
    assert_eq!(scenario.wanted(), ["model step 2 of turn_1"]);
    assert_eq!(scenario.state.status(), ConversationStatus::Preparing);
}

/// `reference/semantics.md#what-must-not-go-wrong` no. 7
#[test]
fn a_revival_does_not_give_a_call_its_full_time_again() {
    let mut scenario =
        Scenario::with_calls(vec![gated("a"), human("b"), client("c"), gated_client("d")]);
    let deadline = scenario.after(TIMEOUT_MS);
    for _ in 0..3 {
        scenario.advance(TIMEOUT_MS / 4).then(Action::Revive);
        assert!(
            scenario.state.pending_calls().iter().all(|pending| pending.expires_at == deadline)
        );
    }
    scenario.at = deadline;
    scenario.then(Action::Wake);
    for call in ["a", "b", "c", "d"] {
        assert_eq!(scenario.error(call), json!(["timed out: no response", "EXPIRED"]));
    }
}

#[test]
fn a_revival_keeps_the_second_phases_deadline_too() {
    let mut scenario = Scenario::with_calls(vec![gated_client("a")]);
    scenario.advance(1_000).then(approve("a", None));
    let second = scenario.after(TIMEOUT_MS);
    scenario.advance(1_000).then(Action::Revive);
    assert_eq!(scenario.state.alarm(), Some(second));
}

/// `reference/semantics.md#what-must-not-go-wrong` no. 9
#[test]
fn a_timer_of_the_first_phase_never_ends_the_second() {
    let mut scenario = Scenario::with_calls(vec![gated_client("a")]);
    let first = scenario.after(TIMEOUT_MS);
    scenario.advance(TIMEOUT_MS - 1).then(approve("a", None));
    let second = scenario.after(TIMEOUT_MS);
    assert_eq!(scenario.state.alarm(), Some(second));
    scenario.at = first;
    assert_eq!(scenario.apply(Action::Wake).unwrap(), [""; 0]);
    assert_eq!(scenario.phase("a"), "suspended");
    scenario.at = second;
    assert_eq!(scenario.apply(Action::Wake).unwrap(), ["tool_result"]);
}

#[test]
fn an_alarm_that_rings_early_or_twice_is_harmless() {
    let mut scenario = Scenario::with_calls(vec![human("a")]);
    scenario.advance(TIMEOUT_MS - 1);
    assert_eq!(scenario.apply(Action::Wake).unwrap(), [""; 0]);
    assert_eq!(scenario.advance(1).apply(Action::Wake).unwrap(), ["tool_result"]);
    assert_eq!(scenario.apply(Action::Wake).unwrap(), [""; 0]);
}

#[test]
fn only_what_is_past_its_deadline_expires() {
    let calls = vec![lasting(human("a"), 10), server("s"), lasting(human("b"), 20)];
    let mut scenario = Scenario::with_calls(calls);
    scenario.advance(10).then(Action::Wake);
    assert!(scenario.result("a").is_some());
    assert_eq!((scenario.phase("s"), scenario.phase("b")), ("running".into(), "suspended".into()));
    assert_eq!(scenario.state.alarm(), Some(scenario.after(10)));
}

#[test]
fn an_answer_at_the_deadline_is_late_even_before_the_alarm_rings() {
    let mut scenario = Scenario::with_calls(vec![gated("a"), human("b")]);
    scenario.advance(TIMEOUT_MS);
    assert!(not_open(scenario.apply(approve("a", None))));
    assert!(not_open(scenario.apply(answer("b", None, json!(1)))));
    assert_eq!(scenario.state.pending_calls().len(), 2);
}

#[test]
fn an_answer_just_before_the_deadline_counts() {
    let mut scenario = Scenario::with_calls(vec![gated("a"), human("b")]);
    scenario.advance(TIMEOUT_MS - 1).then(approve("a", None)).then(answer("b", None, json!(1)));
    assert_eq!(scenario.state.pending_calls(), []);
}

#[test]
fn a_run_that_was_approved_no_longer_expires() {
    let mut scenario = Scenario::with_calls(vec![gated("a")]);
    scenario.then(approve("a", None)).advance(10 * TIMEOUT_MS).then(Action::Wake);
    assert_eq!(scenario.wanted(), ["attempt 1 of a"]);
}

#[test]
fn a_timeout_beyond_the_end_of_time_ends_there() {
    let scenario = Scenario::with_calls(vec![lasting(human("a"), u64::MAX)]);
    assert_eq!(scenario.state.alarm(), Some(Timestamp::MAX));
}

#[test]
fn a_wake_of_a_conversation_that_is_gone_finds_nothing() {
    assert_eq!(Scenario::empty().apply(Action::Wake), Err(Rejection::NotFound));
}
