//! What became of the context: reduced, or summarized.

use serde::{Deserialize, Serialize};

use crate::context::Marks;
use crate::message::Usage;

/// Less of the journal is shown to the model from here on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ContextReduced {
    pub step: u32,
    pub marks: Marks,
    pub why: ReductionReason,
    /// How many results and turns are shown no longer.
    pub results: u32,
    pub turns: u32,
    /// The context's tokens before and after, estimated.
    pub tokens_before: u64,
    pub tokens_after: u64,
}

/// Why the context was reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReductionReason {
    /// It had more tokens than its budget.
    Budget,
    /// The provider said that it was too long.
    TooLong,
}

/// The oldest part of the conversation, in short. Covers all before it, earlier summaries too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Summarized {
    /// The last event that it covers.
    pub upto: u64,
    /// What is shown after it.
    pub marks: Marks,
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    pub tokens_before: u64,
    pub tokens_after: u64,
}

/// No summary was written; one is tried again when another turn has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SummaryFailed {
    pub reason: String,
}
