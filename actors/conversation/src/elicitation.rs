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
