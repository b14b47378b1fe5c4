//! Calls that workers and tools that call back carry out: one result each, whoever dies.

use serde_json::{Value, json};

use super::random_driver::Roll;
use super::scenario::*;
use super::wake::lasting;
use crate::command::{
    Action, AwaitCallback, CompleteCall, ExtendLease, ExternalAction, LeaseCall, Proof, QueueCall,
};
use crate::event::OnInterrupt;
use crate::message::{ErrorType, Outcome};
use crate::state::Call;
use crate::{Attempt, CallId, LeaseId, QueueName, Rejection, State, TurnId};

const LEASE_MS: i64 = 10_000;

pub(super) fn queue(call: &str, attempt: u32) -> Action {
    queue_with(call, attempt, OnInterrupt::Redispatch)
}

fn queue_with(call: &str, attempt: u32, on_interrupt: OnInterrupt) -> Action {
    Action::External(ExternalAction::Queue(QueueCall {
        call: CallId::new(call),
        attempt: Attempt::new(attempt),
        queue: QueueName::new("mail"),
        on_interrupt,
        effective_args: None,
    }))
}

pub(super) fn await_callback(call: &str, attempt: u32) -> Action {
    let (call, attempt) = (CallId::new(call), Attempt::new(attempt));
    let wait = AwaitCallback { call, attempt, effective_args: None };
    Action::External(ExternalAction::AwaitCallback(wait))
}

pub(super) fn lease(call: &str, attempt: u32, lease: &str) -> Action {
    Action::External(ExternalAction::Lease(LeaseCall {
        call: CallId::new(call),
        attempt: Attempt::new(attempt),
        queue: QueueName::new("mail"),
        lease: LeaseId::new(lease),
        worker: "w".to_owned(),
        for_ms: LEASE_MS as u64,
    }))
}

pub(super) fn extend(call: &str, lease: &str, for_ms: u64) -> Action {
    let (call, lease) = (CallId::new(call), LeaseId::new(lease));
    Action::External(ExternalAction::Extend(ExtendLease { call, lease, for_ms }))
}

pub(super) fn complete(call: &str, proof: Proof, outcome: Outcome) -> Action {
    let call = CallId::new(call);
    let complete = CompleteCall { call, proof, outcome, ui: None, halt: None };
    Action::External(ExternalAction::Complete(Box::new(complete)))
}

pub(super) fn by_lease(call: &str, lease: &str) -> Action {
    complete(call, Proof::Lease(LeaseId::new(lease)), Outcome::Ok(json!("done")))
}

pub(super) fn by_callback(call: &str, turn: &str, attempt: u32) -> Action {
    let proof = Proof::Callback { turn: TurnId::new(turn), attempt: Attempt::new(attempt) };
    complete(call, proof, Outcome::Ok(json!("done")))
}

/// What a worker or a callback does about some call, rightly or wrongly.
pub(super) fn random(state: &State, roll: Roll) -> Action {
    let calls = state.turn.iter().flat_map(|turn| &turn.calls);
    let known: Vec<_> = calls.filter_map(|call| Some((call, call.external_run()?))).collect();
    let Some(place) = usize::from(roll.which).checked_rem(known.len()) else {
        return lease("nobody", 1, "l");
    };
    let (call, run) = known[place];
    let (id, attempt) = (call.id.as_str(), run.attempt.get());
    let turn = state.turn.as_ref().map_or("none", |turn| turn.id.as_str());
    let lease_id = run.lease().map_or("none", |lease| lease.id.as_str());
    match roll.how % 8 {
        0..=2 => lease(id, attempt, &format!("l{}", roll.ms)),
        3 => extend(id, lease_id, u64::from(roll.ms) * 100),
        4 => by_lease(id, "wrong"),
        5 => by_callback(id, turn, attempt),
        _ => by_lease(id, lease_id),
    }
}

/// A conversation whose call `a` waits in the queue, as attempt 1.
fn with_queued() -> Scenario {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    assert_eq!(scenario.apply(queue("a", 1)).unwrap(), ["tool_queued"]);
    scenario
}

fn waiting(scenario: &Scenario) -> Vec<(String, u32)> {
    let calls = scenario.state.turn.iter().flat_map(|turn| &turn.calls);
    let entries = calls.filter_map(Call::queue_entry);
    entries.map(|entry| (entry.call.to_string(), entry.attempt.get())).collect()
}

fn lost(applied: Applied) -> bool {
    matches!(applied, Err(Rejection::LeaseLost(_)))
}

fn not_open(applied: Applied) -> bool {
    matches!(applied, Err(Rejection::CallNotOpen(_)))
}

fn result(scenario: &Scenario, call: &str) -> Value {
    let outcome = scenario.result(call).unwrap().outcome;
    serde_json::to_value(outcome).unwrap()["result"].clone()
}

#[test]
fn a_call_in_a_queue_wants_nothing_here_and_survives_revivals() {
    let mut scenario = with_queued();
    assert_eq!(scenario.wanted(), [""; 0]);
    assert_eq!(waiting(&scenario), [("a".to_owned(), 1)]);
    assert_eq!(scenario.apply(Action::Revive).unwrap(), [""; 0]);
    scenario.then(lease("a", 1, "l1"));
    assert_eq!(scenario.apply(Action::Revive).unwrap(), [""; 0]);
    assert_eq!(waiting(&scenario), []);
    assert_eq!(scenario.apply(by_lease("a", "l1")).unwrap(), ["tool_result"]);
    assert_eq!(result(&scenario, "a"), json!("done"));
    assert_eq!(scenario.wanted(), ["model step 2 of turn_1"]);
}

#[test]
fn a_call_is_leased_to_one_worker_at_a_time() {
    let mut scenario = with_queued();
    assert!(lost(scenario.apply(lease("a", 2, "l1"))));
    scenario.then(lease("a", 1, "l1"));
    assert!(lost(scenario.apply(lease("a", 1, "l2"))));
    assert!(lost(scenario.apply(by_lease("a", "l2"))));
    scenario.then(by_lease("a", "l1"));
    assert!(lost(scenario.apply(by_lease("a", "l1"))), "a second completion is late");
    assert!(lost(scenario.apply(lease("a", 1, "l3"))));
}

#[test]
fn a_lease_that_runs_out_makes_the_call_wait_as_the_next_attempt() {
    let mut scenario = with_queued();
    let expires_at = scenario.after(TIMEOUT_MS);
    scenario.then(lease("a", 1, "l1"));
    let until = scenario.after(LEASE_MS);
    assert_eq!(scenario.state.alarm(), Some(until));
    scenario.at = until;
    assert!(lost(scenario.apply(by_lease("a", "l1"))), "the time decides, not the alarm");
    assert_eq!(scenario.apply(Action::Wake).unwrap(), ["tool_queued"]);
    assert_eq!(waiting(&scenario), [("a".to_owned(), 2)]);
    assert_eq!(scenario.state.alarm(), Some(expires_at), "the call has no more time than before");
    scenario.then(lease("a", 2, "l2")).then(by_lease("a", "l2"));
    assert_eq!(result(&scenario, "a"), json!("done"));
}

#[test]
fn a_call_that_must_not_run_twice_ends_with_its_lease() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    scenario.then(queue_with("a", 1, OnInterrupt::Fail)).then(lease("a", 1, "l1"));
    scenario.advance(LEASE_MS);
    assert_eq!(scenario.apply(Action::Wake).unwrap(), ["tool_result"]);
    let why = "tool call interrupted: the worker's lease ran out";
    assert_eq!(scenario.error("a"), json!([why, "INTERRUPTED"]));
}

#[test]
fn leases_that_run_out_again_and_again_end_the_call() {
    let mut scenario = Scenario::with_calls(vec![lasting(server("a"), u64::MAX)]);
    scenario.then(queue("a", 1));
    for attempt in 1..=100 {
        scenario.then(lease("a", attempt, "l")).advance(LEASE_MS).then(Action::Wake);
    }
    assert_eq!(scenario.error("a"), json!(["the leases of 100 attempts ran out", "INTERRUPTED"]));
}

#[test]
fn a_lease_is_extended_up_to_the_deadline_of_the_call() {
    let mut scenario = with_queued();
    let expires_at = scenario.after(TIMEOUT_MS);
    scenario.then(lease("a", 1, "l1"));
    assert_eq!(scenario.apply(extend("a", "l1", 10_500)).unwrap(), [""; 0], "it gains too little");
    assert_eq!(scenario.apply(extend("a", "l1", 1)).unwrap(), [""; 0], "it never shrinks");
    assert_eq!(scenario.apply(extend("a", "l1", 30_000)).unwrap(), ["tool_leased"]);
    assert_eq!(scenario.state.alarm(), Some(scenario.after(30_000)));
    assert!(lost(scenario.apply(extend("a", "l2", 30_000))));
    scenario.then(extend("a", "l1", u64::MAX));
    assert_eq!(scenario.state.alarm(), Some(expires_at));
    scenario.at = expires_at;
    assert!(lost(scenario.apply(extend("a", "l1", 30_000))));
    scenario.then(Action::Wake);
    assert_eq!(scenario.error("a"), json!(["timed out: no response", "EXPIRED"]));
}

#[test]
fn a_call_that_no_worker_takes_expires() {
    let mut scenario = with_queued();
    scenario.advance(TIMEOUT_MS);
    assert!(lost(scenario.apply(lease("a", 1, "l1"))));
    scenario.then(Action::Wake);
    assert_eq!(scenario.error("a"), json!(["timed out: no response", "EXPIRED"]));
}

#[test]
fn a_cancelled_turn_takes_the_call_from_its_worker() {
    let mut scenario = with_queued();
    scenario.then(lease("a", 1, "l1")).then(cancel());
    assert!(lost(scenario.apply(extend("a", "l1", 30_000))));
    assert!(lost(scenario.apply(by_lease("a", "l1"))));
    assert_eq!(scenario.error("a"), json!(["[cancelled]", "CANCELLED"]));
    assert_eq!(scenario.state.alarm(), None);
}

#[test]
fn a_callback_counts_once_also_before_the_answer_202() {
    for comes_first in [true, false] {
        let mut scenario = Scenario::with_calls(vec![server("a"), server("b")]);
        if !comes_first {
            scenario.then(await_callback("a", 1));
            assert_eq!(scenario.apply(Action::Revive).unwrap(), ["tool_started"], "only b runs");
        }
        for (turn, attempt) in [("turn_2", 1), ("turn_1", 2)] {
            assert!(not_open(scenario.apply(by_callback("a", turn, attempt))), "{turn} {attempt}");
        }
        assert_eq!(scenario.apply(by_callback("a", "turn_1", 1)).unwrap(), ["tool_result"]);
        assert!(not_open(scenario.apply(by_callback("a", "turn_1", 1))));
        assert_eq!(scenario.apply(await_callback("a", 1)), Err(Rejection::Stale));
        assert_eq!(result(&scenario, "a"), json!("done"));
    }
}

#[test]
fn a_callback_of_an_earlier_attempt_counts() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    scenario.then(Action::Revive).then(await_callback("a", 2));
    scenario.then(by_callback("a", "turn_1", 1));
    assert_eq!(result(&scenario, "a"), json!("done"));
}

#[test]
fn a_callback_that_does_not_come_in_time_expires_the_call() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    scenario.then(await_callback("a", 1)).advance(TIMEOUT_MS);
    assert!(not_open(scenario.apply(by_callback("a", "turn_1", 1))));
    scenario.then(Action::Wake);
    assert_eq!(scenario.error("a"), json!(["timed out: no response", "EXPIRED"]));
}

#[test]
fn neither_proof_stands_for_the_other() {
    let mut scenario = Scenario::with_calls(vec![server("a"), server("b")]);
    scenario.then(queue("a", 1)).then(await_callback("b", 1)).then(lease("a", 1, "l1"));
    assert!(not_open(scenario.apply(by_callback("a", "turn_1", 1))));
    assert!(lost(scenario.apply(by_lease("b", "l1"))));
    assert!(lost(scenario.apply(lease("b", 1, "l2"))));
}

#[test]
fn a_worker_may_fail_the_call_or_halt_the_turn() {
    let mut scenario = with_queued();
    scenario.then(lease("a", 1, "l1"));
    let error = Outcome::Err("no such address".to_owned(), ErrorType::ToolError);
    scenario.then(complete("a", Proof::Lease(LeaseId::new("l1")), error));
    assert_eq!(scenario.error("a"), json!(["no such address", "TOOL_ERROR"]));
    let mut scenario = with_queued();
    scenario.then(lease("a", 1, "l1"));
    let Action::External(ExternalAction::Complete(mut halting)) = by_lease("a", "l1") else {
        unreachable!("it is a completion")
    };
    halting.halt = Some("enough".to_owned());
    scenario.then(Action::External(ExternalAction::Complete(halting)));
    assert_eq!(scenario.turn_ends(), [("halted".to_owned(), Some("enough".to_owned()))]);
}

#[test]
fn an_operator_fails_a_call_that_nobody_takes() {
    let mut scenario = with_queued();
    scenario.then(fail("a"));
    assert!(scenario.result("a").is_some());
    assert_eq!(waiting(&scenario), []);
}
