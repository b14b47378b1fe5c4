//! What happens to a suspension while it waits: reminders, extensions, escalations, its expiry.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Timestamp;
use crate::approval::ApproverGroup;
use crate::identity::Identity;
use crate::ids::{CallId, Principal};

/// What happens to the suspensions of a call while nobody answers, as the tool's definition says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WaitingRules {
    /// How long before its expiry a suspension is told to expire, in milliseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remind_ms: Vec<u64>,
    /// What becomes of the call when a suspension expires; absent: the error `expired`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_expiry: Option<OnExpiry>,
    /// Who else may approve, and when; the earliest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub escalate: Vec<Escalation>,
}

impl WaitingRules {
    /// Whether the rules say nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What becomes of a call whose suspension expires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    /// An approval is denied.
    Deny,
    /// A person's or a page's call has this result.
    Result(Value),
}

/// From when on more people may approve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Escalation {
    /// Counted from the suspension.
    pub after_ms: u64,
    pub by: ApproverGroup,
}

/// A suspension will expire soon, and nobody has answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SuspensionExpiring {
    pub call_id: CallId,
    pub suspension: u32,
    pub expires_at: Timestamp,
}

/// A suspension waits longer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SuspensionExtended {
    pub call_id: CallId,
    pub suspension: u32,
    /// Its expiry from now on.
    pub expires_at: Timestamp,
    pub by: Principal,
    /// Who extended it; absent if nobody was authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Identity>))]
    pub identity: Option<Arc<Identity>>,
}

/// More people may approve a call from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SuspensionEscalated {
    pub call_id: CallId,
    pub suspension: u32,
    pub by: ApproverGroup,
}
