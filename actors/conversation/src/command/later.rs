//! Commands about what happens later: messages that are scheduled, and suspensions that wait longer.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Send;
use crate::Timestamp;
use crate::identity::Identity;
use crate::ids::{CallId, Principal, ScheduledId};

/// A user's message for later.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    pub scheduled_id: ScheduledId,
    pub deliver_at: Timestamp,
    pub send: Send,
}

/// Withdraws a scheduled message.
#[derive(Clone, Debug, PartialEq)]
pub struct Unschedule {
    pub scheduled_id: ScheduledId,
    pub by: Principal,
    pub identity: Option<Arc<Identity>>,
}

/// Lets a suspension wait longer.
#[derive(Clone, Debug, PartialEq)]
pub struct Extend {
    pub call: CallId,
    /// The number of the suspension; `None` for whichever is open.
    pub suspension: Option<u32>,
    pub extension: Extension,
    pub by: Principal,
    pub identity: Option<Arc<Identity>>,
}

/// How much longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Extension {
    /// Milliseconds beyond the present expiry.
    For(u64),
    Until(Timestamp),
}
