//! Who names a blob, as a port: a blob ends with the last name and the last hold.
//!
//! A name is never missing: it is written before the commit that names the blob, or with it. One too
//! many does no harm, and goes with its conversation.

use std::collections::BTreeSet;

use abide_actors::blobs::{BlobHold, BlobHolder};
use abide_actors::identity::Epoch;
use abide_actors::journal::StoreError;
use abide_conversation::{BlobId, ConversationId, Scoped, Timestamp};
use async_trait::async_trait;

use crate::partition::{Partition, PartitionSet};

/// The names of a deleted conversation, as far as they are not removed yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DroppedNames {
    pub id: Scoped<ConversationId>,
    /// The claim under which the conversation was deleted: names of later claims stay.
    pub epoch: Epoch,
}

/// Keeps who names and who holds each blob. Commits write the names themselves, and deletions remove
/// them.
///
/// Nothing removes a blob before a [rebuild](super::Rebuild) has found what all journals name.
#[async_trait]
pub trait BlobNames: Send + Sync + 'static {
    /// The blobs that a conversation may name.
    async fn named_blobs(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<BTreeSet<BlobId>, StoreError>;

    /// Notes that the journal of a conversation names these blobs, if there is one. Repeating it is
    /// harmless.
    async fn name_blobs(
        &self,
        id: &Scoped<ConversationId>,
        blobs: &BTreeSet<BlobId>,
    ) -> Result<(), StoreError>;

    /// The blobs of these partitions that a hold keeps, of which one ends by `until`, earliest first:
    /// at least the first `limit` of them, and at most `limit` of each partition.
    async fn due_blobs(
        &self,
        partitions: &PartitionSet,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Scoped<BlobId>>, StoreError>;

    /// The holds on a blob.
    async fn blob_holds(&self, id: &Scoped<BlobId>) -> Result<Vec<BlobHold>, StoreError>;

    /// Ends the holds on a blob that have run out by now, and that of `released`. A blob that nothing
    /// holds or names then is removed in the same step. Returns whether it was.
    async fn end_holds(
        &self,
        id: &Scoped<BlobId>,
        released: Option<&BlobHolder>,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// The deletions of these partitions that have names left to remove; at most `limit` of each. A
    /// store that removes the names with the conversation has none.
    async fn dropped_names(
        &self,
        partitions: &PartitionSet,
        limit: usize,
    ) -> Result<Vec<DroppedNames>, StoreError> {
        let _ = (partitions, limit);
        Ok(Vec::new())
    }

    /// Removes the names of a deleted conversation, and the blobs that nothing names or holds then.
    /// Repeating it is harmless, and necessary: a writer that did not know of the deletion may have
    /// added some of the names after they were removed. The `last` repeat forgets the deletion.
    async fn drop_names(
        &self,
        dropped: &DroppedNames,
        last: bool,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let _ = (dropped, last, now);
        Ok(())
    }
}

/// The partition of a blob.
pub(super) fn partition_of(id: &Scoped<BlobId>) -> Partition {
    Partition::of(id.as_str())
}
