//! Requests about turns: those that wait or run, and those that are taken back.

use abide_conversation::Seq;
use abide_conversation::branch::{BranchTip, RewindPoint};
use abide_conversation::event::{Steered, UserMsg};
use abide_conversation::ids::{Principal, TurnId};
use serde::{Deserialize, Serialize};

/// A queued turn is not to start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WithdrawRequest {
    pub turn: TurnId,
    pub by: Principal,
}

/// The conversation is to go on from an earlier event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RewindRequest {
    pub to_seq: Seq,
    /// What the journal results in up to that event, which never changes.
    pub point: RewindPoint,
    pub by: Principal,
}

/// A turn is to begin anew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegenerateRequest {
    /// The place before the turn.
    pub rewind: RewindRequest,
    /// How far the conversation was when the turn was looked up.
    pub tip: BranchTip,
    /// The turn's message.
    pub message: UserMsg,
    /// The messages that steered the turn; a node of a version that does not know them leaves them out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steering: Vec<Steered>,
}
