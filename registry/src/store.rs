//! The store as a port: journals, claims, alarms, the inbox, agent definitions, blobs, the audit, and
//! that of operators.

mod api_keys;
mod blob_names;
mod claimed_cache;
mod claims;
pub mod commit_benchmark;
mod commit_rules;
mod compression;
#[cfg(test)]
pub(crate) mod conformance;
pub mod embedded;
mod erasures;
mod listing;
pub mod memory;
mod notices;
mod operations;
mod paging;
mod queues;
pub mod redis;
mod revisions;
mod rollout;
mod schedules;
mod sealing;
mod staging;
mod stored_form;
mod usage;

use std::collections::{BTreeMap, BTreeSet};

use abide_actors::audit::AuditLog;
use abide_actors::blobs::Blobs;
use abide_actors::journal::{
    Claim, ConversationSummary, InboxEntry, InboxFilter, Journal, ResponseScope, StoreError,
    StoredResponse, Viewer,
};
use abide_conversation::event::SuspensionKind;
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::state::ConversationStatus;
use abide_conversation::{
    AgentName, ConversationId, DecisionId, Revision, Scoped, Seq, Tenant, Timestamp,
};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::partition::{Partition, PartitionSet};
pub use api_keys::{KeyChange, KeyList, ScopedKeyId, StoredKey};
pub use blob_names::{BlobNames, DroppedNames};
pub use commit_rules::STATE_FORMAT;
pub use compression::{Compression, decompress};
pub use erasures::Erasures;
pub use listing::{
    Direction, IndexJob, IndexJobs, ListOrder, ListQuery, ListedConversation, Lists, Period,
    Rebuild, active_at,
};
pub use notices::{
    Attempts, Delivery, DeliveryState, LISTED_PER_QUEUE, MAX_DEAD_PER_PARTITION, NoticeCounts,
    NoticeHead, NoticeQueue, Outbox, Settlement, StoredNotice, WebhookChange, WebhookEdit,
    WebhookList,
};
pub use operations::{
    AuditLevel, ChainEnd, ChainEntry, ChainError, Effect, MAX_OPERATIONS, Operation, OperationLog,
    OperationOutcome, verify_chain,
};
pub use paging::{InboxKey, cursor_after, inbox_cursor, inbox_key, pages};
pub(crate) use paging::{decode as decode_cursor, encode as encode_cursor};
pub use queues::{MAX_QUEUES, QueueDepth, QueueHeads, QueueIndex};
pub use revisions::{History, HistoryEntry};
pub use rollout::{CurrentRevisions, Rollout, RolloutChange};
pub use schedules::Schedules;
pub use sealing::{KeyFileError, KeyId, KeyRing, Rewrapped};
pub use staging::{StagedJournal, Staging};
pub use usage::{TenantCounts, USAGE_DAYS, UsageBy, UsagePage, UsageQuery};

/// Who holds a conversation, if anybody does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Occupancy {
    Held(Claim),
    /// Nobody holds it, and it exists.
    Unheld,
    /// Nobody holds it, and it does not exist.
    New,
}

impl Occupancy {
    fn new(claim: Option<Claim>, exists: bool) -> Self {
        match claim {
            Some(claim) => Self::Held(claim),
            None if exists => Self::Unheld,
            None => Self::New,
        }
    }

    /// The present claim.
    pub fn claim(self) -> Option<Claim> {
        match self {
            Self::Held(claim) => Some(claim),
            Self::Unheld | Self::New => None,
        }
    }
}

/// One page of a listing, and where the next begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Opaque; `None` on the last page. Earlier pages may be short or even empty.
    pub cursor: Option<String>,
}

/// Why a listing failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// The cursor does not come from this listing.
    #[error("cursor: not one that this listing returned")]
    Cursor,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Which conversations to list; `None` admits any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SummaryFilter {
    pub agent: Option<AgentName>,
    pub status: Option<ConversationStatus>,
    pub visible_to: Viewer,
}

impl SummaryFilter {
    /// Whether the filter admits the conversation.
    pub fn admits(&self, summary: &ConversationSummary) -> bool {
        self.agent.as_ref().is_none_or(|agent| *agent == summary.agent)
            && self.status.is_none_or(|status| status == summary.status)
            && self.visible_to.sees(&summary.participants)
    }
}

/// A definition as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredAgent {
    pub name: AgentName,
    pub revision: Revision,
    pub definition: Value,
    /// When it was put last; `None` if a version put it that noted no times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub put_at: Option<Timestamp>,
}

/// An open suspension, as the metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuspensionCount {
    pub kind: SuspensionKind,
    pub since: Timestamp,
}

/// All that a node needs from its store.
///
/// What [`summary`](Store::summary), [`agent`](Store::agent), [`agents`](Store::agents),
/// [`revision`](Store::revision) and [`decisions`](Store::decisions) return has the configured
/// durability, as with [`Journal`]. Claims, listings, alarms, `last_seqs` and the audit are views: they
/// may show what a fail-over takes back. A blob is as durable as the answer to its upload says.
#[async_trait]
pub trait Store:
    Journal
    + Blobs
    + BlobNames
    + AuditLog
    + OperationLog
    + TenantCounts
    + Outbox
    + QueueIndex
    + Schedules
    + Erasures
    + History
    + Lists
    + Staging
{
    /// Fails, with the reason, while the store cannot keep its configured durability and refuses
    /// writes. Looks at what is known, and asks no server.
    fn require_durability(&self) -> Result<(), String> {
        Ok(())
    }

    /// Has all data keys wrapped by the first key of the key file; `None` if nothing is sealed. What
    /// was done before a failure is done.
    async fn rewrap(&self) -> Result<Option<Rewrapped>, ListError> {
        Ok(None)
    }

    /// The present claim on a conversation.
    async fn current_claim(&self, id: &Scoped<ConversationId>)
    -> Result<Option<Claim>, StoreError>;

    /// The present claim on a conversation, or whether there is such a conversation.
    async fn occupancy(&self, id: &Scoped<ConversationId>) -> Result<Occupancy, StoreError>;

    /// The conversations of a tenant, sorted by id. [`cursor_after`] is a cursor, too.
    async fn conversations(
        &self,
        tenant: &Tenant,
        filter: &SummaryFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<(Scoped<ConversationId>, ConversationSummary)>, ListError>;

    /// The open suspensions of a tenant, earliest deadline first.
    async fn inbox(
        &self,
        tenant: &Tenant,
        filter: &InboxFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<InboxEntry>, ListError>;

    /// The tenants that have, or had, conversations.
    async fn tenants(&self) -> Result<BTreeSet<Tenant>, StoreError>;

    /// The tenants that have, or had, anything: those, and those with nothing but agents, webhooks,
    /// schedules or API keys. For passes over a whole store: this costs more than the former.
    async fn all_tenants(&self) -> Result<BTreeSet<Tenant>, StoreError>;

    /// All open suspensions of a tenant, unordered, for counting. Entries that open or close while
    /// paging may be missed. Cheaper than `inbox` in stores that must sort.
    async fn open_suspensions(
        &self,
        tenant: &Tenant,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<SuspensionCount>, ListError> {
        let Page { items, cursor } =
            self.inbox(tenant, &InboxFilter::default(), cursor, limit).await?;
        let items = items.into_iter().map(|InboxEntry { pending, .. }| SuspensionCount {
            kind: pending.kind,
            since: pending.suspended_at,
        });
        Ok(Page { items: items.collect(), cursor })
    }

    /// The next alarms, earliest first.
    async fn alarms(
        &self,
        limit: usize,
    ) -> Result<Vec<(Scoped<ConversationId>, Timestamp)>, StoreError>;

    /// The alarms of these partitions that are due by `until`, earliest first: at least the first
    /// `limit` of them, and at most `limit` of each partition.
    async fn due_alarms(
        &self,
        partitions: &PartitionSet,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Scoped<ConversationId>, Timestamp)>, StoreError> {
        let is_mine = |id: &Scoped<ConversationId>| partitions.contains(Partition::from(id));
        let alarms = self.alarms(limit).await?.into_iter();
        Ok(alarms.filter(|(id, due)| *due <= until && is_mine(id)).collect())
    }

    /// The conversations of these partitions that have work to do, unordered, with their claims.
    async fn active(
        &self,
        partitions: &PartitionSet,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<(Scoped<ConversationId>, Option<Claim>)>, ListError>;

    /// The last `seq` of each of these conversations; `None` for one that does not exist.
    async fn last_seqs(
        &self,
        ids: &[Scoped<ConversationId>],
    ) -> Result<Vec<Option<Seq>>, StoreError> {
        let mut seqs = Vec::with_capacity(ids.len());
        for id in ids {
            seqs.push(self.summary(id).await?.map(|summary| summary.last_seq));
        }
        Ok(seqs)
    }

    /// Stores a definition of a tenant and makes it the newest of its name, and keeps `response`
    /// under the scope of the agent. A rollout of that revision ends. Returns whether the name was
    /// new.
    async fn put_agent(
        &self,
        tenant: &Tenant,
        agent: StoredAgent,
        response: Option<StoredResponse>,
    ) -> Result<bool, StoreError>;

    /// Stores a definition as [`put_agent`](Self::put_agent) does, if `newest` is the newest
    /// revision of its name, or `None` and the name has none. Returns whether that was so; otherwise
    /// nothing is written.
    async fn put_agent_if(
        &self,
        tenant: &Tenant,
        agent: StoredAgent,
        response: Option<StoredResponse>,
        newest: Option<&Revision>,
    ) -> Result<bool, StoreError>;

    /// Keeps a response under a scope that is not a conversation's, unless the scope has one with the
    /// same key that has not expired at `now`. Returns whether it was kept.
    async fn reserve(
        &self,
        scope: &ResponseScope,
        response: StoredResponse,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// The newest definition of a name.
    async fn agent(&self, name: &Scoped<AgentName>) -> Result<Option<StoredAgent>, StoreError>;

    /// The newest revision of a name, if possible without reading the definition. A revision that
    /// is returned may be lost, as long as nobody has read its definition; `None` is certain.
    async fn newest(&self, name: &Scoped<AgentName>) -> Result<Option<Revision>, StoreError> {
        Ok(self.agent(name).await?.map(|agent| agent.revision))
    }

    /// A definition by its revision, even if it was replaced or deleted.
    async fn revision(
        &self,
        revision: &Scoped<Revision>,
    ) -> Result<Option<StoredAgent>, StoreError>;

    /// The newest definitions of all names of a tenant, sorted by name.
    async fn agents(&self, tenant: &Tenant) -> Result<Vec<StoredAgent>, StoreError>;

    /// Deletes a name, its rollout and the decisions remembered for it, and keeps `response` under the scope of
    /// the agent. Its revisions stay. Returns whether the name was there.
    async fn delete_agent(
        &self,
        name: &Scoped<AgentName>,
        response: Option<StoredResponse>,
    ) -> Result<bool, StoreError>;

    /// Remembers a decision for an agent, or forgets it. Returns whether it was there before.
    async fn set_decision(
        &self,
        agent: &Scoped<AgentName>,
        id: &DecisionId,
        decision: Option<&RememberedDecision>,
    ) -> Result<bool, StoreError>;

    /// The decisions remembered for an agent, including expired ones, sorted by id.
    async fn decisions(
        &self,
        agent: &Scoped<AgentName>,
    ) -> Result<Vec<RememberedDecision>, StoreError>;

    /// Changes the API keys. Returns whether the key was there before; an update of one that was not
    /// writes nothing.
    async fn change_key(&self, change: KeyChange) -> Result<bool, StoreError>;

    /// All API keys of all tenants, unordered; `None` if they are still as of this version. A change that was
    /// answered is seen.
    async fn keys(&self, known: Option<u64>) -> Result<Option<KeyList>, StoreError>;

    /// The API keys of a tenant, unordered.
    async fn tenants_keys(&self, tenant: &Tenant) -> Result<Vec<StoredKey>, StoreError> {
        let KeyList { keys, .. } = self.keys(None).await?.unwrap_or_default();
        Ok(keys.into_iter().filter(|key| key.tenant == *tenant).collect())
    }

    /// Notes when API keys were last used; a note that is older than another changes nothing.
    async fn mark_keys_used(&self, used: &[(ScopedKeyId, Timestamp)]) -> Result<(), StoreError>;

    /// When the API keys of a tenant were last used, by their ids, as far as it was noted.
    async fn keys_used(&self, tenant: &Tenant) -> Result<BTreeMap<String, Timestamp>, StoreError>;
}
