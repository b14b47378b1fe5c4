//! Turns whose answer must have a shape.

use serde_json::{Value, json};

use super::scenario::*;
use crate::command::{Action, PlannedCall};
use crate::event::EventData;

/// The model's answer as the shell judged it.
fn judged(story: &mut Scenario, calls: Vec<PlannedCall>, object: Result<Value, &str>) -> Applied {
    let Action::ModelReplied(mut reply) = story.model_reply(calls) else { unreachable!() };
    reply.object = Some(object.map_err(str::to_owned));
    story.apply(Action::ModelReplied(reply))
}

fn violation() -> [(String, Option<String>); 1] {
    [("failed".to_owned(), Some("schema_violation".to_owned()))]
}

#[test]
fn a_structured_answer_is_the_messages_object() {
    for value in [json!({"n": 1}), json!(null)] {
        let mut story = Scenario::with_turn();
        let told = judged(&mut story, vec![], Ok(value.clone())).unwrap();
        assert_eq!(told, ["assistant_msg", "turn_ended"]);
        let EventData::AssistantMsg(spoken) = &story.journal[3].data else { unreachable!() };
        assert_eq!(spoken.message.object, Some(value));
        assert_eq!(story.turn_ends(), [("completed".to_owned(), None)]);
    }
}

#[test]
fn a_structured_answer_gets_one_repair_then_the_turn_fails() {
    let mut story = Scenario::with_turn();
    let told = judged(&mut story, vec![], Err("n: missing")).unwrap();
    assert_eq!(told, ["assistant_msg", "repair_requested"]);
    assert_eq!(story.wanted(), ["model step 2 of turn_1"]);
    let told = judged(&mut story, vec![], Err("n: missing")).unwrap();
    assert_eq!(told, ["assistant_msg", "turn_ended"]);
    assert_eq!(story.turn_ends(), violation());
}

#[test]
fn a_repaired_answer_completes_the_turn() {
    let mut story = Scenario::with_turn();
    judged(&mut story, vec![], Err("n: missing")).unwrap();
    judged(&mut story, vec![], Ok(json!({"n": 1}))).unwrap();
    assert_eq!(story.turn_ends(), [("completed".to_owned(), None)]);
}

#[test]
fn calls_between_two_bad_answers_buy_no_second_repair() {
    let mut story = Scenario::with_turn();
    judged(&mut story, vec![], Err("n: missing")).unwrap();
    story.reply(vec![server("a")]).unwrap();
    story.then(returned("a", 1));
    judged(&mut story, vec![], Err("n: missing")).unwrap();
    assert_eq!(story.turn_ends(), violation());
}

#[test]
fn a_revival_buys_no_second_repair() {
    let mut story = Scenario::with_turn();
    judged(&mut story, vec![], Err("n: missing")).unwrap();
    story.then(Action::Revive);
    judged(&mut story, vec![], Err("n: missing")).unwrap();
    assert_eq!(story.turn_ends(), violation());
}

#[test]
fn the_next_turn_has_its_own_repair() {
    let mut story = Scenario::with_turn();
    judged(&mut story, vec![], Err("n: missing")).unwrap();
    story.then(cancel()).then(send("turn_2"));
    let told = judged(&mut story, vec![], Err("n: missing")).unwrap();
    assert_eq!(told, ["assistant_msg", "repair_requested"]);
}

#[test]
fn a_bad_answer_without_a_step_left_is_halted() {
    let mut story = Scenario::with_turn();
    for _ in 1..5 {
        story.reply(vec![human("a")]).unwrap();
        let call = story.state.pending_calls()[0].call_id.to_string();
        story.then(answer(&call, None, json!(1)));
    }
    judged(&mut story, vec![], Err("n: missing")).unwrap();
    assert_eq!(story.turn_ends(), [("halted".to_owned(), Some("max_steps".to_owned()))]);
}

/// semantics §2.10, for a structured turn
#[test]
fn calls_beside_a_judged_answer_are_made_and_get_their_results() {
    for object in [Ok(json!(1)), Err("n: missing")] {
        let mut story = Scenario::with_turn();
        judged(&mut story, vec![server("a")], object).unwrap();
        assert_eq!(story.wanted(), ["attempt 1 of a"]);
        story.then(returned("a", 1));
        assert_eq!(story.wanted(), ["model step 2 of turn_1"]);
    }
}
