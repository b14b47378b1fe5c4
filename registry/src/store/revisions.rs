//! The revisions of agents in a store.

use abide_actors::journal::StoreError;
use abide_conversation::{AgentName, Revision, Scoped, Tenant, Timestamp};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{CurrentRevisions, Rollout, StoredAgent};

/// One revision in the history of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    pub revision: Revision,
    /// When it was put last, to the microsecond; `None` if a version put it that noted no times.
    pub put_at: Option<Timestamp>,
}

/// Keeps which revisions an agent has had.
#[async_trait]
pub trait History: Send + Sync + 'static {
    /// The stored revisions of a name, the one that was put last at the front; also those of a name
    /// that was deleted. Each revision is there once. Lacks revisions that were replaced before
    /// there was a history.
    async fn history(&self, name: &Scoped<AgentName>) -> Result<Vec<HistoryEntry>, StoreError>;

    /// The newest revision of a name and its rollout, read at once: each turn asks for them. As with
    /// [`newest`](super::Store::newest), only `None` is certain.
    async fn current_revisions(
        &self,
        name: &Scoped<AgentName>,
    ) -> Result<Option<CurrentRevisions>, StoreError>;

    /// Stores a definition as the oldest revision of its name, unless the revision is there.
    async fn add_revision(&self, tenant: &Tenant, agent: StoredAgent) -> Result<(), StoreError>;

    /// Removes revisions of a name, except the newest one, that of a rollout, and the `spared` ones
    /// that were put last.
    async fn drop_revisions(
        &self,
        name: &Scoped<AgentName>,
        revisions: &[Revision],
        spared: usize,
    ) -> Result<(), StoreError>;
}

/// Notes in a history that `agent` replaces `before`.
pub(super) fn note(
    history: &mut Vec<HistoryEntry>,
    before: Option<&Revision>,
    agent: HistoryEntry,
) {
    if let (true, Some(before)) = (history.is_empty(), before) {
        history.push(HistoryEntry { revision: before.clone(), put_at: None });
    }
    history.retain(|entry| entry.revision != agent.revision);
    history.insert(0, agent);
}

/// Takes those of `revisions` out of a history that may be dropped, and returns them.
pub(super) fn take_droppable(
    history: &mut Vec<HistoryEntry>,
    current: &CurrentNames<'_>,
    revisions: &[Revision],
    spared: usize,
) -> Vec<Revision> {
    let mut droppable = Vec::new();
    let mut place = 0;
    history.retain(|HistoryEntry { revision, .. }| {
        place += 1;
        let goes = place > spared && !current.has(revision) && revisions.contains(revision);
        if goes {
            droppable.push(revision.clone());
        }
        !goes
    });
    droppable
}

/// The revisions that no history loses.
pub(super) struct CurrentNames<'a> {
    pub(super) newest: Option<&'a Revision>,
    pub(super) rollout: Option<&'a Rollout>,
}

impl CurrentNames<'_> {
    fn has(&self, revision: &Revision) -> bool {
        self.newest == Some(revision)
            || self.rollout.is_some_and(|rollout| rollout.revision == *revision)
    }
}

/// Whether this change of a rollout finds what it needs: a rollout to end, or an agent with another
/// newest revision than the one to roll out, which must be there.
pub(super) fn may_change(
    newest: Option<&Revision>,
    present: Option<&Rollout>,
    next: Option<&Rollout>,
    exists: impl FnOnce(&Revision) -> bool,
) -> bool {
    let Some(newest) = newest else { return false };
    match next {
        Some(next) => next.revision != *newest && exists(&next.revision),
        None => present.is_some(),
    }
}

impl From<&StoredAgent> for HistoryEntry {
    fn from(agent: &StoredAgent) -> Self {
        Self { revision: agent.revision.clone(), put_at: agent.put_at }
    }
}
