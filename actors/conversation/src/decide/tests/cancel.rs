//! Cancel works in every state, and keeps the text of a cut stream once.

use serde_json::{Value, json};

use super::scenario::*;
use crate::command::{Action, Cancel, IfBusy, Send};
use crate::event::EventData;
use crate::state::ConversationStatus;
use crate::{Rejection, Step, TurnId};

fn cancel_with(step: Step) -> Action {
    Action::Cancel(Cancel { partial: Some(partial(step)) })
}

/// The text of every assistant message, its status, and the status within the message.
fn assistant_texts(scenario: &Scenario) -> Vec<(String, Value, Value)> {
    let texts = scenario.journal.iter().filter_map(|event| match &event.data {
        EventData::AssistantMsg(spoken) => Some((
            spoken.message.text(),
            serde_json::to_value(spoken.status).unwrap(),
            serde_json::to_value(spoken.message.status).unwrap(),
        )),
        _ => None,
    });
    texts.collect()
}

fn assert_idle(scenario: &Scenario) {
    assert_eq!(scenario.turn_ends(), [("cancelled".to_owned(), None)]);
    assert!(scenario.wanted().is_empty());
    assert_eq!((scenario.state.alarm(), scenario.state.pending_calls()), (None, vec![]));
    assert_eq!(scenario.state.status(), ConversationStatus::Idle);
}

#[test]
fn cancel_before_the_first_token_ends_the_turn() {
    let mut scenario = Scenario::with_turn();
    assert_eq!(scenario.apply(cancel()).unwrap(), ["turn_ended"]);
    assert_idle(&scenario);
}

/// `reference/semantics.md#what-must-not-go-wrong` no. 14
#[test]
fn the_partial_text_of_a_cancelled_stream_is_kept_once_and_marked() {
    let mut scenario = Scenario::with_turn();
    assert_eq!(scenario.apply(cancel_with(Step::FIRST)).unwrap(), ["assistant_msg", "turn_ended"]);
    assert_eq!(
        assistant_texts(&scenario),
        [("half a".to_owned(), json!("cancelled"), json!("cancelled"))]
    );
    assert_idle(&scenario);
    assert_eq!(scenario.apply(cancel_with(Step::FIRST)).unwrap(), [""; 0]);
}

/// `reference/semantics.md#what-must-not-go-wrong` no. 13
#[test]
fn cancelling_while_calls_are_open_does_not_write_the_text_a_second_time() {
    for step in [1, 2] {
        let mut scenario = Scenario::with_calls(vec![server("a")]);
        assert_eq!(
            scenario.apply(cancel_with(Step::new(step))).unwrap(),
            ["tool_result", "turn_ended"]
        );
        assert_eq!(
            assistant_texts(&scenario),
            [("said".to_owned(), json!("complete"), json!(null))]
        );
    }
}

#[test]
fn a_partial_of_a_step_that_is_done_is_dropped() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    scenario.then(returned("a", 1));
    assert_eq!(scenario.apply(cancel_with(Step::FIRST)).unwrap(), ["turn_ended"]);
}

#[test]
fn an_empty_partial_is_not_written() {
    let mut scenario = Scenario::with_turn();
    let mut nothing = partial(Step::FIRST);
    nothing.content.clear();
    let events = scenario.apply(Action::Cancel(Cancel { partial: Some(nothing) })).unwrap();
    assert_eq!(events, ["turn_ended"]);
}

#[test]
fn cancel_gives_every_open_call_its_result() {
    let calls =
        vec![server("s"), gated("g"), human("h"), client("c"), gated_client("gc"), server("d")];
    let mut scenario = Scenario::with_calls(calls);
    scenario.then(returned("d", 1)).then(approve("gc", None));
    let events = scenario.apply(cancel()).unwrap();
    assert_eq!(events, [vec!["tool_result"; 5], vec!["turn_ended"]].concat());
    for call in ["s", "g", "h", "c", "gc"] {
        assert_eq!(scenario.error(call), json!(["[cancelled]", "CANCELLED"]));
    }
    assert!(scenario.result("d").unwrap().outcome.is_ok());
    assert_idle(&scenario);
}

#[test]
fn cancel_between_two_steps_ends_the_turn() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    scenario.then(returned("a", 1)).then(cancel());
    assert_idle(&scenario);
}

#[test]
fn cancel_of_an_idle_conversation_finds_nothing() {
    let mut scenario = Scenario::with_turn();
    scenario.reply(vec![]).unwrap();
    assert_eq!(scenario.apply(cancel()).unwrap(), [""; 0]);
    assert_eq!(Scenario::empty().apply(cancel()), Err(Rejection::NotFound));
}

#[test]
fn what_a_cancelled_turn_started_is_stale_when_it_reports_back() {
    let mut scenario = Scenario::with_turn();
    let late = scenario.model_reply(vec![server("a")]);
    scenario.then(cancel());
    assert_eq!(scenario.apply(late), Err(Rejection::Stale));
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    scenario.then(cancel());
    assert_eq!(scenario.apply(returned("a", 1)), Err(Rejection::Stale));
}

#[test]
fn cancel_while_messages_are_queued_ends_the_running_turn_only() {
    let mut scenario = Scenario::with_turn();
    scenario.then(queued("turn_2")).then(cancel());
    assert_eq!(scenario.turn_ends().len(), 1);
    assert_eq!(scenario.wanted(), ["start of turn_2"]);
    scenario.then(start("turn_2"));
    assert_eq!(scenario.wanted(), ["model step 1 of turn_2"]);
}

#[test]
fn interrupt_cancels_then_starts_in_one_commit() {
    let mut scenario = Scenario::with_calls(vec![human("a")]);
    let mut interrupt: Send = message("turn_2", IfBusy::Interrupt);
    interrupt.partial = Some(partial(Step::FIRST));
    let events = scenario.apply(Action::Send(interrupt)).unwrap();
    assert_eq!(events, ["tool_result", "turn_ended", "user_msg", "turn_started"]);
    assert_eq!(scenario.turn_ends(), [("cancelled".to_owned(), None)]);
    assert_eq!(scenario.wanted(), ["model step 1 of turn_2"]);
}

#[test]
fn interrupt_keeps_what_the_stream_had_said() {
    let mut scenario = Scenario::with_turn();
    let mut interrupt: Send = message("turn_2", IfBusy::Interrupt);
    interrupt.partial = Some(partial(Step::FIRST));
    let events = scenario.apply(Action::Send(interrupt)).unwrap();
    assert_eq!(events, ["assistant_msg", "turn_ended", "user_msg", "turn_started"]);
    assert_eq!(scenario.journal[3].turn_id, Some(TurnId::new("turn_1")));
    assert_eq!(scenario.journal[5].turn_id, Some(TurnId::new("turn_2")));
}

#[test]
fn interrupt_of_an_idle_conversation_just_starts() {
    let mut scenario = Scenario::empty();
    let events = scenario.apply(Action::Send(message("turn_1", IfBusy::Interrupt))).unwrap();
    assert_eq!(events, ["created", "user_msg", "turn_started"]);
}
