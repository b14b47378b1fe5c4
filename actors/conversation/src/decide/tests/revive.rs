//! A conversation comes back after its actor died.

use serde_json::json;

use super::scenario::*;
use crate::command::Action;
use crate::event::{Event, EventData};
use crate::state::ConversationStatus;
use crate::{Rejection, State, replay};

/// The conversation with only the first `events` events written.
fn cut(scenario: &Scenario, events: usize) -> Scenario {
    let journal: Vec<Event> = scenario.journal[..events].to_vec();
    let state = replay(State::default(), &journal);
    Scenario { state, journal, at: scenario.at }
}

/// The number of events up to and including the first of this type.
fn upto(scenario: &Scenario, name: &str) -> usize {
    scenario.journal.iter().position(|event| kind(event) == name).unwrap() + 1
}

/// `reference/semantics.md#what-must-not-go-wrong` no. 3
#[test]
fn a_turn_killed_with_a_running_and_a_waiting_call_has_both_after_revival() {
    let mut scenario = Scenario::with_calls(vec![server("a"), gated("b")]);
    let waiting = scenario.state.pending_calls();
    assert_eq!(scenario.apply(Action::Revive).unwrap(), ["tool_started"]);
    assert_eq!(scenario.wanted(), ["attempt 2 of a"]);
    assert_eq!(scenario.state.pending_calls(), waiting);
    assert_eq!(scenario.apply(returned("a", 1)), Err(Rejection::Stale), "the dead run's");
    scenario.then(returned("a", 2)).then(approve("b", Some(1)));
    assert_eq!(scenario.wanted(), ["attempt 1 of b"]);
}

#[test]
fn every_revival_raises_the_attempt() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    for attempt in 2..5 {
        scenario.then(Action::Revive);
        assert_eq!(scenario.wanted(), [format!("attempt {attempt} of a")]);
    }
}

#[test]
fn a_run_that_must_not_happen_twice_ends_as_interrupted() {
    for approved in [false, true] {
        let planned = run_once(if approved { gated("a") } else { server("a") });
        let mut scenario = Scenario::with_calls(vec![planned]);
        if approved {
            scenario.then(approve("a", None));
        }
        assert_eq!(scenario.apply(Action::Revive).unwrap(), ["tool_result"]);
        assert_eq!(scenario.error("a"), json!(["tool call interrupted", "INTERRUPTED"]));
        assert_eq!(scenario.wanted(), ["model step 2 of turn_1"]);
    }
}

#[test]
fn a_waiting_call_that_must_not_run_twice_still_waits() {
    let mut scenario = Scenario::with_calls(vec![run_once(gated("a"))]);
    assert_eq!(scenario.apply(Action::Revive).unwrap(), [""; 0]);
    scenario.then(approve("a", None));
    assert_eq!(scenario.wanted(), ["attempt 1 of a"]);
}

/// `reference/semantics.md#what-must-not-go-wrong` no. 4
#[test]
fn an_approval_stands_when_the_node_dies_before_or_while_the_tool_runs() {
    let mut scenario = Scenario::with_calls(vec![gated("a")]);
    scenario.then(approve("a", None));
    let mut before = cut(&scenario, upto(&scenario, "resolution"));
    assert_eq!(before.apply(Action::Revive).unwrap(), ["tool_started"]);
    assert_eq!(before.wanted(), ["attempt 1 of a"]);
    let mut during = cut(&scenario, upto(&scenario, "tool_started"));
    assert_eq!(during.apply(Action::Revive).unwrap(), ["tool_started"]);
    assert_eq!(during.wanted(), ["attempt 2 of a"]);
    for mut revived in [before, during] {
        assert_eq!(revived.state.pending_calls(), []);
        assert!(not_open(revived.apply(approve("a", None))));
        assert_eq!(revived.state.turn.unwrap().calls[0].principal.as_str(), "boss");
    }
}

#[test]
fn a_denied_call_never_runs_wherever_its_denial_was_cut() {
    let mut scenario = Scenario::with_calls(vec![gated("a")]);
    scenario.then(deny("a", None));
    let mut back = cut(&scenario, upto(&scenario, "resolution"));
    assert_eq!(back.apply(Action::Revive).unwrap(), ["tool_result"]);
    assert_eq!(back.wanted(), ["model step 2 of turn_1"]);
}

/// `reference/semantics.md#what-must-not-go-wrong` no. 5
#[test]
fn a_turn_killed_after_an_acknowledged_answer_goes_on_by_itself() {
    let mut scenario = Scenario::with_calls(vec![human("a")]);
    scenario.then(answer("a", None, json!(1)));
    let mut back = cut(&scenario, scenario.journal.len());
    assert_eq!(back.apply(Action::Revive).unwrap(), [""; 0]);
    assert_eq!(back.wanted(), ["model step 2 of turn_1"]);
}

/// `reference/semantics.md#what-must-not-go-wrong` no. 1
#[test]
fn a_gated_client_call_revived_in_its_second_phase_is_still_in_it() {
    let mut scenario = Scenario::with_calls(vec![gated_client("a")]);
    scenario.then(approve("a", None));
    let waiting = scenario.state.pending_calls();
    let mut back = cut(&scenario, scenario.journal.len());
    assert_eq!(back.apply(Action::Revive).unwrap(), [""; 0]);
    assert_eq!(back.state.pending_calls(), waiting);
    assert_eq!(back.wanted(), ["page for a"]);
    assert!(not_open(back.apply(approve("a", None))));
    back.then(answer("a", Some(2), json!(1)));
}

#[test]
fn a_gated_client_call_killed_between_its_phases_enters_the_second_once() {
    let mut scenario = Scenario::with_calls(vec![gated_client("a")]);
    scenario.then(approve("a", None));
    for (last, events) in
        [("resolution", vec!["tool_started", "suspension"]), ("tool_started", vec!["suspension"])]
    {
        let mut back = cut(&scenario, upto(&scenario, last));
        assert_eq!(back.apply(Action::Revive).unwrap(), events);
        let pending = back.state.pending_calls();
        assert_eq!((pending.len(), pending[0].suspension), (1, 2));
        assert_eq!(back.apply(Action::Revive).unwrap(), [""; 0]);
    }
}

#[test]
fn a_call_that_was_named_and_never_handed_over_ends_as_interrupted() {
    let scenario = Scenario::with_calls(vec![server("a"), human("b"), gated("c")]);
    let mut back = cut(&scenario, upto(&scenario, "assistant_msg"));
    assert_eq!(back.state.status(), ConversationStatus::ExecutingTools);
    assert_eq!(back.apply(Action::Revive).unwrap(), ["tool_result"; 3]);
    for call in ["a", "b", "c"] {
        assert_eq!(back.error(call), json!(["tool call interrupted", "INTERRUPTED"]));
    }
}

#[test]
fn a_step_killed_in_mid_stream_is_run_again() {
    let mut scenario = Scenario::with_turn();
    assert_eq!(scenario.apply(Action::Revive).unwrap(), [""; 0]);
    assert_eq!(scenario.wanted(), ["model step 1 of turn_1"]);
}

/// `reference/semantics.md#what-must-not-go-wrong` no. 18
#[test]
fn a_revived_turn_runs_as_the_principal_who_started_it() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    scenario.then(Action::Revive);
    let turn = scenario.state.turn.as_ref().unwrap();
    assert_eq!((turn.principal.as_str(), turn.calls[0].principal.as_str()), ("user", "user"));
    scenario.then(returned("a", 2));
    scenario.reply(vec![server("b")]).unwrap();
    assert_eq!(scenario.state.turn.unwrap().calls[0].principal.as_str(), "user");
}

/// `reference/semantics.md#what-must-not-go-wrong` no. 18, for expiry: no
/// principal is named as the one who answered.
#[test]
fn an_expiry_is_nobodys_resolution() {
    let mut scenario = Scenario::with_calls(vec![gated("a")]);
    scenario.advance(TIMEOUT_MS).then(Action::Wake);
    let resolved = |event: &Event| matches!(event.data, EventData::Resolution(_));
    assert!(!scenario.journal.iter().any(resolved));
    assert_eq!(scenario.state.turn.unwrap().calls[0].principal.as_str(), "user");
}

#[test]
fn a_turn_killed_at_its_last_step_is_halted_when_it_comes_back() {
    let mut scenario = Scenario::with_turn();
    for n in 0..5 {
        scenario.reply(vec![server(&format!("c{n}"))]).unwrap();
        scenario.then(returned(&format!("c{n}"), 1));
    }
    let mut back = cut(&scenario, scenario.journal.len() - 1);
    assert_eq!(back.apply(Action::Revive).unwrap(), ["turn_ended"]);
    assert_eq!(back.turn_ends(), [("halted".to_owned(), Some("max_steps".to_owned()))]);
}

#[test]
fn an_idle_conversation_revives_to_nothing() {
    let mut scenario = Scenario::with_turn();
    scenario.reply(vec![]).unwrap();
    assert_eq!(scenario.apply(Action::Revive).unwrap(), [""; 0]);
    assert_eq!(Scenario::empty().apply(Action::Revive), Err(Rejection::NotFound));
}
