//! The events of a response as they are encoded.

use serde::Serialize;
use serde_json::Value;

/// An event of a response.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum ResponseEvent {
    /// A model writes many of these, so they are no trees of values.
    Delta(TextDelta),
    Other(Value),
}

/// A piece of a text, or of the summary of a thinking.
#[derive(Clone, Debug, Serialize)]
pub struct TextDelta {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) item_id: String,
    pub(super) output_index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) summary_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content_index: Option<usize>,
    /// There are none; a thinking does not even name them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) logprobs: Option<[(); 0]>,
    pub(super) delta: String,
    pub(super) sequence_number: u64,
}

impl ResponseEvent {
    /// The event's type.
    pub fn kind(&self) -> &str {
        match self {
            Self::Delta(delta) => delta.kind,
            Self::Other(event) => event["type"].as_str().unwrap_or_default(),
        }
    }
}
