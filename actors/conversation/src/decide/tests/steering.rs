//! Turns that wait are withdrawn, and the turn that runs is steered.

use serde_json::json;

use super::scenario::*;
use crate::approval::SubjectId;
use crate::command::{Action, Cancel, IfBusy, ModelReplied, Send, Withdraw};
use crate::event::{EventData, Executor};
use crate::identity::Identity;
use crate::message::MessageStatus;
use crate::{Principal, Rejection, Seq, TurnId};

fn withdraw(turn: &str) -> Action {
    let by = Principal::new("ada");
    Action::Withdraw(Withdraw { turn: TurnId::new(turn), cancel: None, by, identity: None })
}

/// Withdraws a turn, or cancels it if it runs.
fn cancel_turn(turn: &str) -> Action {
    let (by, cancel) = (Principal::new("ada"), Some(Cancel { partial: None }));
    Action::Withdraw(Withdraw { turn: TurnId::new(turn), cancel, by, identity: None })
}

fn steer(turn: &str) -> Action {
    Action::Send(message(turn, IfBusy::Steer))
}

/// The model's reply to a prompt of the events up to this one.
fn reply_to(scenario: &Scenario, read: Seq) -> Action {
    let Action::ModelReplied(reply) = scenario.model_reply(vec![]) else { unreachable!() };
    Action::ModelReplied(ModelReplied { context_seq: read, ..reply })
}

fn read_upto(scenario: &Scenario) -> Vec<Option<Seq>> {
    let replies = scenario.journal.iter().filter_map(|event| match &event.data {
        EventData::AssistantMsg(reply) => Some(reply.read_upto),
        _ => None,
    });
    replies.collect()
}

#[test]
fn a_turn_is_steered_by_a_hundred_messages() {
    let mut scenario = Scenario::with_turn();
    for n in 0..100 {
        scenario.then(steer(&format!("m_{n}")));
    }
    assert_eq!(scenario.apply(steer("one_more")), Err(Rejection::QueueFull));
    scenario.then(Action::Send(message("urgent", IfBusy::Interrupt)));
    scenario.then(steer("another_turns"));
}

#[test]
fn a_queued_turn_that_is_withdrawn_never_starts_and_the_others_do() {
    let mut scenario = Scenario::with_turn();
    scenario.then(queued("turn_2")).then(queued("turn_3"));
    assert_eq!(scenario.apply(withdraw("turn_2")).unwrap(), ["turn_withdrawn"]);
    assert_eq!(scenario.journal.last().unwrap().turn_id, Some(TurnId::new("turn_2")));
    assert_eq!(scenario.wanted(), ["model step 1 of turn_1"]);
    scenario.reply(vec![]).unwrap();
    assert_eq!(scenario.wanted(), ["start of turn_3"]);
    assert_eq!(scenario.apply(start("turn_2")), Err(Rejection::Stale));
}

#[test]
fn the_last_queued_turn_may_be_withdrawn_when_it_is_about_to_start() {
    let mut scenario = Scenario::with_turn();
    scenario.then(queued("turn_2")).then(cancel());
    assert_eq!(scenario.wanted(), ["start of turn_2"]);
    scenario.then(withdraw("turn_2"));
    assert!(scenario.wanted().is_empty());
}

#[test]
fn a_turn_that_runs_that_ended_or_that_never_was_is_not_withdrawn() {
    let mut scenario = Scenario::with_turn();
    assert_eq!(scenario.apply(withdraw("turn_1")), Err(Rejection::TurnInFlight));
    assert_eq!(scenario.apply(withdraw("nobody")), Err(Rejection::TurnNotFound));
    scenario.then(queued("turn_2")).then(withdraw("turn_2"));
    assert_eq!(scenario.apply(withdraw("turn_2")), Err(Rejection::TurnNotFound));
    scenario.reply(vec![]).unwrap();
    assert_eq!(scenario.apply(withdraw("turn_1")), Err(Rejection::TurnNotFound));
}

#[test]
fn cancelling_a_turn_never_ends_another_one() {
    let mut scenario = Scenario::with_turn();
    scenario.then(queued("turn_2")).then(queued("turn_3"));
    assert_eq!(scenario.apply(cancel_turn("turn_2")).unwrap(), ["turn_withdrawn"]);
    assert_eq!(scenario.state.turn.as_ref().unwrap().id, TurnId::new("turn_1"));
    assert_eq!(scenario.apply(cancel_turn("turn_1")).unwrap(), ["turn_ended"]);
    scenario.then(start("turn_3"));
    assert_eq!(scenario.apply(cancel_turn("turn_1")), Ok(vec![]));
    assert_eq!(scenario.turn_ends().len(), 1);
}

#[test]
fn a_message_that_steers_belongs_to_the_turn_that_runs() {
    let mut scenario = Scenario::with_turn();
    assert_eq!(scenario.apply(steer("turn_2")).unwrap(), ["steered"]);
    let event = scenario.journal.last().unwrap();
    assert_eq!(event.turn_id, Some(TurnId::new("turn_1")));
    let EventData::Steered(steered) = &event.data else { unreachable!() };
    assert_eq!(steered.message.id.as_str(), "user_turn_2");
    assert!(scenario.state.queue.is_empty());
}

#[test]
fn without_a_turn_that_runs_a_message_that_steers_is_an_ordinary_one() {
    let mut scenario = Scenario::empty();
    assert_eq!(scenario.apply(steer("turn_1")).unwrap(), ["created", "user_msg", "turn_started"]);
    scenario.then(queued("turn_2")).then(cancel());
    assert_eq!(scenario.apply(steer("turn_3")).unwrap(), ["user_msg"], "it waits behind turn_2");
}

#[test]
fn a_turn_goes_on_until_the_model_has_read_every_message_that_steers_it() {
    let mut scenario = Scenario::with_turn();
    let before = scenario.state.seq;
    scenario.then(steer("turn_2"));
    let answer = reply_to(&scenario, before);
    assert_eq!(scenario.apply(answer).unwrap(), ["assistant_msg"]);
    assert_eq!(scenario.wanted(), ["model step 2 of turn_1"]);
    let answer = reply_to(&scenario, scenario.state.seq);
    assert_eq!(scenario.apply(answer).unwrap(), ["assistant_msg", "turn_ended"]);
    assert_eq!(read_upto(&scenario), [Some(before), None]);
}

#[test]
fn an_answer_that_could_read_the_message_ends_the_turn() {
    let mut scenario = Scenario::with_turn();
    scenario.then(steer("turn_2"));
    let answer = reply_to(&scenario, scenario.state.seq);
    assert_eq!(scenario.apply(answer).unwrap(), ["assistant_msg", "turn_ended"]);
}

#[test]
fn an_unread_message_does_not_outlast_the_steps_of_its_turn() {
    let mut scenario = Scenario::empty();
    let mut first = message("turn_1", IfBusy::Reject);
    first.settings.max_steps = 1;
    scenario.then(Action::Send(first));
    let before = scenario.state.seq;
    scenario.then(steer("turn_2"));
    let answer = reply_to(&scenario, before);
    scenario.then(answer);
    assert_eq!(scenario.turn_ends(), [("halted".to_owned(), Some("max_steps".to_owned()))]);
}

#[test]
fn a_turn_that_waits_for_an_answer_is_steered_without_ending_the_wait() {
    let mut scenario = Scenario::with_calls(vec![call("ask", Executor::Human, false)]);
    scenario.then(steer("turn_2"));
    assert_eq!(scenario.state.pending_calls().len(), 1);
    scenario.then(answer("ask", None, json!("yes")));
    assert_eq!(scenario.wanted(), ["model step 2 of turn_1"]);
}

#[test]
fn a_turn_that_is_steered_can_still_be_cancelled() {
    let mut scenario = Scenario::with_turn();
    scenario.then(steer("turn_2")).then(cancel());
    assert_eq!(scenario.turn_ends()[0].0, "cancelled");
    let statuses = scenario.journal.iter().filter_map(|event| match &event.data {
        EventData::AssistantMsg(reply) => Some(reply.status),
        _ => None,
    });
    assert_eq!(statuses.collect::<Vec<MessageStatus>>(), []);
}

/// Otherwise somebody could steer a turn to a call, and approve it.
#[test]
fn whoever_steers_a_turn_has_asked_for_what_it_does() {
    let identity = json!({"tenant": "default", "iss": "https://login.example.com/", "sub": "bob",
        "roles": ["user"], "auth": "jwt"});
    let identity: Identity = serde_json::from_value(identity).unwrap();
    let mut scenario = Scenario::with_turn();
    let steering = Send {
        identity: Some(std::sync::Arc::new(identity.clone())),
        ..message("turn_2", IfBusy::Steer)
    };
    scenario.then(Action::Send(steering));
    let requesters = scenario.state.requesters();
    assert!(requesters.contains(&SubjectId::from(identity.acting())), "{requesters:?}");
}
