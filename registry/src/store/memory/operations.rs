//! The operators' audit in memory.

use std::collections::BTreeMap;
use std::ops::Bound;

use abide_actors::journal::StoreError;
use abide_conversation::{Scoped, Tenant};
use async_trait::async_trait;

use super::super::operations::{
    ChainEntry, Effect, MAX_OPERATIONS, Operation, OperationLog, OperationOutcome,
};
use super::super::{KeyChange, ScopedKeyId};
use super::Memory;
use super::tables::Tables;

/// The chain of the cluster, which has no tenant, and those of the tenants, each by `seq`.
pub(super) type Chains = BTreeMap<Option<Tenant>, BTreeMap<u64, ChainEntry>>;

#[async_trait]
impl OperationLog for Memory {
    async fn operate(
        &self,
        operation: &Operation,
        effect: Effect,
    ) -> Result<OperationOutcome, StoreError> {
        let tables = &mut *self.tables();
        if effect.needs_target() && !has_target(tables, &effect) {
            return Ok(OperationOutcome { answer: false, entry: None });
        }
        let entry = record(&mut tables.operations, operation)?;
        Ok(OperationOutcome { answer: carry_out(tables, effect), entry: Some(entry) })
    }

    async fn operations(
        &self,
        tenant: Option<&Tenant>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<ChainEntry>, StoreError> {
        let tables = self.tables();
        let Some(chain) = tables.operations.get(&tenant.cloned()) else { return Ok(Vec::new()) };
        let later = chain.range((Bound::Excluded(after), Bound::Unbounded));
        Ok(later.take(limit).map(|(_, entry)| entry.clone()).collect())
    }
}

/// Writes the entry into its chains. Returns that of the cluster.
fn record(chains: &mut Chains, operation: &Operation) -> Result<ChainEntry, StoreError> {
    let mut append = |tenant: Option<Tenant>| {
        let chain = chains.entry(tenant).or_default();
        let end = chain.last_key_value().map(|(_, last)| last.end()).unwrap_or_default();
        let entry = ChainEntry::after(&end, operation)?;
        chain.insert(entry.seq(), entry.clone());
        while chain.len() as u64 > MAX_OPERATIONS {
            chain.pop_first();
        }
        Ok(entry)
    };
    if let Some(tenant) = &operation.tenant {
        append(Some(tenant.clone()))?;
    }
    append(None)
}

fn has_target(tables: &Tables, effect: &Effect) -> bool {
    let has_key = |id: &ScopedKeyId| tables.keys.contains_key(id);
    match effect {
        Effect::Follows => true,
        Effect::PutAgent { tenant, agent, newest, .. } => {
            tables.newest.get(&Scoped::new(tenant, &agent.name)) == newest.as_ref()
        }
        Effect::DeleteAgent { name, .. } => tables.newest.contains_key(name),
        Effect::ChangeRollout(change) => tables.may_change_rollout(change),
        Effect::ReplaceDecision { agent, decision } => {
            tables.decisions.contains_key(&(agent.clone(), decision.id.clone()))
        }
        Effect::ChangeKey(KeyChange::Add(_)) => true,
        Effect::ChangeKey(change) => has_key(&change.id()),
        Effect::DeleteBlob(id) => tables.blobs.contains_key(id),
        Effect::ChangeWebhooks(change) => tables.notices.is_version(change.version),
    }
}

fn carry_out(tables: &mut Tables, effect: Effect) -> bool {
    match effect {
        Effect::Follows => true,
        Effect::PutAgent { tenant, agent, response, .. } => {
            tables.put_agent(&tenant, agent, response);
            true
        }
        Effect::DeleteAgent { name, response } => tables.delete_agent(&name, response),
        Effect::ChangeRollout(change) => tables.change_rollout(change),
        Effect::ReplaceDecision { agent, decision } => {
            tables.set_decision(&agent, &decision.id, Some(&decision))
        }
        Effect::ChangeKey(change) => tables.change_key(change),
        Effect::DeleteBlob(id) => tables.remove_blob(&id),
        Effect::ChangeWebhooks(change) => tables.notices.change(&change),
    }
}
