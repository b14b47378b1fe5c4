//! The revisions of agents in a store.

use abide_actors::journal::StoreError;
use abide_conversation::{AgentName, Revision, Scoped, Tenant, Timestamp};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::StoredAgent;

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

    /// Stores a definition as the oldest revision of its name, unless the revision is there.
    async fn add_revision(&self, tenant: &Tenant, agent: StoredAgent) -> Result<(), StoreError>;

    /// Removes revisions of a name, except the newest one and the `spared` ones that were put last.
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
    newest: Option<&Revision>,
    revisions: &[Revision],
    spared: usize,
) -> Vec<Revision> {
    let mut droppable = Vec::new();
    let mut place = 0;
    history.retain(|HistoryEntry { revision, .. }| {
        place += 1;
        let goes = place > spared && newest != Some(revision) && revisions.contains(revision);
        if goes {
            droppable.push(revision.clone());
        }
        !goes
    });
    droppable
}

impl From<&StoredAgent> for HistoryEntry {
    fn from(agent: &StoredAgent) -> Self {
        Self { revision: agent.revision.clone(), put_at: agent.put_at }
    }
}
