//! What travels between nodes: append-only, for nodes of two versions work side by side.
//!
//! A field that a node does not know is ignored, so one that is added must be optional. A variant
//! that it does not know makes the whole call unintelligible to it, and it says so.

use abide_actors::journal::Holder;
use abide_actors::live::Signal;
use abide_actors::request::{
    IdempotencyKey, Inspection, ReleaseOutcome, Reply, Request, RequestError,
};
use abide_conversation::{ConversationId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::sight::{ActorDetails, ActorSummary};

/// The version of all this. Nodes of different ones do not connect.
pub const WIRE: u32 = 1;

/// A call.
#[derive(Debug, Serialize, Deserialize)]
pub struct Envelope {
    /// By the cluster's clock. After this its caller has gone, and it must not be carried out.
    pub deadline: Timestamp,
    /// The calling process.
    pub from: String,
    pub ask: Call,
}

/// What one node asks of another.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// Carries a request to a conversation that lives there, or shall.
    Deliver {
        id: ConversationId,
        request: Box<Request>,
        repeats: Vec<IdempotencyKey>,
    },
    /// Starts a conversation there.
    Start {
        id: ConversationId,
    },
    /// What a live conversation is doing.
    Inspect {
        id: ConversationId,
    },
    /// The same, as operators see it.
    Look {
        id: ConversationId,
    },
    /// Rows of the conversations that live there, by id.
    Actors {
        after: Option<String>,
        limit: usize,
    },
    Kill {
        id: ConversationId,
    },
    /// The node is to drain.
    Drain,
    /// Signals for its listeners, and for whom this node listens.
    Tell(LiveUpdate),
    /// What waits there for a later attempt is to be tried now.
    Retry {
        id: ConversationId,
    },
    /// The conversation is to be let go, to another holder or to nobody.
    LetGo {
        id: ConversationId,
        to: Option<Holder>,
        force: bool,
    },
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallResult {
    Delivered(Result<Reply, RequestError>),
    Started,
    Inspected(Option<Box<Inspection>>),
    Looked(Option<Box<ActorDetails>>),
    Rows(Vec<ActorSummary>),
    Killed(bool),
    /// Heard, and will be done.
    Noted,
    /// Nothing was done: the conversation is held by another, or this node takes no more.
    NotHere,
    /// Done, and the answer is too large to send.
    TooLarge,
    /// Nothing was done: the deadline had passed.
    Late,
    /// Nothing was done: the call is of a kind that this node does not know.
    Unintelligible,
    /// What is tried again.
    Retried(Result<Vec<String>, RequestError>),
    Parted(Result<ReleaseOutcome, RequestError>),
}

/// News of the live plane, in the order in which they happened.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct LiveUpdate {
    /// All that this node listens to, instead of what it said before.
    pub anew: bool,
    pub listen: Vec<ConversationId>,
    pub unlisten: Vec<ConversationId>,
    pub signals: Vec<(ConversationId, Signal)>,
    /// The teller has forgotten what it was told: it wants to hear everything anew.
    #[serde(default)]
    pub forgot: bool,
    /// Signals for these listeners were dropped: they must look at the journal.
    pub missed: bool,
}
