//! The key-value state of a conversation.

use serde_json::{Map, Value, json};

use super::scenario::*;
use crate::command::{Action, ChangeState, StateChange};
use crate::key_value::{MAX_STATE_BYTES, StateRejection};
use crate::{Principal, Rejection};

fn map(value: Value) -> Map<String, Value> {
    serde_json::from_value(value).unwrap()
}

fn change(changes: Value) -> Action {
    let by = Principal::new("ann");
    Action::ChangeState(ChangeState { changes: map(changes), by, identity: None })
}

fn returned_with(call: &str, changes: Value) -> Action {
    match returned(call, 1) {
        Action::ToolReturned(mut done) => {
            done.changes = vec![StateChange::KeyValues(map(changes))];
            Action::ToolReturned(done)
        }
        other => other,
    }
}

#[test]
fn a_key_is_set_replaced_and_deleted_and_a_repeat_changes_nothing() {
    let mut scenario = Scenario::with_turn();
    assert_eq!(scenario.apply(change(json!({"a": {"b": 1}}))).unwrap(), ["state_changed"]);
    assert_eq!(scenario.apply(change(json!({"a": {"b": 1}}))).unwrap(), [""; 0]);
    scenario.then(change(json!({"a": {"c": 2}, "d": 1})));
    assert_eq!(scenario.state.key_values, map(json!({"a": {"c": 2}, "d": 1})));
    scenario.then(change(json!({"a": null})));
    assert_eq!(scenario.state.key_values, map(json!({"d": 1})));
    assert_eq!(scenario.apply(change(json!({"a": null}))).unwrap(), [""; 0]);
}

#[test]
fn a_state_that_would_be_too_large_is_refused_as_a_whole() {
    let mut scenario = Scenario::with_turn();
    let large = "x".repeat(MAX_STATE_BYTES);
    let refused = scenario.apply(change(json!({"a": 1, "b": large})));
    assert_eq!(refused, Err(Rejection::State(StateRejection::Size)));
    assert_eq!(scenario.state.key_values, Map::new());
}

#[test]
fn a_tools_changes_are_committed_with_its_result() {
    let mut scenario = Scenario::with_calls(vec![server("a"), server("b")]);
    scenario.then(change(json!({"seen": 1, "old": 1})));
    let done = returned_with("a", json!({"seen": 2, "old": null}));
    assert_eq!(scenario.apply(done).unwrap(), ["state_changed", "tool_result"]);
    assert_eq!(scenario.state.key_values, map(json!({"seen": 2})));
    let done = returned_with("b", json!({"seen": 2}));
    assert_eq!(scenario.apply(done).unwrap(), ["tool_result"], "nothing changed");
}

#[test]
fn a_tools_change_that_is_refused_makes_an_error_of_its_result() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    let done = returned_with("a", json!({"bad key": 1}));
    assert_eq!(scenario.apply(done).unwrap(), ["tool_result"]);
    assert_eq!(scenario.error("a")[1], "TOOL_ERROR");
    let error = scenario.error("a");
    assert!(error[0].as_str().unwrap().starts_with("in the tool's answer state: "), "{error}");
    assert_eq!(scenario.state.key_values, Map::new());
}
