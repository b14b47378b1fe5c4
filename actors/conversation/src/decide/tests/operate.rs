//! What an operator does is journalled and changes nothing by itself.

use super::scenario::*;
use crate::event::{EventData, Operated};
use crate::{Action, Principal, Rejection, State, replay};

pub(super) fn operate(verb: &str) -> Action {
    Action::Operate(Operated {
        by: Principal::new("operator"),
        identity: None,
        verb: verb.to_owned(),
        reason: Some("hangs".to_owned()),
    })
}

#[test]
fn an_operation_adds_its_event_to_any_state_and_changes_only_the_seq() {
    for mut scenario in [Scenario::with_calls(vec![human("a"), server("b")]), Scenario::with_turn()]
    {
        let before = (scenario.state.clone(), scenario.wanted());
        assert_eq!(scenario.apply(operate("kill")).unwrap(), ["operated"]);
        let event = scenario.journal.last().unwrap();
        assert!(matches!(event.data, EventData::Operated(_)) && event.turn_id.is_none());
        assert!(event.data.visible().is_none());
        let mut after = scenario.state.clone();
        after.seq = before.0.seq;
        assert_eq!((after, scenario.wanted()), before);
        assert_eq!(replay(State::default(), &scenario.journal), scenario.state);
    }
}

#[test]
fn nobody_operates_on_a_conversation_that_does_not_exist() {
    assert_eq!(Scenario::empty().apply(operate("kill")), Err(Rejection::NotFound));
}
