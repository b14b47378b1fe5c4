//! What is written about a conversation is replaced at any time, and only if it differs.

use serde_json::{Map, json};

use super::scenario::*;
use crate::command::{Command, Create, Update};
use crate::{Action, Principal, Rejection, State, Timestamp, decide, replay};

/// New metadata, and a new only member.
pub(super) fn update(number: Option<u64>, member: Option<&str>) -> Action {
    let metadata = |number| Map::from_iter([("n".to_owned(), json!(number))]);
    Action::Update(Update {
        metadata: number.map(metadata),
        members: member.map(|member| vec![member.to_owned()]),
        title: None,
        expires_at: None,
        by: Principal::new("ann"),
        identity: None,
    })
}

#[test]
fn what_is_absent_stays_and_what_is_the_same_has_no_event() {
    let mut scenario = Scenario::with_calls(vec![human("ask")]);
    let open = scenario.state.pending_calls();
    scenario.then(update(Some(1), None)).then(update(None, Some("bob")));
    assert_eq!(scenario.state.metadata["n"], 1);
    assert_eq!(scenario.state.participants.members, ["bob"]);
    assert_eq!(scenario.state.pending_calls(), open);
    let events = scenario.journal.len();
    for again in [update(Some(1), Some("bob")), update(None, None)] {
        scenario.then(again);
        assert_eq!(scenario.journal.len(), events);
    }
    assert_eq!(replay(State::default(), &scenario.journal), scenario.state);
}

#[test]
fn a_title_is_replaced_and_removed() {
    let mut scenario = Scenario::with_calls(vec![human("ask")]);
    let title = |title: Option<&str>| {
        Action::Update(Update {
            metadata: None,
            members: None,
            title: Some(title.map(str::to_owned)),
            expires_at: None,
            by: Principal::new("ann"),
            identity: None,
        })
    };
    let events = scenario.journal.len();
    scenario.then(title(None));
    assert_eq!(scenario.journal.len(), events, "there was none");
    scenario.then(title(Some("Order 7")));
    assert_eq!(scenario.state.title.as_deref(), Some("Order 7"));
    scenario.then(update(Some(1), None));
    assert_eq!(scenario.state.title.as_deref(), Some("Order 7"), "it was not mentioned");
    scenario.then(title(None));
    assert_eq!(scenario.state.title, None);
    assert_eq!(replay(State::default(), &scenario.journal), scenario.state);
}

#[test]
fn a_conversation_that_does_not_exist_has_nothing_written_about_it() {
    assert!(Scenario::empty().apply(update(Some(1), None)).is_err());
}

/// Sets the end, or removes it.
fn expire_at(expires_at: Option<Timestamp>) -> Action {
    Action::Update(Update {
        metadata: None,
        members: None,
        title: None,
        expires_at: Some(expires_at),
        by: Principal::new("ann"),
        identity: None,
    })
}

#[test]
fn the_end_of_a_conversation_is_an_alarm_until_it_is_removed() {
    let mut scenario = Scenario::with_calls(vec![human("ask")]);
    let alarm = scenario.state.alarm();
    let soon = scenario.after(10);
    scenario.then(expire_at(Some(soon)));
    assert_eq!((scenario.state.expires_at, scenario.state.alarm()), (Some(soon), Some(soon)));
    assert!(!scenario.state.is_expired(scenario.at) && scenario.state.is_expired(soon));
    let events = scenario.journal.len();
    scenario.then(expire_at(Some(soon))).then(update(None, None));
    assert_eq!((scenario.journal.len(), scenario.state.expires_at), (events, Some(soon)));
    scenario.then(expire_at(None));
    assert_eq!((scenario.state.expires_at, scenario.state.alarm()), (None, alarm));
    assert_eq!(replay(State::default(), &scenario.journal), scenario.state);
}

#[test]
fn an_end_that_has_passed_or_is_too_far_ahead_is_refused_and_so_is_that_of_a_child() {
    let scenario = Scenario::with_calls(vec![human("ask")]);
    let refused = |state: &State, action| match decide(state, Command { at: scenario.at, action }) {
        Err(Rejection::Invalid { field, .. }) => field == "expires_at",
        _ => false,
    };
    let eleven_years = scenario.after(11 * 366 * 24 * 3_600 * 1_000);
    for wrong in [scenario.at, Timestamp::UNIX_EPOCH, Timestamp::MAX, eleven_years] {
        assert!(refused(&scenario.state, expire_at(Some(wrong))), "{wrong}");
        let create = Create { expires_at: Some(wrong), ..create() };
        assert!(refused(&State::default(), Action::Create(create)), "{wrong}");
    }
    assert!(!refused(&scenario.state, expire_at(Some(scenario.after(1)))));
    let child = State { parent: Some(parent()), ..scenario.state.clone() };
    assert!(refused(&child, expire_at(Some(scenario.after(1)))));
    assert!(!refused(&child, expire_at(None)));
}
