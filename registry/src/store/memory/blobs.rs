//! Blobs in memory, and who names and holds them.

use std::collections::{BTreeMap, BTreeSet};

use abide_actors::blobs::{Blob, BlobHold, BlobHolder, BlobInfo, Blobs};
use abide_actors::journal::StoreError;
use abide_conversation::{BlobId, ConversationId, Scoped, Timestamp};
use async_trait::async_trait;

use super::super::blob_names::{BlobNames, Naming, holder_to_write, partition_of};
use super::Memory;
use super::tables::Tables;
use crate::partition::PartitionSet;

/// Who names and who holds each blob.
#[derive(Debug, Default)]
pub(super) struct Names {
    by_conversation: BTreeMap<Scoped<ConversationId>, BTreeSet<Scoped<BlobId>>>,
    by_blob: BTreeMap<Scoped<BlobId>, BTreeSet<Scoped<ConversationId>>>,
    holds: BTreeMap<Scoped<BlobId>, BTreeMap<String, Timestamp>>,
}

impl Tables {
    /// Notes that a conversation names these blobs, and ends the holds that were for this.
    pub(super) fn name_blobs(&mut self, id: &Scoped<ConversationId>, namings: Vec<Naming>) {
        for naming in namings {
            let Names { by_conversation, by_blob, holds } = &mut self.blob_names;
            let blob = &naming.blob;
            by_conversation.entry(id.clone()).or_default().insert(blob.clone());
            if !self.blobs.contains_key(blob) {
                continue;
            }
            by_blob.entry(blob.clone()).or_default().insert(id.clone());
            let Some(held) = holds.get_mut(blob) else { continue };
            held.retain(|holder, until| !naming.ends(holder, *until));
            if held.is_empty() {
                holds.remove(blob);
            }
        }
    }

    /// Holds a blob, if it is there.
    fn hold_blob(&mut self, id: &Scoped<BlobId>, hold: &BlobHold) {
        if self.blobs.contains_key(id) {
            let held = self.blob_names.holds.entry(id.clone()).or_default();
            let holder = hold.holder.text();
            let holder = holder_to_write(&holder, held.contains_key(&holder), held.len());
            let until = held.entry(holder).or_insert(hold.until);
            *until = hold.until.max(*until);
        }
    }

    /// Removes a blob, and the holds on it. Its names stay: they count again if it is stored again.
    pub(super) fn remove_blob(&mut self, id: &Scoped<BlobId>) -> bool {
        self.blob_names.holds.remove(id);
        self.blobs.remove(id).is_some()
    }

    /// Removes the names of a conversation, and the blobs that have no other.
    pub(super) fn drop_blob_names(&mut self, id: &Scoped<ConversationId>) {
        let named = self.blob_names.by_conversation.remove(id).unwrap_or_default();
        for blob in named {
            if let Some(names) = self.blob_names.by_blob.get_mut(&blob) {
                names.remove(id);
                if names.is_empty() {
                    self.blob_names.by_blob.remove(&blob);
                }
            }
            if !self.remove_unused_blob(&blob) && self.is_unused(&blob) {
                // It goes when it is known that no journal names it.
                let ended = BTreeMap::from([(NOBODY.to_owned(), Timestamp::MIN)]);
                self.blob_names.holds.insert(blob, ended);
            }
        }
    }

    fn is_unused(&self, blob: &Scoped<BlobId>) -> bool {
        let Names { by_blob, holds, .. } = &self.blob_names;
        self.blobs.contains_key(blob) && !by_blob.contains_key(blob) && !holds.contains_key(blob)
    }

    fn remove_unused_blob(&mut self, blob: &Scoped<BlobId>) -> bool {
        self.index.has_blob_names() && self.is_unused(blob) && self.blobs.remove(blob).is_some()
    }
}

/// Stands for a hold of nobody.
const NOBODY: &str = "";

#[async_trait]
impl Blobs for Memory {
    async fn store_blob(
        &self,
        id: &Scoped<BlobId>,
        blob: &Blob,
        hold: Option<&BlobHold>,
    ) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let is_new = tables.blobs.insert(id.clone(), blob.clone()).is_none();
        if let Some(hold) = hold {
            tables.hold_blob(id, hold);
        }
        Ok(is_new)
    }

    async fn hold_blob(
        &self,
        id: &Scoped<BlobId>,
        hold: &BlobHold,
    ) -> Result<Option<BlobInfo>, StoreError> {
        let mut tables = self.tables();
        tables.hold_blob(id, hold);
        Ok(tables.blobs.get(id).map(Blob::info))
    }

    async fn blob_info(&self, id: &Scoped<BlobId>) -> Result<Option<BlobInfo>, StoreError> {
        Ok(self.tables().blobs.get(id).map(Blob::info))
    }

    async fn blob(&self, id: &Scoped<BlobId>) -> Result<Option<Blob>, StoreError> {
        Ok(self.tables().blobs.get(id).cloned())
    }

    async fn delete_blob(&self, id: &Scoped<BlobId>) -> Result<bool, StoreError> {
        Ok(self.tables().remove_blob(id))
    }
}

#[async_trait]
impl BlobNames for Memory {
    async fn named_blobs(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<BTreeSet<BlobId>, StoreError> {
        let tables = self.tables();
        let named = tables.blob_names.by_conversation.get(id);
        Ok(named.into_iter().flatten().map(Scoped::local).collect())
    }

    async fn name_blobs(
        &self,
        id: &Scoped<ConversationId>,
        blobs: &BTreeSet<BlobId>,
    ) -> Result<(), StoreError> {
        let mut tables = self.tables();
        if tables.conversations.contains_key(id) {
            tables.name_blobs(id, Naming::unsent(id, blobs));
        }
        Ok(())
    }

    async fn due_blobs(
        &self,
        partitions: &PartitionSet,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Scoped<BlobId>>, StoreError> {
        let tables = self.tables();
        let first_end = |(id, held): (&Scoped<BlobId>, &BTreeMap<String, Timestamp>)| {
            held.values().min().map(|at| (*at, id.clone()))
        };
        let due = tables.blob_names.holds.iter().filter_map(first_end);
        let due = due.filter(|(at, id)| *at <= until && partitions.contains(partition_of(id)));
        let due: BTreeSet<_> = due.collect();
        Ok(due.into_iter().take(limit).map(|(_, id)| id).collect())
    }

    async fn blob_holds(&self, id: &Scoped<BlobId>) -> Result<Vec<BlobHold>, StoreError> {
        let tables = self.tables();
        let holds = tables.blob_names.holds.get(id).into_iter().flatten();
        let holds = holds.filter_map(|(holder, until)| {
            Some(BlobHold { holder: BlobHolder::parse(holder)?, until: *until })
        });
        Ok(holds.collect())
    }

    async fn end_holds(
        &self,
        id: &Scoped<BlobId>,
        released: Option<&BlobHolder>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        if !tables.index.has_blob_names() {
            return Ok(false);
        }
        let released = released.map(BlobHolder::text);
        if let Some(held) = tables.blob_names.holds.get_mut(id) {
            held.retain(|holder, until| now < *until && released.as_ref() != Some(holder));
            if held.is_empty() {
                tables.blob_names.holds.remove(id);
            }
        }
        Ok(tables.remove_unused_blob(id))
    }

    async fn drop_lost_names(
        &self,
        _: &PartitionSet,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Option<String>, StoreError> {
        let mut tables = self.tables();
        let naming = tables.blob_names.by_conversation.keys();
        let after = naming.filter(|id| cursor.is_none_or(|cursor| cursor < id.as_str()));
        let seen: Vec<_> = after.take(limit).cloned().collect();
        let cursor = seen.last().filter(|_| seen.len() == limit).map(ToString::to_string);
        for id in seen {
            if !tables.conversations.contains_key(&id) {
                tables.drop_blob_names(&id);
            }
        }
        Ok(cursor)
    }
}
