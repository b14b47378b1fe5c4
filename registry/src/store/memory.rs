//! The store in memory, lost with its process: the reference for the other stores, and for tests.

mod audit;
mod blobs;
mod erasures;
mod listing;
mod notices;
mod operations;
mod queues;
mod revisions;
mod schedules;
mod staging;
mod tables;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use abide_actors::journal::{
    Claim, ClaimedConversation, Commit, ConversationSummary, Holder, InboxEntry, InboxFilter,
    Journal, ResponseScope, Rewrite, StoreError, StoredConversation, StoredResponse,
};
use abide_actors::notices::OwedNotice;
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{
    AgentName, ConversationId, DecisionId, Event, Revision, Scoped, Seq, Tenant, Timestamp,
};
use async_trait::async_trait;

use super::paging::{self, InboxKey};
use super::{
    KeyChange, KeyList, ListError, Occupancy, Page, ScopedKeyId, Store, StoredAgent, SummaryFilter,
    commit_rules,
};
use crate::partition::{Partition, PartitionSet};
use tables::Tables;

/// Ordered maps behind one lock: every call is atomic, and the store is never unavailable.
#[derive(Debug, Default)]
pub struct Memory {
    tables: Mutex<Tables>,
}

impl Memory {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Journal for Memory {
    async fn append(
        &self,
        id: &Scoped<ConversationId>,
        held: &Claim,
        commit: Commit,
    ) -> Result<(), StoreError> {
        let mut tables = self.tables();
        if !tables.claims.admits(id, held) {
            return Err(StoreError::Fenced);
        }
        tables.append(id, held.epoch, commit)
    }

    async fn rewrite(
        &self,
        id: &Scoped<ConversationId>,
        held: &Claim,
        rewrite: Rewrite,
    ) -> Result<(), StoreError> {
        let mut tables = self.tables();
        if !tables.claims.admits(id, held) {
            return Err(StoreError::Fenced);
        }
        tables.rewrite(id, rewrite)
    }

    async fn load(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<StoredConversation>, StoreError> {
        Ok(self.tables().load(id))
    }

    async fn claim_and_load(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<ClaimedConversation, StoreError> {
        let mut tables = self.tables();
        let holder_before = tables.claims.present(id).map(|before| before.holder.clone());
        let claim = tables.claim(id, me, dead);
        if claim.holder != *me {
            return Ok(ClaimedConversation { claim, deaths: 0, alarm: None, stored: None });
        }
        if holder_before.is_some_and(|before| before != *me) && tables.active.contains(id) {
            *tables.deaths.entry(id.clone()).or_default() += 1;
        }
        let deaths = tables.deaths.get(id).copied().unwrap_or_default();
        let alarm = tables.conversations.get(id).and_then(|known| known.summary.alarm);
        Ok(ClaimedConversation { claim, deaths, alarm, stored: tables.load(id) })
    }

    async fn claim_and_append(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        commit: Commit,
    ) -> Result<Claim, StoreError> {
        let mut tables = self.tables();
        if tables.occupancy(id) != Occupancy::New || !commit_rules::follows(&commit, None) {
            return Err(StoreError::Conflict);
        }
        let claim = tables.claim(id, me, None);
        tables.append(id, claim.epoch, commit).map(|()| claim)
    }

    async fn reset_deaths(&self, id: &Scoped<ConversationId>) -> Result<(), StoreError> {
        self.tables().deaths.remove(id);
        Ok(())
    }

    async fn events(
        &self,
        id: &Scoped<ConversationId>,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let tables = self.tables();
        let events = tables.conversations.get(id).map_or(&[][..], |known| known.after(after));
        Ok(events.iter().take(limit).cloned().collect())
    }

    async fn events_before(
        &self,
        id: &Scoped<ConversationId>,
        before: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let tables = self.tables();
        let events = tables.conversations.get(id).map_or(&[][..], |known| known.before(before));
        Ok(events.iter().rev().take(limit).cloned().collect())
    }

    async fn summary(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<ConversationSummary>, StoreError> {
        Ok(self.tables().conversations.get(id).map(|known| known.summary.clone()))
    }

    async fn stored_response(
        &self,
        scope: &ResponseScope,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<StoredResponse>, StoreError> {
        let tables = self.tables();
        let response = tables.responses.get(&(scope.clone(), key.to_owned()));
        Ok(response.filter(|response| now < response.expires_at).cloned())
    }

    async fn claim(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<Claim, StoreError> {
        Ok(self.tables().claim(id, me, dead))
    }

    async fn release(&self, id: &Scoped<ConversationId>, held: &Claim) -> Result<(), StoreError> {
        self.tables().claims.release(id, held);
        Ok(())
    }

    async fn delete(
        &self,
        id: &Scoped<ConversationId>,
        held: &Claim,
        response: Option<StoredResponse>,
        owed: Vec<OwedNotice>,
    ) -> Result<(), StoreError> {
        let mut tables = self.tables();
        if !tables.claims.admits(id, held) {
            return Err(StoreError::Fenced);
        }
        tables.delete(id);
        tables.notices.owe(id, &owed);
        tables.claims.release(id, held);
        if let Some(response) = response {
            tables.keep(&ResponseScope::Conversation(id.clone()), response);
        }
        Ok(())
    }
}

#[async_trait]
impl Store for Memory {
    async fn current_claim(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<Claim>, StoreError> {
        Ok(self.tables().claims.present(id).cloned())
    }

    async fn occupancy(&self, id: &Scoped<ConversationId>) -> Result<Occupancy, StoreError> {
        Ok(self.tables().occupancy(id))
    }

    async fn conversations(
        &self,
        tenant: &Tenant,
        filter: &SummaryFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<(Scoped<ConversationId>, ConversationSummary)>, ListError> {
        let after: Option<Scoped<ConversationId>> = paging::decode_of(tenant, cursor)?;
        let tables = self.tables();
        let rows = tables.conversations.range(after_key(after));
        let rows = rows
            .filter(|(id, _)| id.is_of(tenant))
            .map(|(id, known)| Ok((id, (id.clone(), known.summary.clone()))));
        paging::page(rows, limit, |(_, summary)| filter.admits(summary))
    }

    async fn inbox(
        &self,
        tenant: &Tenant,
        filter: &InboxFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<InboxEntry>, ListError> {
        let after: Option<InboxKey> = paging::decode_of(tenant, cursor)?;
        let tables = self.tables();
        if let Some(id) = &filter.conversation {
            let id = Scoped::new(tenant, id);
            let keys = tables.conversations.get(&id).map(|known| known.inbox_keys(&id));
            let keys =
                keys.unwrap_or_default().into_iter().filter(|key| Some(key) > after.as_ref());
            let rows = keys.filter_map(|key| {
                let entry = tables.inbox.get(&key)?.clone();
                Some(Ok((key, entry)))
            });
            return paging::page(rows, limit, |entry| filter.admits(entry));
        }
        let rows = tables.inbox.range(after_key(after));
        let rows = rows
            .filter(|((_, id, ..), _)| id.is_of(tenant))
            .map(|(key, entry)| Ok((key, entry.clone())));
        paging::page(rows, limit, |entry| filter.admits(entry))
    }

    async fn tenants(&self) -> Result<BTreeSet<Tenant>, StoreError> {
        Ok(self.tables().conversations.keys().map(Scoped::tenant).collect())
    }

    async fn all_tenants(&self) -> Result<BTreeSet<Tenant>, StoreError> {
        Ok(self.tables().all_tenants())
    }

    async fn alarms(
        &self,
        limit: usize,
    ) -> Result<Vec<(Scoped<ConversationId>, Timestamp)>, StoreError> {
        let tables = self.tables();
        Ok(tables.alarms.iter().take(limit).map(|(at, id)| (id.clone(), *at)).collect())
    }

    async fn due_alarms(
        &self,
        partitions: &PartitionSet,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Scoped<ConversationId>, Timestamp)>, StoreError> {
        let tables = self.tables();
        let due = tables.alarms.iter().take_while(|(at, _)| *at <= until);
        let in_share = due.filter(|(_, id)| partitions.contains(Partition::from(id)));
        Ok(in_share.take(limit).map(|(at, id)| (id.clone(), *at)).collect())
    }

    async fn active(
        &self,
        partitions: &PartitionSet,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<(Scoped<ConversationId>, Option<Claim>)>, ListError> {
        let after: Option<Scoped<ConversationId>> = paging::decode(cursor)?;
        let tables = self.tables();
        let row = |id: &Scoped<ConversationId>| (id.clone(), tables.claims.present(id).cloned());
        let rows = tables.active.range(after_key(after)).map(|id| Ok((id, row(id))));
        paging::page(rows, limit, |(id, _)| partitions.contains(Partition::from(id)))
    }

    async fn reserve(
        &self,
        scope: &ResponseScope,
        response: StoredResponse,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let old = tables.responses.get(&(scope.clone(), response.key.clone()));
        let is_free = old.is_none_or(|old| old.expires_at <= now);
        if is_free {
            tables.keep(scope, response);
        }
        Ok(is_free)
    }

    async fn put_agent(
        &self,
        tenant: &Tenant,
        agent: StoredAgent,
        response: Option<StoredResponse>,
    ) -> Result<bool, StoreError> {
        Ok(self.tables().put_agent(tenant, agent, response))
    }

    async fn put_agent_if(
        &self,
        tenant: &Tenant,
        agent: StoredAgent,
        response: Option<StoredResponse>,
        newest: Option<&Revision>,
    ) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let is_newest = tables.newest.get(&Scoped::new(tenant, &agent.name)) == newest;
        if is_newest {
            tables.put_agent(tenant, agent, response);
        }
        Ok(is_newest)
    }

    async fn agent(&self, name: &Scoped<AgentName>) -> Result<Option<StoredAgent>, StoreError> {
        let tables = self.tables();
        let revision = tables.newest.get(name).map(|revision| name.sibling(revision));
        Ok(revision.and_then(|revision| tables.revisions.get(&revision)).cloned())
    }

    async fn revision(
        &self,
        revision: &Scoped<Revision>,
    ) -> Result<Option<StoredAgent>, StoreError> {
        Ok(self.tables().revisions.get(revision).cloned())
    }

    async fn agents(&self, tenant: &Tenant) -> Result<Vec<StoredAgent>, StoreError> {
        let tables = self.tables();
        let newest = tables.newest.iter().filter(|(name, _)| name.is_of(tenant));
        let newest = newest.map(|(name, revision)| name.sibling(revision));
        Ok(newest.filter_map(|revision| tables.revisions.get(&revision).cloned()).collect())
    }

    async fn delete_agent(
        &self,
        name: &Scoped<AgentName>,
        response: Option<StoredResponse>,
    ) -> Result<bool, StoreError> {
        Ok(self.tables().delete_agent(name, response))
    }

    async fn set_decision(
        &self,
        agent: &Scoped<AgentName>,
        id: &DecisionId,
        decision: Option<&RememberedDecision>,
    ) -> Result<bool, StoreError> {
        Ok(self.tables().set_decision(agent, id, decision))
    }

    async fn decisions(
        &self,
        agent: &Scoped<AgentName>,
    ) -> Result<Vec<RememberedDecision>, StoreError> {
        let tables = self.tables();
        let found = tables.decisions.iter().filter(|((owner, _), _)| owner == agent);
        Ok(found.map(|(_, decision)| decision.clone()).collect())
    }

    async fn change_key(&self, change: KeyChange) -> Result<bool, StoreError> {
        Ok(self.tables().change_key(change))
    }

    async fn keys(&self, known: Option<u64>) -> Result<Option<KeyList>, StoreError> {
        let tables = self.tables();
        let version = tables.keys_version;
        let list = || KeyList { version, keys: tables.keys.values().cloned().collect() };
        Ok((known != Some(version)).then(list))
    }

    async fn mark_keys_used(&self, used: &[(ScopedKeyId, Timestamp)]) -> Result<(), StoreError> {
        let tables = &mut *self.tables();
        for (id, at) in used.iter().filter(|(id, _)| tables.keys.contains_key(id)) {
            let last = tables.keys_used.entry(id.clone()).or_insert(*at);
            *last = (*last).max(*at);
        }
        Ok(())
    }

    async fn keys_used(&self, tenant: &Tenant) -> Result<BTreeMap<String, Timestamp>, StoreError> {
        let tables = self.tables();
        let own = tables.keys_used.iter().filter(|(id, _)| id.is_of(tenant));
        Ok(own.map(|(id, at)| (id.local(), *at)).collect())
    }
}

fn after_key<K>(after: Option<K>) -> (Bound<K>, Bound<K>) {
    (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::conformance::conformance;
    use super::Memory;

    conformance!(((), Arc::new(Memory::default()) as Arc<dyn super::Store>));
}
