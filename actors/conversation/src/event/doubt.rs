//! A call of which nobody knows whether it ran, and who may say what becomes of it.

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::approval::ApprovalPolicy;
use crate::numbers::Attempt;

/// What is known of the attempt that was cut off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Doubt))]
pub struct Doubt {
    #[cfg_attr(feature = "openapi", schema(value_type = u32))]
    pub attempt: Attempt,
    /// When the attempt was handed to its tool, at the earliest.
    pub started_at: Timestamp,
    /// The node that ran it, as far as its successor knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Why its end is unknown.
    pub reason: DoubtReason,
}

/// Why nobody knows whether an attempt ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DoubtReason {
    /// The node, or the actor of the conversation, ended while the tool ran.
    Interrupted,
    /// The connection broke after the request may have reached the tool.
    ConnectionBroke,
}

/// Who is asked about a call that was cut off. Stored with the call when it is planned, for its
/// definition may change meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = DoubtTerms))]
pub struct DoubtTerms {
    /// Absent: whoever may answer approvals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<ApprovalPolicy>,
}
