//! Which conversations a list shows, and in which order.
//!
//! Every store keeps the same index: for each tenant a sorted set of texts, some for each
//! conversation ([`entry`]). A page reads one range of it ([`plan`]), and checks each conversation
//! that it finds.

mod entry;
mod index_jobs;
mod plan;
mod rebuild;

use std::collections::BTreeMap;

use abide_actors::journal::{ConversationSummary, StoreError, Viewer};
use abide_conversation::identity::Subject;
use abide_conversation::state::ConversationStatus;
use abide_conversation::{AgentName, ConversationId, Scoped, Tenant, Timestamp};
use async_trait::async_trait;

use super::{ListError, Page};
pub(super) use entry::{Entry, IndexMember, MemberParts};
pub use index_jobs::{IndexJob, IndexJobs};
pub(super) use plan::{Plan, Position, merged};
pub use rebuild::Rebuild;

/// The lists of conversations.
#[async_trait]
pub trait Lists: Send + Sync + 'static {
    /// The conversations of a tenant that a query wants, in its order. Earlier pages may be short or
    /// even empty. A cursor of another store, tenant or query is refused.
    async fn list(
        &self,
        tenant: &Tenant,
        query: &ListQuery,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<ListedConversation>, ListError>;

    /// Writes anew what lists show of a conversation whose agent indexes these keys of the metadata, if
    /// its journal still ends where the summary says, and names the same people. Returns whether it
    /// did. Nobody need hold the conversation.
    async fn relist(
        &self,
        id: &Scoped<ConversationId>,
        summary: &ConversationSummary,
        indexed: &[String],
    ) -> Result<bool, StoreError>;

    /// How far the last rebuild of the index has come; `None` if there never was one.
    async fn rebuild(&self) -> Result<Option<Rebuild>, StoreError>;

    /// Replaces [`rebuild`](Self::rebuild), if it is still `present`. Returns whether it was.
    async fn replace_rebuild(
        &self,
        present: Option<&Rebuild>,
        next: &Rebuild,
    ) -> Result<bool, StoreError>;

    /// The agents whose conversations are to be indexed anew.
    async fn index_jobs(&self) -> Result<IndexJobs, StoreError>;

    /// Replaces [`index_jobs`](Self::index_jobs), if they are still `present`. Returns whether they
    /// were.
    async fn replace_index_jobs(
        &self,
        present: &IndexJobs,
        next: &IndexJobs,
    ) -> Result<bool, StoreError>;
}

/// Which conversations to list; `None` admits any.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListQuery {
    pub agent: Option<AgentName>,
    pub status: Option<ConversationStatus>,
    pub owner: Option<String>,
    /// Only the children of this conversation.
    pub parent: Option<ConversationId>,
    /// No children, unless `parent` names theirs.
    pub root_only: bool,
    /// Members of the metadata that are these texts.
    pub metadata: BTreeMap<String, String>,
    pub created: Period,
    pub active: Period,
    pub visible_to: Viewer,
    pub order: ListOrder,
    pub direction: Direction,
}

/// The times after one moment and before another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Period {
    pub after: Option<Timestamp>,
    pub before: Option<Timestamp>,
}

impl Period {
    fn contains(&self, at: Timestamp) -> bool {
        self.after.is_none_or(|after| after < at) && self.before.is_none_or(|before| at < before)
    }
}

/// What a list is sorted by; equal times are in the order of their conversations' ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListOrder {
    #[default]
    Created,
    Active,
}

/// Whether a list begins with the earliest or with the latest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    Ascending,
    #[default]
    Descending,
}

/// A conversation in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedConversation {
    pub id: Scoped<ConversationId>,
    pub summary: ConversationSummary,
    /// The number of open suspensions.
    pub pending: usize,
}

impl ListQuery {
    /// Whether the list shows the conversation.
    pub fn admits(&self, summary: &ConversationSummary) -> bool {
        let ConversationSummary { agent, status, participants, metadata, listing, .. } = summary;
        let has = |(key, value): (&String, &String)| {
            metadata.get(key).and_then(|found| found.as_str()) == Some(value)
        };
        let is_of_family = match &self.parent {
            Some(parent) => listing.parent.as_ref() == Some(parent),
            None => !self.root_only || listing.parent.is_none(),
        };
        is_of_family
            && self.agent.as_ref().is_none_or(|wanted| wanted == agent)
            && self.status.is_none_or(|wanted| wanted == *status)
            && self.owner.as_ref().is_none_or(|owner| participants.is_owner(owner))
            && self.metadata.iter().all(has)
            && self.created.contains(summary.created_at)
            && self.active.contains(active_at(summary))
            && self.visible_to.sees(participants)
    }

    /// The subject without whom a conversation is not shown; `Err` if none is.
    fn viewer(&self) -> Result<Option<&str>, ()> {
        match &self.visible_to {
            Viewer::Everything => Ok(None),
            Viewer::Participant(sub) | Viewer::ApprovingParticipant(Subject { sub, .. }) => {
                Ok(Some(sub))
            }
            Viewer::Approver(_) => Err(()),
        }
    }
}

/// Whether a conversation is still the one that was read: its journal ends there, an erasure has not put
/// an alias into it, and no other has its id now. What a version without participants wrote has none.
pub(super) fn is_as_read(present: &ConversationSummary, read: &ConversationSummary) -> bool {
    let participants = &present.participants;
    present.last_seq == read.last_seq
        && present.created_at == read.created_at
        && (participants.is_empty() || *participants == read.participants)
}

/// When the conversation was active last.
pub fn active_at(summary: &ConversationSummary) -> Timestamp {
    summary.listing.active_at.unwrap_or(summary.created_at)
}
