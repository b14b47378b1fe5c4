//! Messages that are delivered at a later time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::UserMsg;
use crate::Timestamp;
use crate::identity::Identity;
use crate::ids::{Principal, ScheduledId, TurnId};

/// A message is to be delivered later: as the `user_msg` that names the same `scheduled_id`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MessageScheduled {
    pub scheduled_id: ScheduledId,
    pub deliver_at: Timestamp,
    /// The turn that the message will begin.
    pub turn: TurnId,
    /// What becomes of the message if a turn runs then.
    #[serde(with = "IfBusyName")]
    #[cfg_attr(feature = "openapi", schema(value_type = IfBusyName))]
    pub if_busy: IfBusy,
    /// The message as it will be delivered.
    pub user_msg: UserMsg,
}

/// What to do with a message while a turn runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum IfBusy {
    #[default]
    Reject,
    Queue,
    Interrupt,
    /// The message is for the turn that runs, before its next step.
    Steer,
}

/// How a journal spells [`IfBusy`].
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = ScheduledIfBusy))]
#[serde(remote = "IfBusy", rename_all = "snake_case")]
enum IfBusyName {
    Reject,
    Queue,
    Interrupt,
    Steer,
}

/// A scheduled message will not be delivered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleEnded {
    pub scheduled_id: ScheduledId,
    pub reason: ScheduleEnd,
    /// Who withdrew it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Principal>,
    /// Who withdrew it; absent if nobody was authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Identity>))]
    pub identity: Option<Arc<Identity>>,
}

/// Why a scheduled message will not be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ScheduleEnd {
    /// Somebody withdrew it.
    Withdrawn,
    /// A turn ran when it was due, and the message was not to be queued.
    Busy,
}
