//! Answer, expiry, a missing page and cancel race for one suspension: exactly one wins.

use serde_json::json;

use super::scenario::*;
use crate::Rejection;
use crate::command::{Action, PlannedCall};
use crate::event::{Event, EventData};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rival {
    Answer,
    Expiry,
    Cancel,
}

const ORDERS: [[Rival; 3]; 6] = {
    use Rival::{Answer as A, Cancel as C, Expiry as E};
    [[A, E, C], [A, C, E], [E, A, C], [E, C, A], [C, A, E], [C, E, A]]
};

fn action(rival: Rival, planned: &PlannedCall) -> Action {
    let approval = matches!(&planned.plan, crate::command::CallPlan::Execute { gate: Some(_), .. });
    match rival {
        Rival::Answer if approval => deny("a", None),
        Rival::Answer => answer("a", None, json!("mine")),
        Rival::Expiry => Action::Wake,
        Rival::Cancel => cancel(),
    }
}

/// A text that the call's only result contains if this rival wins.
fn mark(rival: Rival, planned: &PlannedCall) -> String {
    match rival {
        Rival::Answer if action(rival, planned) == deny("a", None) => "DENIED".to_owned(),
        Rival::Answer => "mine".to_owned(),
        Rival::Expiry => "EXPIRED".to_owned(),
        Rival::Cancel => "CANCELLED".to_owned(),
    }
}

/// `reference/semantics.md#what-must-not-go-wrong` no. 8
#[test]
fn of_answer_expiry_and_cancel_exactly_one_wins_and_it_is_the_first() {
    for planned in [gated("a"), human("a"), client("a"), gated_client("a")] {
        for order in ORDERS {
            let mut scenario = Scenario::with_calls(vec![planned.clone(), server("b")]);
            let deadline = scenario.state.alarm().unwrap();
            for (place, rival) in order.into_iter().enumerate() {
                // The first rival is in time; an alarm rings at the deadline.
                scenario.at = match rival {
                    Rival::Expiry => deadline,
                    Rival::Answer | Rival::Cancel if order[0] == Rival::Expiry => deadline,
                    Rival::Answer | Rival::Cancel => scenario.at,
                };
                let applied = scenario.apply(action(rival, &planned));
                match (rival, place) {
                    (Rival::Answer, 0) => assert!(applied.is_ok()),
                    (Rival::Answer, _) => assert!(not_open(applied), "{order:?}"),
                    (Rival::Expiry, 0) => assert_eq!(applied.unwrap(), ["tool_result"]),
                    (Rival::Expiry, _) => assert_eq!(applied.unwrap(), [""; 0], "{order:?}"),
                    // The running call keeps the turn open, so that cancel always finds one.
                    (Rival::Cancel, _) => assert_eq!(applied.unwrap().last(), Some(&"turn_ended")),
                }
            }
            let result = serde_json::to_string(&scenario.result("a").unwrap()).unwrap();
            assert!(result.contains(&mark(order[0], &planned)), "{order:?}: {result}");
        }
    }
}

#[test]
fn a_second_resolution_is_stale() {
    let mut scenario = Scenario::with_calls(vec![gated("a"), human("b")]);
    scenario.then(approve("a", None)).then(answer("b", None, json!(1)));
    assert!(not_open(scenario.apply(approve("a", None))));
    assert!(not_open(scenario.apply(deny("a", None))));
    assert!(not_open(scenario.apply(answer("b", None, json!(2)))));
}

#[test]
fn an_answer_to_an_unknown_call_finds_it_not_open() {
    let mut scenario = Scenario::with_turn();
    assert!(not_open(scenario.apply(approve("a", None))));
    scenario.reply(vec![server("a")]).unwrap();
    assert!(not_open(scenario.apply(approve("a", None))));
    assert!(not_open(scenario.apply(answer("a", None, json!(1)))));
}

#[test]
fn an_answer_in_the_form_of_another_kind_changes_nothing() {
    let mut scenario =
        Scenario::with_calls(vec![gated("g"), human("h"), client("c"), gated_client("gc")]);
    for call in ["g", "gc"] {
        assert!(not_open(scenario.apply(answer(call, None, json!(true)))));
        assert!(not_open(scenario.apply(answer_error(call, "no"))));
    }
    for call in ["h", "c"] {
        assert!(not_open(scenario.apply(approve(call, None))));
        assert!(not_open(scenario.apply(deny(call, None))));
    }
    assert_eq!(scenario.state.pending_calls().len(), 4);
}

/// `reference/semantics.md#what-must-not-go-wrong` no. 2
#[test]
fn a_second_click_on_approve_is_not_the_browsers_answer() {
    let mut scenario = Scenario::with_calls(vec![gated_client("a")]);
    scenario.then(approve("a", Some(1)));
    for click in [approve("a", Some(1)), approve("a", None), approve("a", Some(2))] {
        assert!(not_open(scenario.apply(click)));
    }
    assert!(not_open(scenario.apply(deny("a", None))));
    assert_eq!(scenario.state.pending_calls()[0].suspension, 2);
}

#[test]
fn an_answer_that_means_another_suspension_is_stale() {
    let mut scenario = Scenario::with_calls(vec![gated_client("a")]);
    for other in [0, 2, u32::MAX] {
        assert!(not_open(scenario.apply(approve("a", Some(other)))));
    }
    scenario.then(approve("a", Some(1)));
    for other in [0, 1, 3] {
        assert!(not_open(scenario.apply(answer("a", Some(other), json!(1)))));
    }
    scenario.then(answer("a", Some(2), json!(1)));
}

#[test]
fn a_page_that_is_missing_closes_the_suspension_it_was_watched_for_only() {
    let mut scenario = Scenario::with_calls(vec![gated_client("a"), human("h")]);
    assert_eq!(scenario.apply(missing("a", 1)), Err(Rejection::Stale), "that is the approval");
    assert_eq!(scenario.apply(missing("h", 1)), Err(Rejection::Stale), "that is a person");
    scenario.then(approve("a", None));
    assert_eq!(scenario.apply(missing("a", 1)), Err(Rejection::Stale));
    scenario.then(missing("a", 2));
    assert_eq!(scenario.error("a"), json!(["no client connected", "NO_CLIENT"]));
    assert_eq!(scenario.apply(missing("a", 2)), Err(Rejection::Stale));
}

#[test]
fn an_answer_after_a_missing_page_is_not_open() {
    let mut scenario = Scenario::with_calls(vec![client("a"), server("b")]);
    scenario.then(missing("a", 1));
    assert!(not_open(scenario.apply(answer("a", None, json!(1)))));
}

/// `reference/semantics.md#what-must-not-go-wrong` no. 19, as far as it concerns the
/// core: a rejection leaves nothing to publish.
#[test]
fn a_refused_command_changes_nothing() {
    let mut scenario = Scenario::with_calls(vec![gated("a")]);
    let (state, journal): (_, Vec<Event>) = (scenario.state.clone(), scenario.journal.clone());
    assert!(scenario.apply(answer("a", None, json!(1))).is_err());
    assert!(scenario.apply(send("turn_2")).is_err());
    assert!(scenario.apply(start("turn_1")).is_err());
    assert_eq!((scenario.state, scenario.journal), (state, journal));
}

#[test]
fn a_resolution_says_who_answered_what() {
    let mut scenario = Scenario::with_calls(vec![gated("a")]);
    scenario.then(deny("a", Some("no")));
    let resolution = scenario.journal.iter().find_map(|event| match &event.data {
        EventData::Resolution(resolution) => Some(serde_json::to_value(resolution).unwrap()),
        _ => None,
    });
    let expected = json!({"call_id": "a", "kind": "approval", "suspension": 1, "by": "boss",
        "approved": false, "reason": "no"});
    assert_eq!(resolution, Some(expected));
}
