//! The index of lists in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use abide_actors::journal::{Commit, ConversationSummary, Relisting, StoreError};
use abide_conversation::{ConversationId, Scoped, Tenant};
use async_trait::async_trait;

use super::super::listing::{
    Direction, Entry, IndexMember, ListQuery, ListedConversation, Plan, is_as_read, merged,
};
use super::super::{IndexJobs, ListError, Lists, Page, Rebuild, paging};
use super::Memory;
use super::tables::Tables;

const KIND: &str = "memory";

/// The entries of conversations, and the members of each tenant's index.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: BTreeMap<Scoped<ConversationId>, Entry>,
    members: BTreeMap<Tenant, BTreeSet<String>>,
    rebuild: Option<Rebuild>,
    jobs: IndexJobs,
}

impl Index {
    /// Whether all names of blobs are known.
    pub(super) fn has_blob_names(&self) -> bool {
        self.rebuild.as_ref().is_some_and(|rebuild| rebuild.has_blob_names)
    }

    /// Replaces the entry of a conversation.
    pub(super) fn replace(&mut self, id: &Scoped<ConversationId>, entry: Option<Entry>) {
        let members = self.members.entry(id.tenant()).or_default();
        if let Some(old) = self.entries.remove(id) {
            for member in old.members(id) {
                members.remove(&member.concat());
            }
        }
        if let Some(entry) = entry {
            members.extend(entry.members(id).map(|member| member.concat()));
            self.entries.insert(id.clone(), entry);
        }
    }

    /// Changes the entry as the commit says; it is new if it has no journal yet.
    pub(super) fn relist(&mut self, id: &Scoped<ConversationId>, commit: &Commit, is_new: bool) {
        let summary = &commit.summary;
        let entry = match &commit.relisting {
            Relisting::Whole { indexed } => Some(Entry::new(summary, indexed, None)),
            Relisting::Touched | Relisting::Unchanged if is_new => {
                Some(Entry::new(summary, &[], None))
            }
            Relisting::Touched => self.entries.get(id).map(|it| it.touched(summary)),
            Relisting::Unchanged => None,
        };
        if entry.is_some() {
            self.replace(id, entry);
        }
    }
}

#[async_trait]
impl Lists for Memory {
    async fn list(
        &self,
        tenant: &Tenant,
        query: &ListQuery,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<ListedConversation>, ListError> {
        let Some(mut plan) = Plan::new(KIND, tenant, query, cursor, None)? else {
            return Ok(paging::empty());
        };
        let tables = self.tables();
        let none = BTreeSet::new();
        let members = tables.index.members.get(tenant).unwrap_or(&none);
        plan.choose_by_count(|plan, prefix, most| {
            let Some((first, last)) = plan.bounds(prefix, None) else { return Ok(0) };
            let bounds = (Bound::Excluded(first), Bound::Excluded(last));
            Ok::<_, ListError>(members.range(bounds).take(most).count())
        })?;
        let range = |prefix: &String| {
            let (first, last) = plan.bounds(prefix, None)?;
            let bounds = (Bound::Excluded(first), Bound::Excluded(last));
            let mut found = members.range(bounds);
            let direction = plan.direction();
            Some(std::iter::from_fn(move || {
                let member = match direction {
                    Direction::Ascending => found.next()?,
                    Direction::Descending => found.next_back()?,
                };
                Some(Ok(IndexMember::parse(member)?.suffix))
            }))
        };
        let suffixes = merged(plan.prefixes().iter().filter_map(range).collect(), plan.direction());
        let rows = suffixes.filter_map(|suffix| match suffix {
            Err(error) => Some(Err(error)),
            Ok(suffix) => {
                let listed = tables.listed(&suffix)?;
                Some(Ok((plan.position(&suffix), listed)))
            }
        });
        paging::page(rows, limit, |listed| query.admits(&listed.summary))
    }

    async fn relist(
        &self,
        id: &Scoped<ConversationId>,
        summary: &ConversationSummary,
        indexed: &[String],
    ) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let known = tables.conversations.get_mut(id);
        let known = known.filter(|known| is_as_read(&known.summary, summary));
        let Some(known) = known else { return Ok(false) };
        known.summary.listing = summary.listing.clone();
        tables.index.replace(id, Some(Entry::new(summary, indexed, None)));
        Ok(true)
    }

    async fn rebuild(&self) -> Result<Option<Rebuild>, StoreError> {
        Ok(self.tables().index.rebuild.clone())
    }

    async fn replace_rebuild(
        &self,
        present: Option<&Rebuild>,
        next: &Rebuild,
    ) -> Result<bool, StoreError> {
        let rebuild = &mut self.tables().index.rebuild;
        let is_present = rebuild.as_ref() == present;
        if is_present {
            *rebuild = Some(next.clone());
        }
        Ok(is_present)
    }

    async fn index_jobs(&self) -> Result<IndexJobs, StoreError> {
        Ok(self.tables().index.jobs.clone())
    }

    async fn replace_index_jobs(
        &self,
        present: &IndexJobs,
        next: &IndexJobs,
    ) -> Result<bool, StoreError> {
        let jobs = &mut self.tables().index.jobs;
        let is_present = *jobs == *present;
        if is_present {
            *jobs = next.clone();
        }
        Ok(is_present)
    }
}

impl Tables {
    fn listed(&self, suffix: &str) -> Option<ListedConversation> {
        let IndexMember { id, .. } = IndexMember::from_suffix(suffix)?;
        let known = self.conversations.get(&id)?;
        let (summary, pending) = (known.summary.clone(), known.open.len());
        Some(ListedConversation { id, summary, pending })
    }
}
