//! The store as a port: journals, claims, alarms, the inbox, agents' definitions, blobs, the audit.

mod claims;
pub mod commit_benchmark;
mod commit_rules;
#[cfg(test)]
mod conformance;
pub mod embedded;
pub mod memory;
mod paging;
pub mod redis;

use abide_actors::audit::AuditLog;
use abide_actors::blobs::Blobs;
use abide_actors::journal::{
    Claim, ConversationSummary, InboxEntry, InboxFilter, Journal, StoreError, StoredResponse,
};
use abide_conversation::event::SuspensionKind;
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::state::ConversationStatus;
use abide_conversation::{AgentName, ConversationId, DecisionId, Revision, Timestamp};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::partition::{Partition, PartitionSet};
pub use commit_rules::{STATE_FORMAT, agent_scope};

/// One page of a listing, and where the next begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Opaque; `None` at the end. A page may be short, even empty, before the end.
    pub cursor: Option<String>,
}

/// Why a listing was not given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// It was not made by this listing.
    #[error("cursor: not one that this listing gave")]
    Cursor,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Which conversations are asked for; `None` is any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadFilter {
    pub agent: Option<AgentName>,
    pub state: Option<ConversationStatus>,
}

impl HeadFilter {
    /// Whether the conversation is asked for.
    pub fn admits(&self, head: &ConversationSummary) -> bool {
        self.agent.as_ref().is_none_or(|agent| *agent == head.agent)
            && self.state.is_none_or(|state| state == head.state)
    }
}

/// A definition as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredAgent {
    pub name: AgentName,
    pub revision: Revision,
    pub definition: Value,
}

/// An open suspension, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuspensionCount {
    pub kind: SuspensionKind,
    pub since: Timestamp,
}

/// All that a node needs from its store. Every refusal is a value.
#[async_trait]
pub trait Store: Journal + Blobs + AuditLog {
    /// Who holds the conversation now.
    async fn holding(&self, id: &ConversationId) -> Result<Option<Claim>, StoreError>;

    /// What lists show of it.
    async fn head(&self, id: &ConversationId) -> Result<Option<ConversationSummary>, StoreError>;

    /// Conversations, by id.
    async fn conversations(
        &self,
        filter: &HeadFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<(ConversationId, ConversationSummary)>, ListError>;

    /// Open suspensions, oldest deadline first.
    async fn inbox(
        &self,
        filter: &InboxFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<InboxEntry>, ListError>;

    /// Open suspensions, each once, in an order of the store's own: for who counts them. What opens or
    /// closes between two pages may be in them or not. A store that puts the inbox in order at some
    /// cost has a cheaper way.
    async fn waiting(
        &self,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<SuspensionCount>, ListError> {
        let Page { items, cursor } = self.inbox(&InboxFilter::default(), cursor, limit).await?;
        let items = items.into_iter().map(|InboxEntry { pending, .. }| SuspensionCount {
            kind: pending.kind,
            since: pending.suspended_at,
        });
        Ok(Page { items: items.collect(), cursor })
    }

    /// The next alarms, earliest first.
    async fn alarms(&self, limit: usize) -> Result<Vec<(ConversationId, Timestamp)>, StoreError>;

    /// The alarms of a share that are due by `until`, earliest first: at least the first `limit` of
    /// them, and no more than `limit` of each partition.
    async fn due(
        &self,
        share: &PartitionSet,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(ConversationId, Timestamp)>, StoreError> {
        let mine = |id: &ConversationId| share.contains(Partition::from(id));
        let alarms = self.alarms(limit).await?.into_iter();
        Ok(alarms.filter(|(id, due)| *due <= until && mine(id)).collect())
    }

    /// Conversations of a share that want something running, and who holds them; in an order of the
    /// store's own.
    async fn active(
        &self,
        share: &PartitionSet,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<(ConversationId, Option<Claim>)>, ListError>;

    /// The last `seq` of each of these conversations; `None` where there is none.
    async fn last_seqs(&self, ids: &[ConversationId]) -> Result<Vec<Option<u64>>, StoreError> {
        let mut seqs = Vec::with_capacity(ids.len());
        for id in ids {
            seqs.push(self.head(id).await?.map(|head| head.last_seq));
        }
        Ok(seqs)
    }

    /// Stores a definition and makes it the newest of its name, keeping `answer` under the scope
    /// `agents/<name>`. Returns whether the name was new. A revision once stored stays for ever.
    async fn put_agent(
        &self,
        agent: StoredAgent,
        answer: Option<StoredResponse>,
    ) -> Result<bool, StoreError>;

    /// Keeps an answer under a scope that is no conversation's, unless one is kept there under its
    /// key that has not expired at `now`. Returns whether it was kept.
    async fn reserve(
        &self,
        scope: &str,
        answer: StoredResponse,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// The newest definition of a name.
    async fn agent(&self, name: &AgentName) -> Result<Option<StoredAgent>, StoreError>;

    /// The revision of that definition. A store that can tells it without reading the definition.
    async fn newest(&self, name: &AgentName) -> Result<Option<Revision>, StoreError> {
        Ok(self.agent(name).await?.map(|agent| agent.revision))
    }

    /// A definition by its revision, also one that was replaced or deleted.
    async fn revision(&self, revision: &Revision) -> Result<Option<StoredAgent>, StoreError>;

    /// The newest definitions of all names, by name.
    async fn agents(&self) -> Result<Vec<StoredAgent>, StoreError>;

    /// Deletes a name and the decisions remembered under it, keeping `answer` under
    /// `agents/<name>`; its revisions stay. Returns whether it was there.
    async fn delete_agent(
        &self,
        name: &AgentName,
        answer: Option<StoredResponse>,
    ) -> Result<bool, StoreError>;

    /// Remembers a decision for an agent, or forgets it. Returns whether it was there.
    async fn set_decision(
        &self,
        agent: &AgentName,
        id: &DecisionId,
        decision: Option<&RememberedDecision>,
    ) -> Result<bool, StoreError>;

    /// The decisions remembered for an agent, expired ones too, by id.
    async fn decisions(&self, agent: &AgentName) -> Result<Vec<RememberedDecision>, StoreError>;
}
