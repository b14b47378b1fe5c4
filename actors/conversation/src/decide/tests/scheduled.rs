//! Messages that are delivered later: once, whatever runs then.

use serde_json::json;

use super::scenario::*;
use crate::command::{Action, Cancel, IfBusy, Schedule, Unschedule};
use crate::event::{Event, EventData};
use crate::state::ConversationStatus;
use crate::{Principal, Rejection, ScheduledId, Step, Timestamp, TurnId};

fn later(scenario: &Scenario, name: &str, ms: i64, if_busy: IfBusy) -> Action {
    let send = message(&format!("turn_{name}"), if_busy);
    let scheduled_id = ScheduledId::new(name);
    Action::Schedule(Schedule { scheduled_id, deliver_at: scenario.after(ms), send })
}

fn withdraw(name: &str) -> Action {
    let scheduled_id = ScheduledId::new(name);
    Action::Unschedule(Unschedule { scheduled_id, by: Principal::new("ada"), identity: None })
}

/// A conversation that is idle, with a message for a minute later.
fn waiting(if_busy: IfBusy) -> Scenario {
    let mut scenario = Scenario::empty();
    let action = later(&scenario, "s", 60_000, if_busy);
    assert_eq!(scenario.apply(action), Ok(vec!["created", "message_scheduled"]));
    scenario
}

fn delivered(scenario: &Scenario) -> Vec<(Timestamp, TurnId)> {
    let sent = |event: &Event| match &event.data {
        EventData::UserMsg(message) => {
            message.scheduled_id.as_ref()?;
            Some((event.at, event.turn_id.clone().unwrap()))
        }
        _ => None,
    };
    scenario.journal.iter().filter_map(sent).collect()
}

#[test]
fn a_scheduled_message_is_delivered_at_its_time_and_once() {
    let mut scenario = waiting(IfBusy::Queue);
    let due = scenario.after(60_000);
    assert_eq!(scenario.state.alarm(), Some(due));
    assert_eq!(scenario.state.status(), ConversationStatus::Idle);
    scenario.advance(59_999);
    assert_eq!(scenario.apply(Action::Wake), Ok(vec![]));
    scenario.advance(1);
    assert_eq!(scenario.apply(Action::Wake), Ok(vec!["user_msg"]));
    assert_eq!(delivered(&scenario), [(due, TurnId::new("turn_s"))]);
    assert_eq!((scenario.state.alarm(), scenario.wanted()), (None, vec!["start of turn_s".into()]));
    assert_eq!(scenario.advance(60_000).apply(Action::Wake), Ok(vec![]));
    scenario.then(start("turn_s"));
    assert_eq!(delivered(&scenario).len(), 1);
}

#[test]
fn messages_that_are_due_together_are_delivered_in_the_order_of_their_times() {
    let mut scenario = waiting(IfBusy::Queue);
    let sooner = later(&scenario, "r", 30_000, IfBusy::Queue);
    scenario.then(sooner).advance(90_000).then(Action::Wake);
    let turns: Vec<_> =
        delivered(&scenario).into_iter().map(|(_, turn)| turn.to_string()).collect();
    assert_eq!(turns, ["turn_r", "turn_s"]);
}

#[test]
fn a_message_that_is_due_during_a_turn_is_queued_refused_or_interrupts_it() {
    for (if_busy, events, next) in [
        (IfBusy::Queue, vec!["user_msg"], "model step 1 of turn_1"),
        (IfBusy::Reject, vec!["schedule_ended"], "model step 1 of turn_1"),
        (IfBusy::Interrupt, vec!["turn_ended", "user_msg"], "start of turn_s"),
    ] {
        let mut scenario = waiting(if_busy);
        scenario.then(send("turn_1")).advance(60_000);
        assert_eq!(scenario.apply(Action::Wake), Ok(events));
        assert_eq!(scenario.wanted(), [next]);
        assert_eq!(scenario.state.scheduled.count(), 0);
    }
}

#[test]
fn what_was_streamed_is_kept_when_a_scheduled_message_interrupts() {
    let mut scenario = waiting(IfBusy::Interrupt);
    scenario.then(send("turn_1")).advance(60_000);
    let streamed = Some(partial(Step::new(1)));
    let events = scenario.apply(Action::WakeToInterrupt(Cancel { partial: streamed }));
    assert_eq!(events, Ok(vec!["assistant_msg", "turn_ended", "user_msg"]));
}

#[test]
fn a_message_can_be_withdrawn_until_it_is_delivered() {
    let mut scenario = waiting(IfBusy::Queue);
    assert_eq!(scenario.apply(withdraw("s")), Ok(vec!["schedule_ended"]));
    assert_eq!(scenario.state.alarm(), None);
    assert_eq!(scenario.apply(withdraw("s")), Err(Rejection::ScheduledNotFound));
    assert_eq!(scenario.advance(60_000).apply(Action::Wake), Ok(vec![]));
    let mut scenario = waiting(IfBusy::Queue);
    scenario.advance(60_000).then(Action::Wake);
    assert_eq!(scenario.apply(withdraw("s")), Err(Rejection::AlreadyDelivered));
    assert_eq!(scenario.apply(withdraw("x")), Err(Rejection::ScheduledNotFound));
}

#[test]
fn the_number_of_scheduled_messages_is_bounded_and_a_delivery_never_meets_a_full_queue() {
    let mut scenario = Scenario::with_turn();
    for round in 0..3 {
        for n in 0..100 {
            let action = later(&scenario, &format!("{round}_{n}"), 1_000, IfBusy::Queue);
            let accepted = scenario.apply(action);
            let is_full = round == 2;
            assert_eq!(accepted.is_err(), is_full, "{accepted:?}");
        }
        let more = later(&scenario, "more", 1_000, IfBusy::Queue);
        let refused = scenario.apply(more).unwrap_err();
        // The 101st names its field; one beside 200 that wait may be sent again later.
        let names_field =
            matches!(&refused, Rejection::Invalid { field, .. } if field == "deliver_at");
        assert!(if round < 2 { names_field } else { refused == Rejection::QueueFull });
        scenario.advance(1_000).then(Action::Wake);
    }
    assert_eq!(scenario.state.queue.len(), 200);
}

#[test]
fn the_journal_says_what_will_be_delivered_and_what_was() {
    let mut scenario = waiting(IfBusy::Queue);
    let scheduled = serde_json::to_value(&scenario.journal[1]).unwrap();
    assert_eq!(scheduled.get("turn_id"), None);
    assert_eq!(
        scheduled["data"],
        json!({"scheduled_id": "s", "deliver_at": "2027-01-15T08:01:00.000Z", "turn": "turn_s",
            "if_busy": "queue", "user_msg": {"scheduled_id": "s", "principal": "user",
            "message": scheduled["data"]["user_msg"]["message"]}})
    );
    scenario.advance(60_000).then(Action::Wake);
    let sent = serde_json::to_value(scenario.journal.last().unwrap()).unwrap();
    assert_eq!(sent["data"], scheduled["data"]["user_msg"]);
    let mut scenario = waiting(IfBusy::Queue);
    scenario.then(withdraw("s"));
    let ended = serde_json::to_value(scenario.journal.last().unwrap()).unwrap();
    assert_eq!(ended["data"], json!({"scheduled_id": "s", "reason": "withdrawn", "by": "ada"}));
}

#[test]
fn a_conversation_is_idle_when_nothing_runs_waits_or_is_to_come() {
    let mut scenario = Scenario::empty();
    scenario.then(Action::Create(create()));
    assert_eq!(scenario.state.idle_since(), Some(scenario.at));
    let action = later(&scenario, "s", 60_000, IfBusy::Queue);
    scenario.then(action);
    assert_eq!(scenario.state.idle_since(), None, "a message is to come");
    scenario.then(withdraw("s"));
    assert_eq!(scenario.state.idle_since(), scenario.state.created_at);
    scenario.then(send("turn_1"));
    assert_eq!(scenario.state.idle_since(), None, "a turn is to start");
    assert_eq!(Scenario::with_calls(vec![human("ask")]).state.idle_since(), None);
}
