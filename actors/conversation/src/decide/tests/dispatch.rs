//! Dispatches: users' own calls, independent of any turn.

use serde_json::json;

use super::scenario::*;
use crate::command::{Action, Dispatch};
use crate::event::{EventData, OnInterrupt};
use crate::state::ConversationStatus;
use crate::{CallId, Principal, Rejection, Revision};

pub(super) fn dispatch(call: &str, on_interrupt: OnInterrupt) -> Action {
    Action::Dispatch(Dispatch {
        call: CallId::new(call),
        tool: "tool".to_owned(),
        input: json!({"n": 1}).into(),
        principal: Principal::new("user"),
        identity: None,
        revision: Revision::new("0123456789abcdef"),
        on_interrupt,
        verdict: super::scenario::verdict(crate::permission::Decision::Allow),
        child: None,
        requests: [("key".to_owned(), "print".to_owned())].into(),
    })
}

fn again(call: &str) -> Action {
    dispatch(call, OnInterrupt::Redispatch)
}

#[test]
fn a_dispatch_runs_outside_any_turn() {
    let mut scenario = Scenario::empty();
    scenario.then(Action::Create(create()));
    assert_eq!(scenario.apply(again("d")).unwrap(), ["dispatch_started"]);
    assert_eq!(scenario.wanted(), ["attempt 1 of d"]);
    assert_eq!(scenario.state.status(), ConversationStatus::Idle);
    assert_eq!(scenario.apply(returned("d", 1)).unwrap(), ["dispatch"]);
    assert!(scenario.wanted().is_empty());
    let event = serde_json::to_value(scenario.journal.last().unwrap()).unwrap();
    let result = json!({"ok": true, "result": "done"});
    assert_eq!((&event["data"]["result"], &event["turn_id"]), (&result, &json!(null)));
    assert_eq!(scenario.apply(returned("d", 1)), Err(Rejection::Stale));
}

#[test]
fn a_dispatch_beside_a_turn_touches_neither_its_calls_nor_its_end() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    scenario.then(again("d"));
    assert_eq!(scenario.wanted(), ["attempt 1 of a", "attempt 1 of d"]);
    assert!(scenario.journal.last().unwrap().turn_id.is_none());
    scenario.then(returned("a", 1));
    assert_eq!(scenario.wanted(), ["model step 2 of turn_1", "attempt 1 of d"]);
    scenario.reply(vec![]).unwrap();
    assert_eq!(scenario.wanted(), ["attempt 1 of d"]);
    scenario.then(returned("d", 1));
    assert_eq!(scenario.turn_ends().len(), 1);
}

#[test]
fn cancel_leaves_a_dispatch_running() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    scenario.then(again("d")).then(cancel());
    assert_eq!(scenario.wanted(), ["attempt 1 of d"]);
}

#[test]
fn a_dispatch_is_revived_under_its_id_as_the_user_who_asked() {
    let mut scenario = Scenario::with_turn();
    scenario.then(again("d"));
    assert_eq!(scenario.apply(Action::Revive).unwrap(), ["dispatch_started"]);
    let run = &scenario.state.dispatches[&CallId::new("d")];
    assert_eq!((run.attempt.get(), run.principal.as_str()), (2, "user"));
    assert_eq!(run.requests["key"], "print");
    assert_eq!(scenario.apply(returned("d", 1)), Err(Rejection::Stale));
    scenario.then(returned("d", 2));
}

#[test]
fn a_dispatch_that_must_not_run_twice_ends_as_interrupted() {
    let mut scenario = Scenario::with_turn();
    scenario.then(dispatch("d", OnInterrupt::Fail));
    assert_eq!(scenario.apply(Action::Revive).unwrap(), ["dispatch"]);
    let EventData::DispatchFinished(done) = &scenario.journal.last().unwrap().data else {
        unreachable!()
    };
    let result = serde_json::to_value(&done.result).unwrap();
    let interrupted =
        json!({"ok": false, "error": "tool call interrupted", "error_type": "INTERRUPTED"});
    assert_eq!(result, interrupted);
    assert_eq!(scenario.wanted(), ["model step 1 of turn_1"]);
}

#[test]
fn a_dispatch_cannot_take_the_id_of_an_open_call_or_of_another() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    assert_eq!(scenario.apply(again("a")), Err(Rejection::Stale));
    scenario.then(again("d"));
    assert_eq!(scenario.apply(again("d")), Err(Rejection::Stale));
}

#[test]
fn a_model_that_names_a_dispatchs_id_gets_another() {
    let mut scenario = Scenario::with_turn();
    scenario.then(again("d"));
    scenario.reply(vec![server("d")]).unwrap();
    assert_eq!(scenario.wanted(), ["attempt 1 of d", "attempt 1 of d~2"]);
}

#[test]
fn the_number_of_running_dispatches_is_bounded() {
    let mut scenario = Scenario::with_turn();
    for n in 0..100 {
        scenario.then(again(&format!("d{n}")));
    }
    assert_eq!(scenario.apply(again("one_more")), Err(Rejection::QueueFull));
    scenario.then(returned("d7", 1)).then(again("one_more"));
}
