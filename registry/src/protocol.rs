//! The messages that travel between nodes. They only grow, because nodes of two versions work
//! together.
//!
//! A node ignores a field that it does not know, so a new field must be optional. A variant that it
//! does not know makes the whole call unintelligible to it, and it answers so.

mod calls;

use std::sync::Arc;

use abide_actors::child_calls::ChildCalls;
use abide_actors::live::{CallDelta, Signal};
use abide_actors::request::{Inspection, ReleaseOutcome, Reply, RequestError};
use abide_conversation::{ConversationId, Scoped, Timestamp};
use serde::{Deserialize, Serialize};

use crate::actor_view::{ActorDetails, ActorSummary};
use crate::member::ProcessId;
use crate::queue_calls::{QueueRequest, QueueResponse};
pub use calls::{
    Call, Deliver, Drain, GetActor, Inspect, Kill, ListActors, REQUEST_TIMEOUT, Release, Retry,
    Start, SyncPermits,
};

/// The version of this protocol. Nodes of different versions do not connect.
pub const PROTOCOL_VERSION: u32 = 1;

/// The version of the directory of listeners and publishers. A node that does not know it, version 0, is
/// told of every listener, and tells all nodes of its own.
pub const LIVE_DIRECTORY_VERSION: u32 = 1;

/// The version of the form of stored values. A node of version 0 reads nothing that is compressed, and so
/// nothing is compressed while it is a member.
pub const STORED_FORM_VERSION: u32 = 1;

/// The version of the handshake that precedes the protocol. In version 0 both ends show keys that are
/// derived from the secret, in version 1 the dialling side proves the secret first. A node of version
/// 1 speaks version 0 with members that do not know 1, so that one can replace the other.
pub const HANDSHAKE_VERSION: u32 = 1;

/// A call with what its receiver needs to know of the caller.
#[derive(Debug, Serialize, Deserialize)]
pub struct Envelope {
    /// By the cluster's clock. After this the caller has gone, and the call must not be carried
    /// out.
    pub deadline: Timestamp,
    /// The calling process.
    pub from: ProcessId,
    #[serde(rename = "ask")]
    pub call: CallRequest,
}

/// What one node asks of another: any [`Call`], as it travels.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallRequest {
    Deliver(Deliver),
    Start(Start),
    Inspect(Inspect),
    #[serde(rename = "look")]
    GetActor(GetActor),
    #[serde(rename = "actors")]
    ListActors(ListActors),
    Kill(Kill),
    Drain,
    Tell(LiveUpdate),
    Register(Register),
    Retry(Retry),
    #[serde(rename = "let_go")]
    Release(Release),
    QueueRequest(QueueRequest),
    SyncPermits(SyncPermits),
}

/// What the other node answers: the answer to any [`Call`], as it travels, or why there is none.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    Delivered(Result<Reply, RequestError>),
    Started,
    Inspected(Option<Box<Inspection>>),
    #[serde(rename = "looked")]
    Actor(Option<Box<ActorDetails>>),
    #[serde(rename = "rows")]
    Actors(Vec<ActorSummary>),
    Killed(bool),
    /// The call was received and takes effect.
    #[serde(rename = "noted")]
    Acknowledged,
    /// Nothing was done: another node holds the conversation, or this node takes no more.
    NotHere,
    /// The call was carried out, and its answer is too large to send.
    TooLarge,
    /// Nothing was done: the deadline had passed.
    Late,
    /// Nothing was done: this node does not know calls of this kind.
    Unintelligible,
    Registered(Registered),
    Retried(Result<Vec<String>, RequestError>),
    #[serde(rename = "parted")]
    Released(Result<ReleaseOutcome, RequestError>),
    Queue(QueueResponse),
    /// How many more calls may begin; `None` if another node gives the permits.
    PermitsGiven(Option<u32>),
}

/// Changes and signals of the live plane, in the order in which they happened.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct LiveUpdate {
    /// `listen` is all that the sender listens to and replaces what it said before.
    pub anew: bool,
    pub listen: Vec<Scoped<ConversationId>>,
    pub unlisten: Vec<Scoped<ConversationId>>,
    pub signals: Vec<(Scoped<ConversationId>, Signal)>,
    /// The sender has forgotten what the receiver told it, and wants to be told everything anew.
    #[serde(default)]
    pub forgot: bool,
    /// What descendants of roots wait for, with the root. A node of an older version ignores it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<(Scoped<ConversationId>, Arc<ChildCalls>)>,
    /// Pieces of the arguments of calls that models write. A node of an older version ignores them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub call_args: Vec<(Scoped<ConversationId>, Arc<CallDelta>)>,
    /// Processes that publish signals of these conversations, which the receiver tells whether it
    /// listens. Only the node that keeps the directory says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub publishers: Vec<(Scoped<ConversationId>, ProcessId)>,
    /// Signals for the receiver's listeners were dropped: they must read the journal.
    pub missed: bool,
}

/// What a node registers in the directory that the receiver keeps.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// This is all that the sender has to register, and replaces what it registered before.
    pub anew: bool,
    pub listen: Vec<Scoped<ConversationId>>,
    pub unlisten: Vec<Scoped<ConversationId>>,
    pub publish: Vec<Scoped<ConversationId>>,
    pub unpublish: Vec<Scoped<ConversationId>>,
}

/// What the directory knows of the other side of each registration.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The other processes that publish, by conversation.
    pub publishers: Vec<(Scoped<ConversationId>, Vec<ProcessId>)>,
    /// The other processes with listeners, by conversation that is published; they say so themselves.
    pub listeners: Vec<(Scoped<ConversationId>, Vec<ProcessId>)>,
}

impl LiveUpdate {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        let is_silent = !self.anew && !self.forgot && !self.missed;
        let has_no_listeners = self.listen.is_empty() && self.unlisten.is_empty();
        let has_no_signals =
            self.signals.is_empty() && self.children.is_empty() && self.call_args.is_empty();
        is_silent && has_no_listeners && has_no_signals && self.publishers.is_empty()
    }
}

impl Register {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
