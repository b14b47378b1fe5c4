//! What concerns a call that a program outside carries out.

use serde::{Deserialize, Serialize};

use crate::event::{EffectiveArgs, OnInterrupt};
use crate::ids::{CallId, LeaseId, QueueName, TurnId};
use crate::message::{Outcome, Ui};
use crate::numbers::Attempt;

/// Something about a call that a program outside carries out.
#[derive(Clone, Debug, PartialEq)]
pub enum ExternalAction {
    Queue(QueueCall),
    AwaitCallback(AwaitCallback),
    Lease(LeaseCall),
    Extend(ExtendLease),
    Complete(Box<CompleteCall>),
}

/// A started attempt goes into a queue, for a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueCall {
    pub call: CallId,
    pub attempt: Attempt,
    pub queue: QueueName,
    pub on_interrupt: OnInterrupt,
    /// The arguments for the worker, if they are not the journalled ones.
    pub effective_args: Option<EffectiveArgs>,
}

/// A tool accepted an attempt and is to call back.
#[derive(Clone, Debug, PartialEq)]
pub struct AwaitCallback {
    pub call: CallId,
    pub attempt: Attempt,
    /// The arguments that the tool was given, if they are not the journalled ones.
    pub effective_args: Option<EffectiveArgs>,
}

/// A worker takes an attempt that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseCall {
    pub call: CallId,
    pub attempt: Attempt,
    pub queue: QueueName,
    pub lease: LeaseId,
    pub worker: String,
    pub for_ms: u64,
}

/// A worker needs its lease for longer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExtendLease {
    pub call: CallId,
    pub lease: LeaseId,
    /// Counted from now.
    pub for_ms: u64,
}

/// A program outside has the call's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompleteCall {
    pub call: CallId,
    pub proof: Proof,
    pub outcome: Outcome,
    pub ui: Option<Ui>,
    /// Halts the turn, for this reason.
    pub halt: Option<String>,
}

/// Why a program may complete a call, or report its progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// It leased the call.
    Lease(LeaseId),
    /// It was sent this attempt of the call, or an earlier one under the same idempotency key.
    Callback { turn: TurnId, attempt: Attempt },
}
