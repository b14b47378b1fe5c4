//! Erasures in memory.

use std::collections::BTreeMap;
use std::ops::Bound;

use abide_actors::journal::{Rewrite, StoreError};
use abide_conversation::erase::SubjectAlias;
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{AgentName, ConversationId, ErasureId, Scoped, Tenant, Timestamp};
use async_trait::async_trait;
use jiff::civil::Date;

use super::super::erasures::Erasures;
use super::super::listing::Entry;
use super::super::operations::ChainEntry;
use super::super::usage::renamed_row;
use super::super::{ListError, Page, paging};
use super::Memory;
use super::tables::Tables;
use crate::erasure::Erasure;

pub(super) type Table = BTreeMap<Scoped<ErasureId>, Erasure>;

#[async_trait]
impl Erasures for Memory {
    async fn erasure(&self, name: &Scoped<ErasureId>) -> Result<Option<Erasure>, StoreError> {
        Ok(self.tables().erasures.get(name).cloned())
    }

    async fn replace_erasure(
        &self,
        name: &Scoped<ErasureId>,
        known: Option<u64>,
        next: Option<&Erasure>,
    ) -> Result<bool, StoreError> {
        let table = &mut self.tables().erasures;
        if table.get(name).map(|erasure| erasure.version) != known {
            return Ok(false);
        }
        match next {
            Some(next) => table.insert(name.clone(), next.clone()),
            None => table.remove(name),
        };
        Ok(true)
    }

    async fn erasures(
        &self,
        tenant: &Tenant,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<Erasure>, ListError> {
        let after: Option<Scoped<ErasureId>> = paging::decode(cursor)?;
        if after.as_ref().is_some_and(|after| !after.is_of(tenant)) {
            return Err(ListError::Cursor);
        }
        let tables = self.tables();
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = tables.erasures.range((begin, Bound::Unbounded));
        let own = rows.filter(|(name, _)| name.is_of(tenant));
        let rows = own.map(|(name, erasure)| Ok((name.clone(), erasure.clone())));
        paging::page(rows, limit, |_| true)
    }

    async fn due_erasures(
        &self,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Scoped<ErasureId>>, StoreError> {
        let tables = self.tables();
        let due = tables.erasures.iter().map(|(name, erasure)| (erasure.due_at(), name));
        let mut due: Vec<_> = due.filter(|(at, _)| *at <= until).collect();
        due.sort();
        Ok(due.into_iter().take(limit).map(|(_, name)| name.clone()).collect())
    }

    async fn rename_usage(
        &self,
        tenant: &Tenant,
        last: Date,
        alias: &SubjectAlias,
    ) -> Result<(), StoreError> {
        let tables = &mut *self.tables();
        let own = tables.usage.iter_mut().filter(|((day, of, _), _)| of == tenant && *day <= last);
        for (_, (_, rows)) in own {
            for (row, counts) in std::mem::take(rows) {
                let name = renamed_row(&row, alias).unwrap_or(row);
                *rows.entry(name).or_default() += counts;
            }
        }
        Ok(())
    }

    async fn replace_operation(
        &self,
        tenant: Option<&Tenant>,
        entry: &ChainEntry,
    ) -> Result<(), StoreError> {
        let tables = &mut *self.tables();
        let chain = tables.operations.get_mut(&tenant.cloned());
        if let Some(present) = chain.and_then(|chain| chain.get_mut(&entry.seq())) {
            *present = entry.clone();
        }
        Ok(())
    }

    async fn replace_decision(
        &self,
        agent: &Scoped<AgentName>,
        read: &RememberedDecision,
        next: &RememberedDecision,
    ) -> Result<bool, StoreError> {
        let present = (agent.clone(), read.id.clone());
        let tables = &mut *self.tables();
        let present = tables.decisions.get_mut(&present).filter(|present| *present == read);
        Ok(present.map(|present| present.clone_from(next)).is_some())
    }
}

impl Tables {
    /// Replaces events and what is stored beside the journal.
    pub(super) fn rewrite(
        &mut self,
        id: &Scoped<ConversationId>,
        rewrite: Rewrite,
    ) -> Result<(), StoreError> {
        let known = self.conversations.get_mut(id);
        let ends_there =
            |it: &&mut super::tables::Conversation| it.summary.last_seq == rewrite.summary.last_seq;
        let known = known.filter(ends_there).ok_or(StoreError::Conflict)?;
        for event in rewrite.events {
            let at = usize::try_from(event.seq.get().saturating_sub(1)).unwrap_or(usize::MAX);
            if let Some(present) = known.events.get_mut(at) {
                *present = event;
            }
        }
        known.state = None;
        known.summary = rewrite.summary.clone();
        self.index.replace(id, Some(Entry::new(&rewrite.summary, &rewrite.indexed, None)));
        for pending in rewrite.open {
            let key = (pending.expires_at, id.clone(), pending.call_id.clone(), pending.suspension);
            if let Some(entry) = self.inbox.get_mut(&key) {
                entry.participants = rewrite.summary.participants.clone();
                entry.pending = pending;
            }
        }
        Ok(())
    }
}
