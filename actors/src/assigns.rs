//! Assigns: the values handed to every tool call.

use serde_json::{Map, Value};

/// The assigns of a call, by whose they are: a message comes from somebody whom the conversation's
/// own assigns may be there to limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assigns {
    /// The agent's, overridden by the conversation's.
    pub conversation: Map<String, Value>,
    /// The message's.
    pub message: Map<String, Value>,
    /// What tools and hooks get: the conversation's, overridden by the message's.
    pub merged: Map<String, Value>,
}

impl Assigns {
    pub fn new(
        agent: &Map<String, Value>,
        conversation: &Map<String, Value>,
        message: &Map<String, Value>,
    ) -> Self {
        Self {
            conversation: merged(agent, conversation, &Map::new()),
            message: message.clone(),
            merged: merged(agent, conversation, message),
        }
    }
}

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
