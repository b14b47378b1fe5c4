//! The key-value state of a conversation: what clients and tools note in it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// All keys and values of a conversation together, as JSON: they are handed to every run of a tool.
pub const MAX_STATE_BYTES: usize = 64 << 10;
/// The longest key.
pub const MAX_STATE_KEY_BYTES: usize = 128;

/// Why a change of the state is refused; the texts follow the name of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum StateRejection {
    #[error("a key must be 1 to 128 characters of A-Z a-z 0-9 _ . : -")]
    Key,
    #[error("would be larger than {MAX_STATE_BYTES} bytes together with the other keys")]
    Size,
}

/// Whether it can be a key of the state.
pub fn is_state_key(key: &str) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
    (1..=MAX_STATE_KEY_BYTES).contains(&key.len()) && key.bytes().all(is_legal)
}

/// The changes that differ from what the state has; null deletes a key.
pub fn changes_of(
    state: &Map<String, Value>,
    changes: Map<String, Value>,
) -> Result<Map<String, Value>, StateRejection> {
    if !changes.keys().all(|key| is_state_key(key)) {
        return Err(StateRejection::Key);
    }
    let differs = |key: &str, value: &Value| match state.get(key) {
        Some(before) => before != value,
        None => !value.is_null(),
    };
    let changes: Map<String, Value> =
        changes.into_iter().filter(|(key, value)| differs(key, value)).collect();
    let grows = changes.values().any(|value| !value.is_null());
    if grows && merged_bytes(state, &changes) > MAX_STATE_BYTES {
        return Err(StateRejection::Size);
    }
    Ok(changes)
}

/// Merges changes into the state.
pub(crate) fn merge(state: &mut Map<String, Value>, changes: &Map<String, Value>) {
    for (key, value) in changes {
        match value {
            Value::Null => drop(state.remove(key)),
            value => drop(state.insert(key.clone(), value.clone())),
        }
    }
}

fn merged_bytes(state: &Map<String, Value>, changes: &Map<String, Value>) -> usize {
    let mut merged = state.clone();
    merge(&mut merged, changes);
    Value::Object(merged).to_string().len()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn only_what_differs_is_a_change_and_null_deletes() {
        let mut state = map(json!({"a": 1, "b": 2}));
        let changes = map(json!({"a": 1, "b": null, "c": {"d": null}, "gone": null}));
        let changes = changes_of(&state, changes).unwrap();
        assert_eq!(changes, map(json!({"b": null, "c": {"d": null}})));
        merge(&mut state, &changes);
        assert_eq!(state, map(json!({"a": 1, "c": {"d": null}})));
    }

    #[test]
    fn all_keys_together_have_at_most_64_kib_and_a_deletion_is_always_possible() {
        let text = |len: usize| json!("x".repeat(len));
        // {"a":"…"} has eight characters more than the text.
        let full = map(json!({"a": text(MAX_STATE_BYTES - 8)}));
        assert_eq!(changes_of(&Map::new(), full.clone()).unwrap(), full);
        let over = map(json!({"a": text(MAX_STATE_BYTES - 7)}));
        assert_eq!(changes_of(&Map::new(), over.clone()), Err(StateRejection::Size));
        assert_eq!(changes_of(&full, map(json!({"b": 1}))), Err(StateRejection::Size));
        let swapped = map(json!({"a": null, "b": text(60_000)}));
        assert_eq!(changes_of(&full, swapped.clone()).unwrap(), swapped);
        let smaller = map(json!({"a": null}));
        assert_eq!(changes_of(&over, smaller.clone()).unwrap(), smaller);
    }

    #[test]
    fn a_key_is_short_and_needs_no_quoting() {
        for good in ["a", "A.b:c_d-9", &"k".repeat(128)] {
            assert!(is_state_key(good), "{good}");
        }
        for bad in ["", "a b", "a/b", "ä", "a\n", &"k".repeat(129)] {
            assert!(!is_state_key(bad), "{bad}");
            assert_eq!(
                changes_of(&Map::new(), map(json!({bad: 1}))),
                Err(StateRejection::Key),
                "{bad}"
            );
        }
    }
}
