//! An operator gives up on a call, whatever it waits for.

use serde_json::{Value, json};

use super::dispatch::dispatch;
use super::scenario::*;
use crate::Rejection;
use crate::command::{Action, Dispatch};
use crate::event::{EventData, OnInterrupt, Resolution};
use crate::permission::Decision;
use crate::{CallId, Principal, Revision};

fn gave_up() -> Value {
    json!(["given up", "TOOL_ERROR"])
}

fn resolutions(scenario: &Scenario) -> Vec<Resolution> {
    let resolution = |data: &EventData| match data {
        EventData::Resolution(resolution) => Some(resolution.clone()),
        _ => None,
    };
    scenario.journal.iter().filter_map(|event| resolution(&event.data)).collect()
}

#[test]
fn a_call_that_waits_is_failed_by_an_operator_and_the_turn_goes_on() {
    for planned in [gated("a"), human("a"), client("a"), gated_client("a")] {
        let mut scenario = Scenario::with_calls(vec![planned]);
        assert_eq!(scenario.apply(fail("a")).unwrap(), ["operated", "resolution", "tool_result"]);
        assert_eq!(scenario.error("a"), gave_up());
        let closed = &resolutions(&scenario)[0];
        assert_eq!((closed.by.as_str(), closed.approved), ("operator", None));
        assert_eq!(closed.reason.as_deref(), Some("given up"));
        assert_eq!((scenario.state.pending_calls(), scenario.state.alarm()), (vec![], None));
        assert_eq!(scenario.wanted(), ["model step 2 of turn_1"]);
        assert!(not_open(scenario.apply(approve("a", None))), "nobody answers it any more");
    }
}

#[test]
fn a_call_that_runs_is_failed_and_its_tool_reports_to_nobody() {
    let mut scenario = Scenario::with_calls(vec![server("a"), human("b")]);
    assert_eq!(scenario.apply(fail("a")).unwrap(), ["operated", "tool_result"]);
    assert_eq!(scenario.error("a"), gave_up());
    assert_eq!(scenario.wanted(), [""; 0], "the other call is still open");
    assert_eq!(scenario.apply(returned("a", 1)), Err(Rejection::Stale));
    scenario.then(answer("b", None, json!(1)));
    assert_eq!(scenario.wanted(), ["model step 2 of turn_1"]);
}

#[test]
fn a_call_that_has_its_result_is_not_failed() {
    let mut scenario = Scenario::with_calls(vec![server("a"), human("b")]);
    scenario.then(returned("a", 1)).then(fail("b"));
    for call in ["a", "b", "nobody"] {
        assert!(not_open(scenario.apply(fail(call))), "{call}");
    }
    for action in [fail("a"), approve("a", None)] {
        assert_eq!(Scenario::empty().apply(action), Err(Rejection::NotFound));
    }
}

#[test]
fn a_call_that_its_child_has_is_failed_and_the_child_is_stopped() {
    for takes_it_up in [false, true] {
        let mut scenario = Scenario::with_calls(vec![with_child("a", "x")]);
        if takes_it_up {
            scenario.then(child_started("a", 1));
        }
        assert_eq!(scenario.apply(fail("a")).unwrap(), ["operated", "tool_result"]);
        assert_eq!(scenario.wanted(), ["model step 2 of turn_1", "release of kid_x"]);
        assert_eq!(scenario.apply(child_ended("a", "kid_x")), Err(Rejection::Stale));
    }
}

#[test]
fn a_call_past_its_time_expires_whoever_comes() {
    let mut scenario = Scenario::with_calls(vec![human("a")]);
    assert_eq!(scenario.advance(TIMEOUT_MS).apply(fail("a")).unwrap(), ["tool_result"]);
    assert_eq!(scenario.error("a"), json!(["timed out: no response", "EXPIRED"]));
    assert!(not_open(scenario.apply(fail("a"))));
}

#[test]
fn a_call_that_was_approved_and_asked_again_is_failed_once() {
    let mut scenario = Scenario::with_calls(vec![gated_client("a")]);
    scenario.then(approve("a", None)).then(fail("a"));
    assert_eq!(scenario.error("a"), gave_up());
    let closed: Vec<_> = resolutions(&scenario).iter().map(|one| one.suspension).collect();
    assert_eq!(closed, [1, 2]);
}

#[test]
fn a_dispatched_call_is_failed_and_whoever_asked_is_answered() {
    let mut scenario = Scenario::with_turn();
    scenario.then(Action::Dispatch(Dispatch {
        call: CallId::new("d"),
        tool: "tool".to_owned(),
        input: json!({}).into(),
        principal: Principal::new("user"),
        identity: None,
        revision: Revision::new("r"),
        on_interrupt: OnInterrupt::Fail,
        requests: Default::default(),
        verdict: verdict(Decision::Allow),
        child: None,
    }));
    assert_eq!(scenario.state.uninterruptible(), [CallId::new("d")]);
    assert_eq!(scenario.apply(fail("d")).unwrap(), ["operated", "dispatch"]);
    let Some(EventData::DispatchFinished(done)) = scenario.journal.last().map(|event| &event.data)
    else {
        panic!("the last event is its end");
    };
    assert_eq!(serde_json::to_value(&done.result).unwrap()["error"], "given up");
    assert!(not_open(scenario.apply(fail("d"))));
}

#[test]
fn only_what_runs_once_and_runs_now_is_uninterruptible() {
    let calls = vec![
        run_once(server("a")),
        server("b"),
        run_once(gated("c")),
        run_once(with_child("d", "x")),
    ];
    let mut scenario = Scenario::with_calls(calls);
    assert_eq!(scenario.state.uninterruptible(), [CallId::new("a")]);
    scenario.then(approve("c", None)).then(returned("a", 1));
    assert_eq!(scenario.state.uninterruptible(), [CallId::new("c")]);
    scenario.then(dispatch("again", OnInterrupt::Redispatch));
    scenario.then(dispatch("once", OnInterrupt::Fail));
    assert_eq!(scenario.state.uninterruptible(), [CallId::new("c"), CallId::new("once")]);
}
