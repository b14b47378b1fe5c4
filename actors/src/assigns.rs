//! Assigns: the values handed to every tool call.

use serde_json::{Map, Value};

/// Merges the assigns of a call: the message's override the conversation's, which override the
/// agent's.
pub fn merged(
    agent: &Map<String, Value>,
    conversation: &Map<String, Value>,
    message: &Map<String, Value>,
) -> Map<String, Value> {
    let all = [agent, conversation, message].into_iter().flatten();
    all.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_later_assigns_win() {
        let map = |value: Value| value.as_object().cloned().unwrap_or_default();
        let (agent, conversation) = (map(json!({"a": 1, "b": 1, "c": 1})), map(json!({"b": 2})));
        let merged = merged(&agent, &conversation, &map(json!({"c": 3})));
        assert_eq!(Value::from(merged), json!({"a": 1, "b": 2, "c": 3}));
    }
}
