//! What a child owes its parent.

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::event::TurnOutcome;
use crate::ids::TurnId;

/// The report that a child owes its parent, of its first turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwedReport {
    pub turn: TurnId,
    pub outcome: TurnOutcome,
    pub reason: Option<String>,
    /// The number of model calls.
    pub steps: u32,
    /// The number of tool calls.
    pub calls: u32,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
}
