//! What must be running: derived from the state, never stored.

use std::fmt;

use crate::ids::{CallId, ConversationId, DecisionId, TurnId};

/// One thing that runs outside the state and reports back as a command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activity {
    /// The next queued turn starts, on the newest revision.
    Start { turn: TurnId },
    /// A model call.
    Model { turn: TurnId, step: u32 },
    /// A run of a server tool, for a turn's call or a user's own one.
    Tool { call: CallId, attempt: u32 },
    /// A watch over a client call: it ends when no page was connected for `grace_ms`.
    Page { call: CallId, suspension: u32, grace_ms: u64 },
    /// A child that nobody waits for is stopped.
    Release { child: ConversationId },
    /// The parent is told what a turn came to.
    Tell { turn: TurnId },
    /// The agent is given a decision that is to hold for all of its conversations.
    Keep { decision: DecisionId },
    /// The other conversation's prefix is copied, from the event after this one on.
    Copy { after: u64 },
    /// A summary is written of what ended up to an event.
    Summarize { upto: u64 },
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Activity::Start { turn } => write!(f, "start of {turn}"),
            Activity::Model { turn, step } => write!(f, "model step {step} of {turn}"),
            Activity::Tool { call, attempt } => write!(f, "attempt {attempt} of {call}"),
            Activity::Page { call, .. } => write!(f, "page for {call}"),
            Activity::Release { child } => write!(f, "release of {child}"),
            Activity::Tell { turn } => write!(f, "report of {turn}"),
            Activity::Copy { after } => write!(f, "copying after {after}"),
            Activity::Summarize { upto } => write!(f, "summary up to {upto}"),
            Activity::Keep { decision } => write!(f, "keeping of {decision}"),
        }
    }
}
