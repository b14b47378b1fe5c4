//! What is written about a conversation is replaced at any time, and only if it differs.

use serde_json::{Map, json};

use super::scenario::*;
use crate::command::Update;
use crate::{Action, Principal, State, replay};

/// New metadata, and a new only member.
pub(super) fn update(number: Option<u64>, member: Option<&str>) -> Action {
    let metadata = |number| Map::from_iter([("n".to_owned(), json!(number))]);
    Action::Update(Update {
        metadata: number.map(metadata),
        members: member.map(|member| vec![member.to_owned()]),
        title: None,
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
