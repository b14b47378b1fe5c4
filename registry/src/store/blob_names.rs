//! Who names a blob, as a port: a blob ends with the last name and the last hold.
//!
//! A name is never missing: it is written before the commit that names the blob, or with it. One too
//! many does no harm, and goes with its conversation.

use std::collections::BTreeSet;

use abide_actors::blobs::{BlobHold, BlobHolder, MAX_BLOB_HOLDS, NamedBlobs};
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

    /// Notes that the journal of a conversation names these blobs, if there is one, which uses up no
    /// upload. Repeating it is harmless.
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

    /// Has the names dropped of conversations that are not there: a node of a version that knows of no
    /// names has deleted them. Looks at the next `limit` conversations of these partitions that have
    /// names, from a cursor on or from the first. Returns the cursor to go on from; `None` after the
    /// last.
    async fn drop_lost_names(
        &self,
        partitions: &PartitionSet,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Option<String>, StoreError>;
}

/// A blob that a conversation names, with the holds that this ends.
#[derive(Clone, Debug)]
pub(super) struct Naming {
    pub(super) blob: Scoped<BlobId>,
    /// The conversation's own, and those of whoever has uploaded the blob to name it.
    pub(super) ended: Vec<BlobHold>,
}

impl Naming {
    /// What a conversation names.
    pub(super) fn all(id: &Scoped<ConversationId>, named: NamedBlobs) -> Vec<Self> {
        let holder = BlobHolder::Conversation(id.local());
        let own = BlobHold { holder, until: Timestamp::MAX };
        let naming = |(blob, used_up): (BlobId, BTreeSet<BlobHold>)| Self {
            blob: id.sibling(&blob),
            ended: used_up.into_iter().chain([own.clone()]).collect(),
        };
        named.into_iter().map(naming).collect()
    }

    /// What a conversation names that nobody sends now: no upload was for that.
    pub(super) fn unsent(id: &Scoped<ConversationId>, blobs: &BTreeSet<BlobId>) -> Vec<Self> {
        Self::all(id, blobs.iter().map(|blob| (blob.clone(), BTreeSet::new())).collect())
    }

    /// Whether this ends a hold, given its holder's text.
    pub(super) fn ends(&self, holder: &str, until: Timestamp) -> bool {
        BlobHolder::parse(holder).is_some_and(|holder| {
            let hold = BlobHold { holder, until };
            self.ended.iter().any(|ended| ended.ends(&hold))
        })
    }
}

/// The holder as which a store writes a hold, given whether the holder has one on the blob, and how
/// many holds that has.
pub(super) fn holder_to_write(holder: &str, has_one: bool, holds: usize) -> String {
    let is_schedule = matches!(BlobHolder::parse(holder), Some(BlobHolder::Schedule { .. }));
    if has_one || is_schedule || holds < MAX_BLOB_HOLDS {
        holder.to_owned()
    } else {
        BlobHolder::Others.text()
    }
}

/// The partition of a blob.
pub(super) fn partition_of(id: &Scoped<BlobId>) -> Partition {
    Partition::of(id.as_str())
}
