//! The activities that a conversation may want: derived from its state, never stored.

use std::fmt;

use crate::ids::{CallId, ConversationId, DecisionId, TurnId};
use crate::numbers::{Attempt, Seq, Step};

/// Something that runs outside the state and reports back with a command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activity {
    /// Start the next queued turn, on the agent's newest revision.
    StartTurn { turn: TurnId },
    /// Call the model for one step.
    CallModel { turn: TurnId, step: Step },
    /// Run a server tool, for a turn's call or for a dispatch.
    RunTool { call: CallId, attempt: Attempt },
    /// Watch over a client call: report when no client was connected for `grace_ms`.
    AwaitClient { call: CallId, suspension: u32, grace_ms: u64 },
    /// Stop a child that nobody waits for.
    StopChild { child: ConversationId },
    /// Report the outcome of a turn to the parent.
    NotifyParent { turn: TurnId },
    /// Give the agent a decision that holds for all of its conversations.
    PublishDecision { decision: DecisionId },
    /// Copy the original's prefix, beginning with the event after this one.
    CopyFork { after: Seq },
    /// Summarize the turns that ended up to this event.
    Summarize { upto: Seq },
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Activity::StartTurn { turn } => write!(f, "start of {turn}"),
            Activity::CallModel { turn, step } => write!(f, "model step {step} of {turn}"),
            Activity::RunTool { call, attempt } => write!(f, "attempt {attempt} of {call}"),
            Activity::AwaitClient { call, .. } => write!(f, "page for {call}"),
            Activity::StopChild { child } => write!(f, "release of {child}"),
            Activity::NotifyParent { turn } => write!(f, "report of {turn}"),
            Activity::CopyFork { after } => write!(f, "copying after {after}"),
            Activity::Summarize { upto } => write!(f, "summary up to {upto}"),
            Activity::PublishDecision { decision } => write!(f, "keeping of {decision}"),
        }
    }
}
