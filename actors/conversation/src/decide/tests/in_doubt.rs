//! A call that was cut off, and whose tool asks then: a person says what becomes of it.

use serde_json::json;

use super::scenario::*;
use super::voters::voted_by;
use crate::approval::{ApprovalPolicy, VoteRefusal};
use crate::command::Action;
use crate::event::{EventData, OnInterrupt, SuspensionKind};
use crate::{Attempt, CallId, Rejection};

const NOTHING: [&str; 0] = [];

/// A call whose first attempt was cut off on `node-1`.
fn in_doubt(policy: Option<ApprovalPolicy>) -> Scenario {
    let mut scenario = Scenario::with_calls(vec![asking(server("a"), policy)]);
    scenario.advance(100);
    let events = scenario.apply(Action::ReviveAfter("node-1".to_owned())).unwrap();
    assert_eq!(events, ["suspension"]);
    scenario
}

#[test]
fn a_call_that_was_cut_off_waits_with_what_is_known_of_it() {
    let scenario = in_doubt(None);
    assert_eq!(scenario.wanted(), NOTHING);
    let pending = scenario.state.pending_calls().remove(0);
    assert_eq!((pending.kind, pending.suspension), (SuspensionKind::InDoubt, 1));
    assert_eq!(pending.expires_at, scenario.after(TIMEOUT_MS));
    let doubt = serde_json::to_value(pending.doubt.unwrap()).unwrap();
    assert_eq!((&doubt["attempt"], &doubt["node"]), (&json!(1), &json!("node-1")));
    assert_eq!((&doubt["reason"], pending.votes), (&json!("interrupted"), None));
}

#[test]
fn it_runs_again_as_the_next_attempt_if_a_person_says_so() {
    let mut scenario = in_doubt(None);
    assert_eq!(scenario.apply(again("a", None)).unwrap(), ["resolution", "tool_started"]);
    assert_eq!(scenario.wanted(), ["attempt 2 of a"]);
    assert_eq!(scenario.apply(Action::Revive).unwrap(), ["suspension"], "it is in doubt again");
    let pending = scenario.state.pending_calls().remove(0);
    assert_eq!(pending.suspension, 2);
    assert_eq!(pending.doubt.unwrap().attempt, Attempt::new(2));
    scenario.then(again("a", None)).then(returned("a", 3));
    assert_eq!(scenario.wanted(), ["model step 2 of turn_1"]);
}

#[test]
fn it_ends_with_the_result_or_the_error_that_a_person_gives() {
    let mut scenario = in_doubt(None);
    assert_eq!(
        scenario.apply(answer("a", Some(1), json!({"paid": true}))).unwrap(),
        ["resolution", "tool_result"]
    );
    assert_eq!(scenario.wanted(), ["model step 2 of turn_1"]);
    let mut scenario = in_doubt(None);
    scenario.then(answer_error("a", "it was not paid"));
    assert_eq!(scenario.error("a"), json!(["it was not paid", "TOOL_ERROR"]));
    assert!(not_open(scenario.apply(again("a", None))));
}

#[test]
fn an_approval_is_no_answer_to_it_and_a_retry_answers_nothing_else() {
    let mut scenario = in_doubt(None);
    assert!(not_open(scenario.apply(approve("a", None))));
    for call in [human("b"), client("b"), gated("b")] {
        let mut scenario = Scenario::with_calls(vec![call]);
        assert!(not_open(scenario.apply(again("b", None))));
    }
}

#[test]
fn it_expires_with_an_error_that_says_that_nobody_knows() {
    let mut scenario = in_doubt(None);
    scenario.advance(TIMEOUT_MS);
    assert_eq!(scenario.apply(Action::Wake).unwrap(), ["tool_result"]);
    assert_eq!(scenario.error("a")[1], "EXPIRED");
    assert!(scenario.error("a")[0].as_str().unwrap().contains("nobody knows whether it ran"));
}

#[test]
fn only_whoever_the_tool_lets_approve_it_says_what_becomes_of_it() {
    let policy = ApprovalPolicy { quorum: 2, ..ApprovalPolicy::default() };
    let of_finance = ApprovalPolicy { groups: ["finance".to_owned()].into(), ..policy.clone() };
    let mut scenario = in_doubt(Some(of_finance));
    let refused = scenario.apply(voted_by("ada", again("a", None)));
    assert_eq!(refused, Err(Rejection::VoteRefused(VoteRefusal::Role)));
    let mut scenario = in_doubt(Some(policy));
    let events = scenario.apply(voted_by("ada", again("a", None))).unwrap();
    assert_eq!(events, ["resolution", "tool_started"], "one is enough");
}

#[test]
fn an_answer_cut_off_from_its_attempt_begins_it_when_it_is_revived() {
    let mut scenario = in_doubt(None);
    scenario.then(again("a", None));
    let whole = scenario.journal.clone();
    let state = crate::replay(crate::State::default(), &whole[..whole.len() - 1]);
    let mut cut = Scenario { state, journal: whole[..whole.len() - 1].to_vec(), at: scenario.at };
    assert_eq!(cut.apply(Action::Revive).unwrap(), ["tool_started"]);
    assert_eq!(cut.wanted(), ["attempt 2 of a"]);
}

#[test]
fn a_connection_that_broke_leaves_a_call_in_doubt_once() {
    let mut scenario = Scenario::with_calls(vec![asking(server("a"), None)]);
    let broke = || Action::ConnectionBroke { call: CallId::new("a"), attempt: Attempt::FIRST };
    assert_eq!(scenario.apply(broke()).unwrap(), ["suspension"]);
    assert_eq!(scenario.apply(broke()), Err(Rejection::Stale));
}

#[test]
fn an_older_program_never_runs_it_twice() {
    let scenario = Scenario::with_calls(vec![asking(server("a"), None)]);
    assert_eq!(scenario.state.uninterruptible(), [CallId::new("a")]);
    let planned = scenario.journal.iter().find_map(|event| match &event.data {
        EventData::ToolCall(planned) => Some(serde_json::to_value(planned).unwrap()),
        _ => None,
    });
    let planned = planned.unwrap();
    assert_eq!((&planned["on_interrupt"], &planned["in_doubt"]), (&json!("fail"), &json!({})));
}

#[test]
fn a_dispatch_ends_as_interrupted_because_its_caller_is_gone() {
    let mut scenario = Scenario::with_turn();
    scenario.then(super::dispatch::dispatch("d", OnInterrupt::Ask));
    assert_eq!(scenario.apply(Action::Revive).unwrap(), ["dispatch"]);
}
