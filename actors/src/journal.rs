//! The journal as a port: everything that a conversation needs from a store
//! (`reference/journal.md`).

mod listing;
mod rewrite;

use std::fmt;
use std::sync::Arc;

use abide_conversation::event::{Event, SuspensionKind};
use abide_conversation::identity::{Participants, Subject};
use abide_conversation::state::{ConversationStatus, PendingCall, QueueEntry};
use abide_conversation::{
    AgentName, CallId, ConversationId, Scoped, Seq, State, Tenant, Timestamp,
};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::access::Answerer;
use crate::identity::{Epoch, Incarnation, NodeName};
use crate::notices::OwedNotice;
use crate::usage_counts::UsageCounts;

pub use listing::{ListEntry, Relisting};
pub use rewrite::Rewrite;

/// One incarnation of a node, which may hold conversations.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Holder {
    pub node: NodeName,
    pub incarnation: Incarnation,
}

/// The claim on a conversation. Every new claim raises the epoch; always compare both fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub holder: Holder,
    pub epoch: Epoch,
}

impl Claim {
    /// Stands for the claim that this holder has not made yet: epochs of claims begin with 1.
    pub fn unclaimed(holder: Holder) -> Self {
        Self { holder, epoch: Epoch::ZERO }
    }

    /// Whether it only stands for a claim.
    pub fn is_unclaimed(&self) -> bool {
        self.epoch == Epoch::ZERO
    }
}

/// Why a store did not carry out an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum StoreError {
    /// Another claim has replaced this one; the writer must stop.
    #[error("the conversation is held by another")]
    Fenced,
    /// The journal is not as the writer expected: its `seq` differs, or whether it exists at all.
    #[error("the journal has moved on")]
    Conflict,
    /// The store cannot be reached, or cannot write. The outcome of a write is unknown.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// What is stored cannot be read: it was changed, or its key is not there. Another attempt changes
    /// nothing. Nodes of a version without this take it for `Unavailable`.
    #[error("the conversation cannot be read: {0}")]
    #[serde(rename(serialize = "Unavailable"), skip_deserializing)]
    Unreadable(String),
}

/// What lists show of a conversation; stored in addition to its journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConversationSummary {
    pub agent: AgentName,
    #[serde(rename = "state")]
    pub status: ConversationStatus,
    pub last_seq: Seq,
    pub created_at: Timestamp,
    pub metadata: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Participants::is_empty")]
    pub participants: Participants,
    pub alarm: Option<Timestamp>,
    /// Whether the state calls for an activity.
    pub active: bool,
    /// As of the last commit that [touched](Relisting) it.
    #[serde(default)]
    pub listing: ListEntry,
}

/// How long the response to a mutating request is stored.
pub const RESPONSE_TTL: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);

/// The response to a mutating request, stored so that a repeat gets the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredResponse {
    /// Unique within its scope, such as `key:…` or `message:…`.
    pub key: String,
    /// The fingerprint of the request's body. A repeat with another one is the client's mistake.
    pub fingerprint: String,
    pub body: Value,
    /// The store may delete it after this time.
    pub expires_at: Timestamp,
}

/// What a request was about whose response is stored: the keys of responses are unique within it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ResponseScope {
    Conversation(Scoped<ConversationId>),
    /// An agent, and the decisions remembered for it.
    Agent(Scoped<AgentName>),
    /// What a tenant creates, and its schedules and webhooks: what has no journal of its own.
    Creations(Tenant),
}

impl ResponseScope {
    /// The scope as text, unlike that of any other. Stores keep it, so it must never change.
    pub fn text(&self) -> String {
        let is_default = |tenant: &Tenant| *tenant == Tenant::default();
        match self {
            Self::Conversation(id) if is_default(&id.tenant()) => id.to_string(),
            Self::Conversation(id) => format!("conversations/{id}"),
            Self::Agent(name) => format!("agents/{name}"),
            Self::Creations(tenant) if is_default(tenant) => "conversations/".to_owned(),
            Self::Creations(tenant) => format!("conversations/{tenant}/"),
        }
    }
}

/// Everything that one decision writes, atomically.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// Consecutive events; the first follows the journal's last.
    pub events: Arc<[Event]>,
    /// The JSON of each event, if the writer has it already.
    pub json: Option<Arc<[Vec<u8>]>>,
    pub summary: ConversationSummary,
    /// Suspensions that this commit opens.
    pub opened: Vec<PendingCall>,
    /// Suspensions that this commit closes.
    pub closed: Vec<ClosedSuspension>,
    /// The folded state after `events`; present now and then, as a cache that is never the truth.
    pub state: Option<Arc<State>>,
    /// Stored under the conversation's scope.
    pub responses: Vec<StoredResponse>,
    /// Whether the commit completes something, so that the deaths counted so far are forgotten
    /// ([`ClaimedConversation::deaths`]). Never set where none were counted.
    pub resets_deaths: bool,
    /// What the events add to the usage of their day, of the conversation's agent and owner.
    pub usage: Option<UsageCounts>,
    /// What the events owe to webhooks, in their order.
    pub owed: Vec<OwedNotice>,
    /// All calls of the conversation that wait in queues from now on, if that changes.
    pub queued: Option<Vec<QueueEntry>>,
    /// What changes of the conversation's entry in lists. The first commit always writes the whole
    /// entry.
    pub relisting: Relisting,
}

impl Commit {
    /// A commit of events that neither opens nor closes a suspension, and leaves the conversation's
    /// entry in lists as it is.
    pub fn new(events: Arc<[Event]>, summary: ConversationSummary) -> Self {
        Self {
            events,
            json: None,
            summary,
            opened: Vec::new(),
            closed: Vec::new(),
            state: None,
            responses: Vec::new(),
            resets_deaths: false,
            usage: None,
            owed: Vec::new(),
            queued: None,
            relisting: Relisting::Unchanged,
        }
    }

    /// The calls that begin to wait in a queue, given those that waited before.
    pub fn arrived(&self, before: &[QueueEntry]) -> Vec<QueueEntry> {
        let is_new = |entry: &&QueueEntry| !before.contains(entry);
        self.queued.iter().flatten().filter(is_new).cloned().collect()
    }

    /// The JSON of each event.
    pub fn event_json(&self) -> Result<Arc<[Vec<u8>]>, StoreError> {
        match &self.json {
            Some(json) => Ok(json.clone()),
            None => event_json(&self.events),
        }
    }
}

/// Room for the JSON of a usual event: a buffer that grows is copied each time.
const USUAL_EVENT_BYTES: usize = 512;

/// The JSON of each of these events, as stores write it.
pub fn event_json(events: &[Event]) -> Result<Arc<[Vec<u8>]>, StoreError> {
    let write = |event: &Event| {
        let mut json = Vec::with_capacity(USUAL_EVENT_BYTES);
        serde_json::to_writer(&mut json, event).map(|()| json)
    };
    let json: Result<_, _> = events.iter().map(write).collect();
    json.map_err(|error| StoreError::Unavailable(error.to_string()))
}

/// Names the inbox entry of a suspension that has closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedSuspension {
    pub call_id: CallId,
    pub suspension: u32,
    pub expires_at: Timestamp,
}

/// A conversation as the store has it; the current state is `state` with `events` replayed onto it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredConversation {
    pub state: State,
    pub events: Vec<Event>,
    /// The last event in the state that the store has cached; less than that of `state` if the store
    /// has folded further events already.
    pub cached_seq: Seq,
}

/// A conversation as a claimant finds it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimedConversation {
    /// The claim that is valid after the call, whoever won it.
    pub claim: Claim,
    /// How many holders died while the conversation was at work, since anything of it was
    /// completed last.
    pub deaths: u32,
    /// The alarm that the store has, if the claimant holds the conversation.
    pub alarm: Option<Timestamp>,
    /// Present if the claimant holds the conversation and it exists.
    pub stored: Option<StoredConversation>,
}

/// An open suspension in the inbox of the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InboxEntry {
    pub conversation_id: ConversationId,
    pub agent: AgentName,
    #[serde(flatten)]
    pub participants: Participants,
    #[serde(flatten)]
    pub pending: PendingCall,
}

/// Selects inbox entries; a field that is `None` matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InboxFilter {
    pub kind: Option<SuspensionKind>,
    pub agent: Option<AgentName>,
    pub tool: Option<String>,
    pub conversation: Option<ConversationId>,
    pub visible_to: Viewer,
    /// Only what they may answer.
    pub answerable_by: Option<Answerer>,
}

/// Who looks at a list; it shows what they may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Viewer {
    /// Somebody who may see everything.
    #[default]
    Everything,
    /// This subject, as the owner or a member of conversations.
    Participant(String),
    /// An approver, who sees the approvals that are asked of them, whosever the conversations are.
    Approver(Subject),
    /// An approver who also is the owner or a member of conversations.
    ApprovingParticipant(Subject),
}

impl Viewer {
    /// Whether the viewer may see a conversation of these participants.
    pub fn sees(&self, participants: &Participants) -> bool {
        match self {
            Self::Everything => true,
            Self::Participant(sub) => participants.include(sub),
            Self::ApprovingParticipant(subject) => participants.include(&subject.sub),
            Self::Approver(_) => false,
        }
    }

    /// Whether the viewer may see a suspension of a conversation of these participants.
    fn sees_suspension(&self, pending: &PendingCall, participants: &Participants) -> bool {
        let is_asked = match self {
            Self::Everything | Self::Participant(_) => false,
            Self::Approver(subject) | Self::ApprovingParticipant(subject) => {
                matches!(pending.kind, SuspensionKind::Approval | SuspensionKind::InDoubt)
                    && pending.policy.as_ref().is_none_or(|policy| policy.asks(subject))
            }
        };
        is_asked || self.sees(participants)
    }
}

impl InboxFilter {
    /// Whether the filter selects the entry.
    pub fn admits(&self, entry: &InboxEntry) -> bool {
        self.kind.is_none_or(|kind| kind == entry.pending.kind)
            && self.agent.as_ref().is_none_or(|agent| *agent == entry.agent)
            && self.tool.as_ref().is_none_or(|tool| *tool == entry.pending.tool)
            && self.conversation.as_ref().is_none_or(|id| *id == entry.conversation_id)
            && self.visible_to.sees_suspension(&entry.pending, &entry.participants)
            && self
                .answerable_by
                .as_ref()
                .is_none_or(|caller| caller.may_answer(&entry.participants, &entry.pending))
    }
}

/// Reads and writes one conversation's journal.
///
/// What a read returns, or that it finds nothing, has the configured durability: an earlier write
/// whose outcome was `Unavailable` is never shown and then lost. Claims alone may be lost.
#[async_trait]
pub trait Journal: Send + Sync + 'static {
    /// Claims a conversation for `me` with a higher epoch, if nobody holds it or `dead` does.
    ///
    /// Returns the claim that is valid after the call: the loser of a race learns the winner from
    /// it. With its own holder as `dead`, a node fences an earlier actor of its own. A conversation
    /// that does not exist yet can be claimed, too.
    async fn claim(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<Claim, StoreError>;

    /// Gives a claim up. Does nothing if it is not the current one.
    async fn release(&self, id: &Scoped<ConversationId>, claim: &Claim) -> Result<(), StoreError>;

    /// Deletes a conversation with all its indexes, and stores `response` under its scope and what
    /// the deletion owes. What the conversation owed before outlives it. `Fenced` unless `claim` is
    /// the current claim.
    async fn delete(
        &self,
        id: &Scoped<ConversationId>,
        claim: &Claim,
        response: Option<StoredResponse>,
        owed: Vec<OwedNotice>,
    ) -> Result<(), StoreError>;

    /// Appends one commit atomically, at the configured durability.
    ///
    /// `Fenced` unless `claim` is the conversation's current claim; `Conflict` unless the first
    /// event follows the journal's last. After `Unavailable` the outcome is unknown: replay. A
    /// commit without events still writes its summary and its responses.
    async fn append(
        &self,
        id: &Scoped<ConversationId>,
        claim: &Claim,
        commit: Commit,
    ) -> Result<(), StoreError>;

    /// Replaces events of a journal by others of the same numbers, and its summary, its entry in lists
    /// and its entries in the inbox, and drops its cached state: all of it or nothing, at the
    /// configured durability. A repeat changes nothing more.
    ///
    /// `Fenced` unless `claim` is the conversation's current claim; `Conflict` unless the journal ends
    /// where the summary says.
    async fn rewrite(
        &self,
        id: &Scoped<ConversationId>,
        claim: &Claim,
        rewrite: Rewrite,
    ) -> Result<(), StoreError>;

    /// The latest cached state, or one that the store has folded from it and the events after it, and
    /// the events after that; `None` if there is no such conversation. Takes as long as a long
    /// journal takes, and fails if the store falls silent in between.
    async fn load(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<StoredConversation>, StoreError>;

    /// [Claims](Journal::claim) a conversation, and [loads](Journal::load) it if `me` then holds
    /// it. A claim that replaces another holder's, who is dead then, counts its death if the
    /// conversation is [active](ConversationSummary::active).
    ///
    /// A store that only one process uses counts the end of the last process the same way, unless
    /// that closed the store.
    async fn claim_and_load(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<ClaimedConversation, StoreError>;

    /// Claims a conversation that nobody holds and that does not exist, and appends its first commit.
    /// Returns the claim.
    ///
    /// `Conflict` if it is held, by whomever, or exists; then nothing was written. After `Unavailable`
    /// the outcome is unknown.
    async fn claim_and_append(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        commit: Commit,
    ) -> Result<Claim, StoreError>;

    /// Forgets the deaths that claims counted.
    async fn reset_deaths(&self, id: &Scoped<ConversationId>) -> Result<(), StoreError>;

    /// At most `limit` events with `seq > after`, oldest first; empty for an unknown conversation.
    async fn events(
        &self,
        id: &Scoped<ConversationId>,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError>;

    /// [`events`](Journal::events) of a conversation that the caller holds and has loaded or
    /// appended to: it need not wait for their durability again.
    async fn own_events(
        &self,
        id: &Scoped<ConversationId>,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.events(id, after, limit).await
    }

    /// At most `limit` events with `seq < before`, newest first.
    async fn events_before(
        &self,
        id: &Scoped<ConversationId>,
        before: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError>;

    /// The summary of a conversation, as of its last commit.
    async fn summary(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<ConversationSummary>, StoreError>;

    /// The response stored under a scope and a key, unless it has expired at `now`.
    async fn stored_response(
        &self,
        scope: &ResponseScope,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<StoredResponse>, StoreError>;
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node, self.incarnation)
    }
}
