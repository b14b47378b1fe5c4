//! The scope of a call: what conditions and messages may read in addition to the arguments.

use abide_conversation::{ConversationId, Principal};
use serde_json::{Map, Value, json};

/// The conversation that a call belongs to, and the principal on whose behalf it is made.
#[derive(Clone, Debug, PartialEq)]
pub struct CallScope {
    pub conversation: ConversationId,
    pub principal: Principal,
    pub assigns: Map<String, Value>,
    pub metadata: Map<String, Value>,
}

impl CallScope {
    /// The variables of an expression: `{args, principal, conversation: {id, assigns, metadata}}`.
    pub fn values(&self, args: Value) -> Value {
        json!({
            "args": args,
            "principal": self.principal,
            "conversation": {
                "id": self.conversation,
                "assigns": self.assigns,
                "metadata": self.metadata,
            },
        })
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
    use super::*;

    #[test]
    fn the_later_assigns_win() {
        let map = |value: Value| value.as_object().cloned().unwrap_or_default();
        let (agent, conversation) = (map(json!({"a": 1, "b": 1, "c": 1})), map(json!({"b": 2})));
        let merged = merged(&agent, &conversation, &map(json!({"c": 3})));
        assert_eq!(Value::from(merged), json!({"a": 1, "b": 2, "c": 3}));
    }
}
