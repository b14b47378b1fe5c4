//! The revisions of agents in memory.

use std::collections::BTreeMap;

use abide_actors::journal::StoreError;
use abide_conversation::{AgentName, Revision, Scoped, Tenant};
use async_trait::async_trait;

use super::super::StoredAgent;
use super::super::revisions::{History, HistoryEntry, take_droppable};
use super::Memory;

pub(super) type Histories = BTreeMap<Scoped<AgentName>, Vec<HistoryEntry>>;

#[async_trait]
impl History for Memory {
    async fn history(&self, name: &Scoped<AgentName>) -> Result<Vec<HistoryEntry>, StoreError> {
        Ok(self.tables().histories.get(name).cloned().unwrap_or_default())
    }

    async fn add_revision(&self, tenant: &Tenant, agent: StoredAgent) -> Result<(), StoreError> {
        let tables = &mut *self.tables();
        let name = Scoped::new(tenant, &agent.name);
        let revision = name.sibling(&agent.revision);
        if !tables.revisions.contains_key(&revision) {
            let entry = HistoryEntry { revision: agent.revision.clone(), put_at: None };
            tables.histories.entry(name).or_default().push(entry);
            tables.revisions.insert(revision, agent);
        }
        Ok(())
    }

    async fn drop_revisions(
        &self,
        name: &Scoped<AgentName>,
        revisions: &[Revision],
        spared: usize,
    ) -> Result<(), StoreError> {
        let tables = &mut *self.tables();
        let Some(history) = tables.histories.get_mut(name) else { return Ok(()) };
        for gone in take_droppable(history, tables.newest.get(name), revisions, spared) {
            tables.revisions.remove(&name.sibling(&gone));
        }
        Ok(())
    }
}
