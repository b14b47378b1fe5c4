//! Commands about turns: those that wait or run, and those that are taken back.

use std::sync::Arc;

use super::{Cancel, Send};
use crate::branch::{BranchTip, RewindPoint};
use crate::event::Steered;
use crate::identity::Identity;
use crate::ids::{Principal, TurnId};
use crate::numbers::Seq;

/// Withdraws the message of a queued turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Withdraw {
    pub turn: TurnId,
    /// Ends the turn if it runs, and changes nothing if it has ended; `None` refuses both.
    pub cancel: Option<Cancel>,
    pub by: Principal,
    pub identity: Option<Arc<Identity>>,
}

/// Goes on from an earlier event.
#[derive(Clone, Debug, PartialEq)]
pub struct Rewind {
    pub to_seq: Seq,
    /// What the journal results in up to that event.
    pub point: RewindPoint,
    pub by: Principal,
    pub identity: Option<Arc<Identity>>,
}

/// Begins a turn anew: goes on from before it, with its message.
#[derive(Clone, Debug, PartialEq)]
pub struct Regenerate {
    pub rewind: Rewind,
    /// How far the conversation was when the turn was looked up.
    pub tip: BranchTip,
    pub send: Send,
    /// The messages that had steered the turn, which the model reads with the first one.
    pub steering: Vec<Steered>,
}
