//! Elicitation: what a running tool needs from a person before it can go on, and the answer.

use crate::numbers::Attempt;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A tool's request for input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Asks))]
pub struct InputRequest {
    /// Shown to the person.
    pub message: String,
    /// What the tool asks for, in the tool's own words, for example forms by name.
    pub requests: Value,
    /// The tool's own state, which it gets back unchanged together with the answer. Only the tool
    /// knows its meaning. The next attempt needs nothing else, on whichever node it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_state: Option<String>,
}

impl InputRequest {
    /// Whether the texts are longer than a journal should hold: 1 MiB.
    pub fn is_long(&self) -> bool {
        self.message.len() + self.request_state.as_ref().map_or(0, String::len) > 1 << 20
    }
}

/// A call's request for input, and the answer to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingInput {
    /// The attempt that asked. The next attempt gets the answer.
    pub attempt: Attempt,
    #[serde(rename = "asks")]
    pub request: InputRequest,
    /// `None` while nobody has answered.
    pub answer: Option<InputAnswer>,
}

/// A person's answer to a tool's request for input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = InputAnswer))]
#[serde(rename_all = "snake_case")]
pub enum InputAnswer {
    Result(Value),
    /// The person declined, for this reason.
    Error(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_long_if_its_texts_are_together_more_than_a_mebibyte() {
        for (message, state, is_long) in [
            (1 << 20, None, false),
            (1 << 19, Some(1 << 19), false),
            ((1 << 19) + 1, Some(1 << 19), true),
            ((1 << 20) + 1, None, true),
            (0, Some(0), false),
        ] {
            let text = |len: usize| "x".repeat(len);
            let request_state = state.map(text);
            let requests = Value::Null;
            let request = InputRequest { message: text(message), requests, request_state };
            assert_eq!(request.is_long(), is_long, "{message}, {state:?}");
        }
    }
}
