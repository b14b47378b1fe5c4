//! The revisions of agents in memory.

use std::collections::BTreeMap;

use abide_actors::journal::{ResponseScope, StoreError};
use abide_conversation::{AgentName, Revision, Scoped, Tenant};
use async_trait::async_trait;

use super::super::revisions::{CurrentNames, History, HistoryEntry, may_change, take_droppable};
use super::super::{CurrentRevisions, RolloutChange, StoredAgent};
use super::Memory;
use super::tables::Tables;

pub(super) type Histories = BTreeMap<Scoped<AgentName>, Vec<HistoryEntry>>;

#[async_trait]
impl History for Memory {
    async fn history(&self, name: &Scoped<AgentName>) -> Result<Vec<HistoryEntry>, StoreError> {
        Ok(self.tables().histories.get(name).cloned().unwrap_or_default())
    }

    async fn current_revisions(
        &self,
        name: &Scoped<AgentName>,
    ) -> Result<Option<CurrentRevisions>, StoreError> {
        let tables = self.tables();
        let rollout = tables.rollouts.get(name).cloned();
        let newest = tables.newest.get(name).cloned();
        Ok(newest.map(|newest| CurrentRevisions { newest, rollout }))
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
        let (newest, rollout) = (tables.newest.get(name), tables.rollouts.get(name));
        let current = CurrentNames { newest, rollout };
        for gone in take_droppable(history, &current, revisions, spared) {
            tables.revisions.remove(&name.sibling(&gone));
        }
        Ok(())
    }
}

impl Tables {
    /// Whether the change finds what it needs.
    pub(super) fn may_change_rollout(&self, change: &RolloutChange) -> bool {
        let RolloutChange { name, rollout, .. } = change;
        let (newest, present) = (self.newest.get(name), self.rollouts.get(name));
        may_change(newest, present, rollout.as_ref(), |revision| {
            self.revisions.contains_key(&name.sibling(revision))
        })
    }

    /// Changes a rollout that may be changed.
    pub(super) fn change_rollout(&mut self, change: RolloutChange) -> bool {
        let RolloutChange { name, rollout, response } = change;
        if let Some(response) = response {
            self.keep(&ResponseScope::Agent(name.clone()), response);
        }
        match rollout {
            Some(rollout) => self.rollouts.insert(name, rollout),
            None => self.rollouts.remove(&name),
        };
        true
    }
}
