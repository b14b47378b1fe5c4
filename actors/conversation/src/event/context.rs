//! Events that change the context: reductions and summaries.

use serde::{Deserialize, Serialize};

use crate::context::ContextMarks;
use crate::numbers::{Seq, Step};
use crate::usage::Usage;

/// From here on, the model is shown less of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ContextReduced {
    #[cfg_attr(feature = "openapi", schema(value_type = u32))]
    pub step: Step,
    pub marks: ContextMarks,
    #[serde(rename = "why")]
    pub reason: ReductionReason,
    /// How many more results and turns are left out.
    pub results: u32,
    pub turns: u32,
    /// The estimated tokens of the context, before and after.
    pub tokens_before: u64,
    pub tokens_after: u64,
}

/// Why the context was reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Pressure))]
#[serde(rename_all = "snake_case")]
pub enum ReductionReason {
    /// The context had more tokens than its budget.
    Budget,
    /// The provider refused the context as too long.
    TooLong,
}

/// A summary of the oldest part of the conversation. It replaces earlier summaries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Summarized {
    /// The last event that the summary covers.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub upto: Seq,
    /// The marks of the context after the summary.
    pub marks: ContextMarks,
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    pub tokens_before: u64,
    pub tokens_after: u64,
}

/// No summary was written. The next attempt follows the end of another turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SummaryFailed {
    pub reason: String,
}
