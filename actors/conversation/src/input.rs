//! What a running tool asks of a person before it can go on, and the answer that it goes on with.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a tool needs to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InputRequest {
    /// For the person who is asked.
    pub message: String,
    /// What is asked for, as the tool put it, such as forms by their names.
    pub requests: Value,
    /// The tool's own, given back to it as it is; whoever runs it next needs nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_state: Option<String>,
}

impl InputRequest {
    /// Whether its texts are longer than a journal should hold: 1 MB.
    pub fn is_long(&self) -> bool {
        self.message.len() + self.request_state.as_ref().map_or(0, String::len) > 1 << 20
    }
}

/// What a call has asked, and what was answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingInput {
    /// The attempt that asked; the next one goes on with the answer.
    pub attempt: u32,
    pub asks: InputRequest,
    /// `None` while nobody has answered.
    pub answer: Option<InputAnswer>,
}

/// What a person said to a tool that asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = InputAnswer))]
#[serde(rename_all = "snake_case")]
pub enum InputAnswer {
    Result(Value),
    /// Declined, with the reason.
    Error(String),
}
