//! Hooks add content to a turn, refuse a message, change arguments, or end the turn.

use serde_json::json;

use super::scenario::*;
use crate::command::{Action, MessageVerdict, ModelReplied, PlannedCall};
use crate::event::{AddedContext, EventData};
use crate::message::text_block;
use crate::{Rejection, Step, TurnId};

fn added(step: Step) -> Action {
    let added = vec![AddedContext { hook: "docs".to_owned(), content: vec![text_block("known")] }];
    Action::ContextAdded { turn: TurnId::new("turn_1"), step, added }
}

fn reply_with(scenario: &Scenario, calls: Vec<PlannedCall>, verdict: MessageVerdict) -> Action {
    match scenario.model_reply(calls) {
        Action::ModelReplied(reply) => Action::ModelReplied(ModelReplied { verdict, ..reply }),
        other => other,
    }
}

fn refusal() -> MessageVerdict {
    MessageVerdict::Refuse { hook: "guard".to_owned(), reason: "rude".to_owned() }
}

#[test]
fn what_durable_hooks_add_is_journalled_once_a_step_and_the_model_still_asked() {
    let mut scenario = Scenario::with_turn();
    assert_eq!(scenario.apply(added(Step::FIRST)), Ok(vec!["context_added"]));
    assert_eq!(scenario.apply(added(Step::FIRST)), Err(Rejection::Stale));
    assert_eq!(scenario.wanted(), ["model step 1 of turn_1"]);
    assert_eq!(scenario.state.turn.as_ref().unwrap().hooks_done_for, Step::FIRST);
}

#[test]
fn a_hook_halts_the_turn_before_its_step() {
    let mut scenario = Scenario::with_turn();
    let (turn, reason) = (TurnId::new("turn_1"), "hook guard: no".to_owned());
    scenario.then(Action::Halt { turn, step: Step::FIRST, reason: reason.clone() });
    assert_eq!(scenario.turn_ends(), [("halted".to_owned(), Some(reason))]);
}

#[test]
fn a_halted_message_is_kept_and_its_calls_come_to_nothing() {
    let mut scenario = Scenario::with_turn();
    let halt = reply_with(
        &scenario,
        vec![server("a"), gated("b")],
        MessageVerdict::Halt("enough".to_owned()),
    );
    let events = scenario.apply(halt);
    let expected = ["assistant_msg", "tool_result", "tool_result", "turn_ended"];
    assert_eq!(events, Ok(expected.to_vec()));
    assert_eq!(scenario.error("a"), json!(["[cancelled]", "CANCELLED"]));
    assert_eq!(scenario.turn_ends(), [("halted".to_owned(), Some("enough".to_owned()))]);
}

#[test]
fn a_refused_message_is_no_part_of_the_conversation_and_the_model_is_asked_once_more() {
    let mut scenario = Scenario::with_turn();
    let refused = reply_with(&scenario, vec![server("a")], refusal());
    assert_eq!(scenario.apply(refused), Ok(vec!["message_refused"]));
    assert_eq!(scenario.wanted(), ["model step 2 of turn_1"]);
    assert_eq!(scenario.state.open_calls(), 0);
    scenario.reply(vec![server("a")]).unwrap();
    assert_eq!(scenario.wanted(), ["attempt 1 of a"], "the id was never used");
}

#[test]
fn a_second_refusal_halts_the_turn_and_names_the_hook() {
    let mut scenario = Scenario::with_turn();
    for _ in 0..2 {
        let refused = reply_with(&scenario, Vec::new(), refusal());
        scenario.then(refused);
    }
    let reason = "hook guard refused a second message: rude".to_owned();
    assert_eq!(scenario.turn_ends(), [("halted".to_owned(), Some(reason))]);
}

#[test]
fn a_hook_that_changes_arguments_leaves_what_the_model_said() {
    let mut scenario = Scenario::with_turn();
    let changed = PlannedCall { original_args: Some(json!({"n": 0}).into()), ..server("a") };
    scenario.reply(vec![changed]).unwrap();
    let original_args = scenario.journal.iter().find_map(|event| match &event.data {
        EventData::AssistantMsg(spoken) => Some(spoken.message.tool_calls[0].args.clone()),
        _ => None,
    });
    assert_eq!(original_args, Some(json!({"n": 0}).into()));
    let call = scenario.state.call(&crate::CallId::new("a")).unwrap();
    assert_eq!(call.args, json!({"n": 1}));
}
