//! Turns whose answer must satisfy a schema.

use serde_json::{Value, json};

use super::scenario::*;
use crate::command::{Action, PlannedCall};
use crate::event::EventData;

/// The model's reply, with its object or with how it violates the schema.
fn reply_with(
    scenario: &mut Scenario,
    calls: Vec<PlannedCall>,
    object: Result<Value, &str>,
) -> Applied {
    let Action::ModelReplied(mut reply) = scenario.model_reply(calls) else { unreachable!() };
    reply.object = Some(object.map_err(str::to_owned));
    scenario.apply(Action::ModelReplied(reply))
}

fn violation() -> [(String, Option<String>); 1] {
    [("failed".to_owned(), Some("schema_violation".to_owned()))]
}

#[test]
fn a_structured_answer_is_the_messages_object() {
    for value in [json!({"n": 1}), json!(null)] {
        let mut scenario = Scenario::with_turn();
        let events = reply_with(&mut scenario, vec![], Ok(value.clone())).unwrap();
        assert_eq!(events, ["assistant_msg", "turn_ended"]);
        let EventData::AssistantMsg(spoken) = &scenario.journal[3].data else { unreachable!() };
        assert_eq!(spoken.message.object, Some(value));
        assert_eq!(scenario.turn_ends(), [("completed".to_owned(), None)]);
    }
}

#[test]
fn a_structured_answer_gets_one_repair_then_the_turn_fails() {
    let mut scenario = Scenario::with_turn();
    let events = reply_with(&mut scenario, vec![], Err("n: missing")).unwrap();
    assert_eq!(events, ["assistant_msg", "repair_requested"]);
    assert_eq!(scenario.wanted(), ["model step 2 of turn_1"]);
    let events = reply_with(&mut scenario, vec![], Err("n: missing")).unwrap();
    assert_eq!(events, ["assistant_msg", "turn_ended"]);
    assert_eq!(scenario.turn_ends(), violation());
}

#[test]
fn a_repaired_answer_completes_the_turn() {
    let mut scenario = Scenario::with_turn();
    reply_with(&mut scenario, vec![], Err("n: missing")).unwrap();
    reply_with(&mut scenario, vec![], Ok(json!({"n": 1}))).unwrap();
    assert_eq!(scenario.turn_ends(), [("completed".to_owned(), None)]);
}

#[test]
fn calls_between_two_bad_answers_buy_no_second_repair() {
    let mut scenario = Scenario::with_turn();
    reply_with(&mut scenario, vec![], Err("n: missing")).unwrap();
    scenario.reply(vec![server("a")]).unwrap();
    scenario.then(returned("a", 1));
    reply_with(&mut scenario, vec![], Err("n: missing")).unwrap();
    assert_eq!(scenario.turn_ends(), violation());
}

#[test]
fn a_revival_buys_no_second_repair() {
    let mut scenario = Scenario::with_turn();
    reply_with(&mut scenario, vec![], Err("n: missing")).unwrap();
    scenario.then(Action::Revive);
    reply_with(&mut scenario, vec![], Err("n: missing")).unwrap();
    assert_eq!(scenario.turn_ends(), violation());
}

#[test]
fn the_next_turn_has_its_own_repair() {
    let mut scenario = Scenario::with_turn();
    reply_with(&mut scenario, vec![], Err("n: missing")).unwrap();
    scenario.then(cancel()).then(send("turn_2"));
    let events = reply_with(&mut scenario, vec![], Err("n: missing")).unwrap();
    assert_eq!(events, ["assistant_msg", "repair_requested"]);
}

#[test]
fn a_bad_answer_without_a_step_left_is_halted() {
    let mut scenario = Scenario::with_turn();
    for _ in 1..5 {
        scenario.reply(vec![human("a")]).unwrap();
        let call = scenario.state.pending_calls()[0].call_id.to_string();
        scenario.then(answer(&call, None, json!(1)));
    }
    reply_with(&mut scenario, vec![], Err("n: missing")).unwrap();
    assert_eq!(scenario.turn_ends(), [("halted".to_owned(), Some("max_steps".to_owned()))]);
}

/// `reference/semantics.md#what-must-not-go-wrong` no. 10, for a structured turn
#[test]
fn calls_beside_a_judged_answer_are_made_and_get_their_results() {
    for object in [Ok(json!(1)), Err("n: missing")] {
        let mut scenario = Scenario::with_turn();
        reply_with(&mut scenario, vec![server("a")], object).unwrap();
        assert_eq!(scenario.wanted(), ["attempt 1 of a"]);
        scenario.then(returned("a", 1));
        assert_eq!(scenario.wanted(), ["model step 2 of turn_1"]);
        let has_repair = scenario.journal.iter().any(|event| kind(event) == "repair_requested");
        assert!(!has_repair, "the calls come first");
    }
}
