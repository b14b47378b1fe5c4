//! What hooks add to a turn, refuse in it, and how they end it.

use serde_json::json;

use super::scenario::*;
use crate::command::{Action, MessageVerdict, ModelReplied, PlannedCall};
use crate::event::{AddedContext, EventData};
use crate::message::text_block;
use crate::{Rejection, TurnId};

fn added(step: u32) -> Action {
    let added = vec![AddedContext { hook: "docs".to_owned(), content: vec![text_block("known")] }];
    Action::ContextAdded { turn: TurnId::new("turn_1"), step, added }
}

fn judged(story: &Scenario, calls: Vec<PlannedCall>, judged: MessageVerdict) -> Action {
    match story.model_reply(calls) {
        Action::ModelReplied(reply) => {
            Action::ModelReplied(ModelReplied { verdict: judged, ..reply })
        }
        other => other,
    }
}

fn refusal() -> MessageVerdict {
    MessageVerdict::Refuse { hook: "guard".to_owned(), reason: "rude".to_owned() }
}

#[test]
fn what_durable_hooks_add_is_journalled_once_a_step_and_the_model_still_asked() {
    let mut story = Scenario::with_turn();
    assert_eq!(story.apply(added(1)), Ok(vec!["context_added"]));
    assert_eq!(story.apply(added(1)), Err(Rejection::Stale));
    assert_eq!(story.wanted(), ["model step 1 of turn_1"]);
    assert_eq!(story.state.turn.as_ref().unwrap().hooks_done_for, 1);
}

#[test]
fn a_hook_halts_the_turn_before_its_step() {
    let mut story = Scenario::with_turn();
    let (turn, reason) = (TurnId::new("turn_1"), "hook guard: no".to_owned());
    story.then(Action::Halt { turn, step: 1, reason: reason.clone() });
    assert_eq!(story.turn_ends(), [("halted".to_owned(), Some(reason))]);
}

#[test]
fn a_halted_message_is_kept_and_its_calls_come_to_nothing() {
    let mut story = Scenario::with_turn();
    let halt =
        judged(&story, vec![server("a"), gated("b")], MessageVerdict::Halt("enough".to_owned()));
    let told = story.apply(halt);
    let expected = ["assistant_msg", "tool_result", "tool_result", "turn_ended"];
    assert_eq!(told, Ok(expected.to_vec()));
    assert_eq!(story.error("a"), json!(["[cancelled]", "CANCELLED"]));
    assert_eq!(story.turn_ends(), [("halted".to_owned(), Some("enough".to_owned()))]);
}

#[test]
fn a_refused_message_is_no_part_of_the_conversation_and_the_model_is_asked_once_more() {
    let mut story = Scenario::with_turn();
    let refused = judged(&story, vec![server("a")], refusal());
    assert_eq!(story.apply(refused), Ok(vec!["message_refused"]));
    assert_eq!(story.wanted(), ["model step 2 of turn_1"]);
    assert_eq!(story.state.open_calls(), 0);
    story.reply(vec![server("a")]).unwrap();
    assert_eq!(story.wanted(), ["attempt 1 of a"], "the id was never used");
}

#[test]
fn a_second_refusal_halts_the_turn_and_names_the_hook() {
    let mut story = Scenario::with_turn();
    for _ in 0..2 {
        let refused = judged(&story, Vec::new(), refusal());
        story.then(refused);
    }
    let reason = "hook guard refused a second message: rude".to_owned();
    assert_eq!(story.turn_ends(), [("halted".to_owned(), Some(reason))]);
}

#[test]
fn a_hook_that_changes_arguments_leaves_what_the_model_said() {
    let mut story = Scenario::with_turn();
    let changed = PlannedCall { original_args: Some(json!({"n": 0})), ..server("a") };
    story.reply(vec![changed]).unwrap();
    let said = story.journal.iter().find_map(|event| match &event.data {
        EventData::AssistantMsg(spoken) => Some(spoken.message.tool_calls[0].args.clone()),
        _ => None,
    });
    assert_eq!(said, Some(json!({"n": 0})));
    let call = story.state.call(&crate::CallId::new("a")).unwrap();
    assert_eq!(call.args, json!({"n": 1}));
}
