//! The journal as a port: what a conversation needs from a store.

use std::fmt;
use std::sync::Arc;

use abide_conversation::event::{Event, SuspensionKind};
use abide_conversation::state::{ConversationStatus, PendingCall};
use abide_conversation::{AgentName, CallId, ConversationId, State, Timestamp};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A node's process: its name, and which of its lives.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Holder {
    pub node: String,
    pub incarnation: String,
}

/// A claim on a conversation. Every claim raises the epoch; compare both fields, never one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub holder: Holder,
    pub epoch: u64,
}

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum StoreError {
    /// Another holding has taken over; this writer must stop.
    #[error("the conversation is held by another")]
    Fenced,
    /// The journal is not where the writer thought: its `seq` differs, or it exists or not.
    #[error("the journal has moved on")]
    Conflict,
    /// The store is away, or cannot write. Of a write, the outcome is unknown.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
}

/// What lists show of a conversation, kept beside its journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConversationSummary {
    pub agent: AgentName,
    pub state: ConversationStatus,
    pub last_seq: u64,
    pub created_at: Timestamp,
    pub metadata: Map<String, Value>,
    pub alarm: Option<Timestamp>,
    /// Whether it wants something running.
    pub active: bool,
}

/// How long the answer to a mutating call is kept.
pub const ANSWERS_KEPT: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);

/// The answer to a mutating call, kept so that a repeat gets it too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredResponse {
    /// What distinguishes it within its scope, such as `key:…` or `message:…`.
    pub key: String,
    /// Of the request's body; a repeat with another is a mistake of the client.
    pub fingerprint: String,
    pub body: Value,
    /// After this it may be forgotten.
    pub expires_at: Timestamp,
}

/// Everything that one decision writes, or nothing of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// Consecutive; the first follows the journal's last.
    pub events: Arc<[Event]>,
    pub head: ConversationSummary,
    /// Suspensions that this commit opens.
    pub opened: Vec<PendingCall>,
    /// Suspensions that it closes: their call, kind number and deadline.
    pub closed: Vec<ClosedSuspension>,
    /// The folded state after `events`, now and then: a cache, never the truth.
    pub state: Option<State>,
    /// Kept under the conversation's scope.
    pub answers: Vec<StoredResponse>,
}

/// Names an inbox entry that is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedSuspension {
    pub call_id: CallId,
    pub suspension: u32,
    pub expires_at: Timestamp,
}

/// A conversation as it is stored: replay `events` onto `state`.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredConversation {
    pub state: State,
    pub events: Vec<Event>,
}

/// An open suspension in the inbox of the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InboxEntry {
    pub conversation_id: ConversationId,
    pub agent: AgentName,
    #[serde(flatten)]
    pub pending: PendingCall,
}

/// Which inbox entries are asked for; `None` is any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InboxFilter {
    pub kind: Option<SuspensionKind>,
    pub agent: Option<AgentName>,
    pub tool: Option<String>,
    pub conversation: Option<ConversationId>,
}

impl InboxFilter {
    /// Whether the entry is asked for.
    pub fn admits(&self, entry: &InboxEntry) -> bool {
        self.kind.is_none_or(|kind| kind == entry.pending.kind)
            && self.agent.as_ref().is_none_or(|agent| *agent == entry.agent)
            && self.tool.as_ref().is_none_or(|tool| *tool == entry.pending.tool)
            && self.conversation.as_ref().is_none_or(|id| *id == entry.conversation_id)
    }
}

/// Reads and writes one conversation's journal.
#[async_trait]
pub trait Journal: Send + Sync + 'static {
    /// Claims a conversation for `me`, if nobody holds it or `dead` does, with a higher epoch.
    ///
    /// Returns the holding after the call: whoever lost the race reads the winner from it. With
    /// `dead` its own holder, a node fences an earlier actor of its own. Also claims a conversation
    /// that does not exist yet.
    async fn claim(
        &self,
        id: &ConversationId,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<Claim, StoreError>;

    /// Gives a claim up; nothing happens if it is not the present one.
    async fn release(&self, id: &ConversationId, held: &Claim) -> Result<(), StoreError>;

    /// Removes a conversation with all its indexes, keeping `answer` under its scope. `Fenced`
    /// unless `held` is the present holding.
    async fn delete(
        &self,
        id: &ConversationId,
        held: &Claim,
        answer: Option<StoredResponse>,
    ) -> Result<(), StoreError>;

    /// Appends one commit atomically, at the configured durability.
    ///
    /// `Fenced` unless `held` is the conversation's present holding; `Conflict` unless the first
    /// event follows the journal's last. After `Unavailable` the outcome is unknown: replay. A commit
    /// without events still writes its head and answers.
    async fn append(
        &self,
        id: &ConversationId,
        held: &Claim,
        commit: Commit,
    ) -> Result<(), StoreError>;

    /// The latest cached state and the events after it; `None` if there is no such conversation.
    async fn load(&self, id: &ConversationId) -> Result<Option<StoredConversation>, StoreError>;

    /// [Claims](Journal::claim), and [loads](Journal::load) if `me` holds the conversation then.
    async fn claim_and_load(
        &self,
        id: &ConversationId,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<(Claim, Option<StoredConversation>), StoreError> {
        let held = self.claim(id, me, dead).await?;
        let loaded = if held.holder == *me { self.load(id).await? } else { None };
        Ok((held, loaded))
    }

    /// At most `limit` events with `seq > after`, oldest first; empty for an unknown conversation.
    async fn events(
        &self,
        id: &ConversationId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError>;

    /// At most `limit` events with `seq < before`, newest first.
    async fn events_before(
        &self,
        id: &ConversationId,
        before: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError>;

    /// The answer kept under a scope (a conversation's id, or another name) and key, unless it has
    /// expired at `now`.
    async fn answer(
        &self,
        scope: &str,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<StoredResponse>, StoreError>;
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node, self.incarnation)
    }
}
