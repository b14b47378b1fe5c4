//! Messages that come while a turn runs.

use super::scenario::*;
use crate::command::{Action, Create, IfBusy, Start};
use crate::state::ConversationStatus;
use crate::{AgentName, Rejection, TurnId};

fn started(scenario: &Scenario) -> Vec<String> {
    let started = scenario.journal.iter().filter(|event| kind(event) == "turn_started");
    started.map(|event| event.turn_id.as_ref().unwrap().to_string()).collect()
}

#[test]
fn a_message_to_a_busy_conversation_is_refused() {
    let mut scenario = Scenario::with_turn();
    assert_eq!(scenario.apply(send("turn_2")), Err(Rejection::TurnInFlight));
}

#[test]
fn a_message_to_one_that_is_about_to_start_its_next_turn_is_refused_too() {
    let mut scenario = Scenario::with_turn();
    scenario.then(queued("turn_2")).then(cancel());
    assert_eq!(scenario.state.status(), ConversationStatus::Preparing);
    assert_eq!(scenario.apply(send("turn_3")), Err(Rejection::TurnInFlight));
}

#[test]
fn queued_messages_start_in_order_one_turn_each() {
    let mut scenario = Scenario::with_turn();
    assert_eq!(scenario.apply(queued("turn_2")).unwrap(), ["user_msg"]);
    scenario.then(queued("turn_3"));
    assert_eq!(scenario.wanted(), ["model step 1 of turn_1"]);
    for next in ["turn_2", "turn_3"] {
        scenario.reply(vec![]).unwrap();
        assert_eq!(scenario.wanted(), [format!("start of {next}")]);
        assert_eq!(scenario.apply(start(next)).unwrap(), ["turn_started"]);
    }
    scenario.reply(vec![]).unwrap();
    assert!(scenario.wanted().is_empty());
    assert_eq!(started(&scenario), ["turn_1", "turn_2", "turn_3"]);
}

#[test]
fn a_queued_turn_starts_once_and_never_before_its_time() {
    let mut scenario = Scenario::with_turn();
    scenario.then(queued("turn_2")).then(queued("turn_3"));
    assert_eq!(scenario.apply(start("turn_2")), Err(Rejection::Stale));
    scenario.reply(vec![]).unwrap();
    assert_eq!(scenario.apply(start("turn_3")), Err(Rejection::Stale));
    scenario.then(start("turn_2"));
    assert_eq!(scenario.apply(start("turn_2")), Err(Rejection::Stale));
}

#[test]
fn an_interrupting_message_goes_before_the_queued_ones() {
    let mut scenario = Scenario::with_turn();
    scenario.then(queued("turn_2")).then(Action::Send(message("turn_3", IfBusy::Interrupt)));
    assert_eq!(started(&scenario), ["turn_1", "turn_3"]);
    scenario.reply(vec![]).unwrap();
    assert_eq!(scenario.wanted(), ["start of turn_2"]);
}

#[test]
fn the_queue_is_bounded_and_a_full_one_stops_no_interrupt() {
    let mut scenario = Scenario::with_turn();
    for n in 0..100 {
        scenario.then(queued(&format!("queued_{n}")));
    }
    assert_eq!(scenario.apply(queued("one_more")), Err(Rejection::QueueFull));
    scenario.then(Action::Send(message("urgent", IfBusy::Interrupt)));
    assert_eq!(scenario.state.turn.as_ref().unwrap().id, TurnId::new("urgent"));
    assert_eq!(scenario.state.queue.len(), 100);
}

#[test]
fn a_queued_turn_whose_agent_is_gone_fails_with_that_reason() {
    let mut scenario = Scenario::with_turn();
    scenario.then(queued("turn_2")).then(cancel());
    let gone = Action::Start(Start { turn: TurnId::new("turn_2"), settings: None });
    assert_eq!(scenario.apply(gone).unwrap(), ["turn_started", "turn_ended"]);
    assert_eq!(scenario.turn_ends()[1], ("failed".to_owned(), Some("agent-missing".to_owned())));
}

#[test]
fn a_queued_turn_runs_as_the_one_who_sent_it() {
    let mut scenario = Scenario::with_turn();
    let mut other = message("turn_2", IfBusy::Queue);
    other.principal = crate::Principal::new("someone");
    scenario.then(Action::Send(other)).then(cancel()).then(Action::Revive).then(start("turn_2"));
    assert_eq!(scenario.state.turn.unwrap().principal.as_str(), "someone");
}

#[test]
fn a_conversation_is_created_once() {
    let mut scenario = Scenario::empty();
    assert_eq!(scenario.apply(Action::Create(create())).unwrap(), ["created"]);
    assert_eq!(scenario.apply(Action::Create(create())), Err(Rejection::ConversationExists));
    assert_eq!(scenario.apply(send("turn_1")).unwrap(), ["user_msg", "turn_started"]);
}

#[test]
fn a_message_creates_its_conversation_only_when_it_names_an_agent() {
    let mut plain = message("turn_1", IfBusy::Reject);
    plain.create = None;
    assert_eq!(Scenario::empty().apply(Action::Send(plain.clone())), Err(Rejection::NotFound));
    let mut scenario = Scenario::empty();
    scenario.then(Action::Create(create())).then(Action::Send(plain));
}

#[test]
fn a_message_for_another_agent_is_refused() {
    let mut scenario = Scenario::empty();
    scenario.then(Action::Create(create()));
    let mut other = message("turn_1", IfBusy::Reject);
    other.create = Some(Create { agent: AgentName::new("other"), ..create() });
    let refused = Err(Rejection::AgentMismatch("demo".to_owned()));
    assert_eq!(scenario.apply(Action::Send(other)), refused);
}
