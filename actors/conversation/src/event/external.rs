//! A call was handed to a program outside: to a worker of a queue, or to a tool that calls back.

use serde::{Deserialize, Serialize};

use super::{EffectiveArgs, OnInterrupt};
use crate::Timestamp;
use crate::ids::{CallId, LeaseId, QueueName};
use crate::numbers::Attempt;

/// An attempt of a call waits in a queue for a worker. Nothing runs for the call here until a worker
/// has answered it, or its time is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ToolQueued {
    pub call_id: CallId,
    #[cfg_attr(feature = "openapi", schema(value_type = u32))]
    pub attempt: Attempt,
    pub queue: QueueName,
    /// When the call ends without a result, however often it was leased until then.
    pub expires_at: Timestamp,
    /// What happens to the call when the lease of a worker runs out.
    pub on_interrupt: OnInterrupt,
    #[serde(rename = "ran", default, skip_serializing_if = "Option::is_none")]
    pub effective_args: Option<EffectiveArgs>,
}

/// A worker has the attempt until then. The same lease again, with a later end, is its extension.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ToolLeased {
    pub call_id: CallId,
    #[cfg_attr(feature = "openapi", schema(value_type = u32))]
    pub attempt: Attempt,
    pub lease: LeaseId,
    /// The worker's own name for itself.
    pub worker: String,
    pub until: Timestamp,
}

/// The tool accepted the attempt and is to call back with its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CallbackAwaited {
    pub call_id: CallId,
    #[cfg_attr(feature = "openapi", schema(value_type = u32))]
    pub attempt: Attempt,
    /// When the call ends without a result.
    pub expires_at: Timestamp,
    #[serde(rename = "ran", default, skip_serializing_if = "Option::is_none")]
    pub effective_args: Option<EffectiveArgs>,
}
