//! Cost, budgets, and providers that pause or refuse a turn.

use serde_json::{Value, from_value, json};

use super::scenario::*;
use crate::command::{Action, IfBusy, ModelReplied};
use crate::message::StopReason;
use crate::usage::{Budget, Cost, Usage};
use crate::{AgentName, TurnId};

fn dollars(usd: f64) -> Cost {
    Cost::from_usd(usd).unwrap()
}

fn spent(input: u64, output: u64, usd: f64) -> Usage {
    let usage = Usage { input_tokens: input, output_tokens: output, ..Usage::default() };
    Usage { cost: dollars(usd), ..usage }
}

#[test]
fn an_amount_is_exact_to_a_billionth_and_written_in_dollars() {
    let mut sum = Cost::default();
    for _ in 0..10 {
        sum += dollars(0.1);
    }
    assert_eq!((sum, json!(sum)), (dollars(1.0), json!(1.0)));
    let nanos = Cost::from_nanos(123_456_789_012_345);
    assert_eq!(from_value::<Cost>(json!(nanos)).unwrap(), nanos);
    assert_eq!((nanos.nanos(), json!(nanos)), (123_456_789_012_345, json!(123_456.789012345)));
    let used = json!({"input_tokens": 1, "output_tokens": 2, "cached_tokens": 3,
        "cache_write_tokens": 4, "cost_usd": 0.5});
    assert_eq!(json!(from_value::<Usage>(used.clone()).unwrap()), used);
    assert_eq!(json!(Usage::default()), json!({"input_tokens": 0, "output_tokens": 0}));
    for wrong in [json!(-1), json!("1"), Value::Null] {
        assert!(from_value::<Cost>(wrong).is_err());
    }
    assert_eq!((Cost::from_usd(f64::NAN), Cost::from_usd(f64::INFINITY)), (None, None));
    assert_eq!(dollars(1.0).saturating_sub(dollars(2.0)), Cost::default());
}

#[test]
fn a_bound_is_reached_when_nothing_of_it_is_left() {
    let budget: Budget = from_value(json!({"max_turn_tokens": 100, "max_turn_cost": 1,
        "max_conversation_tokens": 200, "max_conversation_cost": 2}))
    .unwrap();
    for (turn, all, reached) in [
        (spent(50, 49, 0.9), spent(150, 49, 1.9), None),
        (spent(50, 50, 0.9), spent(50, 50, 0.9), Some("max_turn_tokens")),
        (spent(1, 1, 1.0), spent(1, 1, 1.0), Some("max_turn_cost")),
        (spent(1, 1, 0.0), spent(200, 0, 0.0), Some("max_conversation_tokens")),
        (spent(1, 1, 0.0), spent(1, 0, 2.5), Some("max_conversation_cost")),
    ] {
        assert_eq!(budget.reached_limit(&turn, &all), reached);
    }
    assert_eq!(Budget::default().reached_limit(&spent(9, 9, 9.0), &spent(9, 9, 9.0)), None);
}

#[test]
fn a_child_gets_what_is_left_of_the_tighter_bound() {
    let budget: Budget = from_value(json!({"max_turn_tokens": 100, "max_turn_cost": 5,
        "max_conversation_tokens": 300, "max_conversation_cost": 3}))
    .unwrap();
    let left = budget.remaining(&spent(30, 0, 1.0), &spent(250, 0, 1.0));
    assert_eq!(json!(left), json!({"max_turn_tokens": 50, "max_turn_cost": 2.0}));
    let own: Budget = from_value(json!({"max_turn_tokens": 20, "max_turn_cost": 9})).unwrap();
    assert_eq!(json!(own.tightest(&left)), json!({"max_turn_tokens": 20, "max_turn_cost": 2.0}));
    assert_eq!(budget.remaining(&spent(900, 0, 9.0), &spent(900, 0, 9.0)).max_turn_tokens, Some(0));
}

#[test]
fn a_conversation_without_a_token_left_starts_no_step() {
    let budget: Budget = from_value(json!({"max_conversation_tokens": 100})).unwrap();
    let mut scenario = Scenario::empty();
    for (turn, usage) in [("turn_1", Some(spent(60, 40, 0.0))), ("turn_2", None)] {
        let mut sent = message(turn, IfBusy::Reject);
        sent.settings.budget = budget;
        scenario.then(Action::Send(sent));
        if usage.is_some() {
            let Action::ModelReplied(reply) = scenario.model_reply(vec![]) else { unreachable!() };
            scenario.then(Action::ModelReplied(ModelReplied { usage, ..reply }));
        }
    }
    let halted = ("halted".to_owned(), Some("max_conversation_tokens".to_owned()));
    assert_eq!(scenario.turn_ends(), [("completed".to_owned(), None), halted]);
    assert!(scenario.wanted().is_empty());
}

fn stopped(scenario: &Scenario, stop: StopReason, object: Option<Result<Value, String>>) -> Action {
    let Action::ModelReplied(reply) = scenario.model_reply(vec![]) else { unreachable!() };
    Action::ModelReplied(ModelReplied { stop: Some(stop), object, ..reply })
}

#[test]
fn a_turn_that_its_provider_paused_goes_on_with_the_next_step() {
    let mut scenario = Scenario::with_turn();
    let paused = stopped(&scenario, StopReason::Paused, None);
    assert_eq!(scenario.apply(paused), Ok(vec!["assistant_msg"]));
    assert_eq!(scenario.wanted(), ["model step 2 of turn_1"]);
    let done = stopped(&scenario, StopReason::End, None);
    scenario.then(done);
    assert_eq!(scenario.turn_ends(), [("completed".to_owned(), None)]);
}

#[test]
fn a_provider_that_pauses_forever_is_halted_at_max_steps() {
    let mut scenario = Scenario::with_turn();
    for _ in 0..5 {
        let paused = stopped(&scenario, StopReason::Paused, None);
        scenario.then(paused);
    }
    assert_eq!(scenario.turn_ends(), [("halted".to_owned(), Some("max_steps".to_owned()))]);
}

#[test]
fn a_structured_turn_is_not_repaired_after_a_refusal() {
    let mut scenario = Scenario::with_turn();
    let refused = stopped(&scenario, StopReason::Refusal, Some(Err("not JSON".to_owned())));
    assert_eq!(scenario.apply(refused), Ok(vec!["assistant_msg", "turn_ended"]));
    assert_eq!(scenario.turn_ends(), [("failed".to_owned(), Some("refusal".to_owned()))]);
}

#[test]
fn a_childs_turn_is_within_what_its_parent_has_left() {
    let mut sent = message("turn_1", IfBusy::Reject);
    sent.settings.budget = from_value(json!({"max_turn_tokens": 500})).unwrap();
    let mut parent_with_budget = parent();
    parent_with_budget.budget =
        from_value(json!({"max_turn_tokens": 70, "max_turn_cost": 1})).unwrap();
    let mut create_child = create();
    create_child.agent = AgentName::new("demo");
    create_child.parent = Some(Box::new(parent_with_budget));
    sent.create = Some(create_child);
    let mut scenario = Scenario::empty();
    scenario.then(Action::Spawn(sent));
    let turn = scenario.state.turn.as_ref().unwrap();
    assert_eq!(turn.id, TurnId::new("turn_1"));
    assert_eq!(json!(turn.budget), json!({"max_turn_tokens": 70, "max_turn_cost": 1.0}));
}
