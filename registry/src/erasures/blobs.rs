//! The blobs of a subject: those that go with its conversations, and those that it uploaded and nothing
//! names.

use std::collections::BTreeSet;

use abide_actors::blobs::{BlobHold, BlobHolder};
use abide_actors::conversation::planned_children;
use abide_actors::journal::StoreError;
use abide_conversation::{BlobId, ConversationId, Scoped, Tenant, Timestamp};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::SignedDuration;

use super::eraser::{EraseError, Eraser};
use crate::erasure::{Erasure, ErasureState, NotedBlobs};
use crate::partition::{Partition, PartitionSet};
use crate::schedule_changes;

/// The blobs of a partition that are looked at, which is more than a day's uploads fill.
const MAX_PER_PARTITION: usize = 100_000;
/// The deletions of a partition that are carried on.
const MAX_DELETIONS: usize = 1_000;
/// How many blobs are noted at once, and those of a partition more: the progress is stored with
/// each step.
const MAX_NOTED_BLOBS: usize = 1_000;
/// How many blobs are looked at at once: others use the store, too.
const MAX_CONCURRENT_LOOKS: usize = 8;
/// How long a conversation that is not there may be about to be created with the blob that it holds:
/// longer than the body of an import may take.
const IMPORT_TIMEOUT: SignedDuration = SignedDuration::from_hours(2);
/// How long a schedule that is not there may be about to be put with the blob that it holds.
const PUT_TIMEOUT: SignedDuration = SignedDuration::from_secs(60);

impl Eraser {
    /// The blobs that are there and that a conversation names, or one of its children, which go with
    /// it.
    pub(super) async fn blobs_of(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<BTreeSet<BlobId>, StoreError> {
        let (mut blobs, mut left) = (BTreeSet::new(), vec![id.clone()]);
        let mut family = BTreeSet::new();
        while let Some(next) = left.pop() {
            for blob in self.store.named_blobs(&next).await? {
                if self.store.blob_info(&next.sibling(&blob)).await?.is_some() {
                    blobs.insert(blob);
                }
            }
            match planned_children(self.store.as_ref(), &next).await {
                Ok(children) => left.extend(children.difference(&family).cloned()),
                // Nobody can read which children it has.
                Err(StoreError::Unreadable(_)) => {}
                Err(error) => return Err(error),
            }
            family.insert(next);
        }
        Ok(blobs)
    }

    /// How many of these blobs have gone with the conversations. A node that died may have left
    /// names to remove.
    pub(super) async fn count_gone(
        &self,
        tenant: &Tenant,
        blobs: &[BlobId],
        deleted: &[Scoped<ConversationId>],
    ) -> Result<u64, StoreError> {
        let gone = self.count_missing(tenant, blobs).await?;
        if gone == blobs.len() as u64 {
            return Ok(gone);
        }
        let share: PartitionSet = deleted.iter().map(Partition::from).collect();
        for dropped in self.store.dropped_names(&share, MAX_DELETIONS).await? {
            if deleted.contains(&dropped.id) {
                self.store.drop_names(&dropped, false, self.clock.now()).await?;
            }
        }
        self.count_missing(tenant, blobs).await
    }

    /// How many of these blobs are there no more.
    async fn count_missing(&self, tenant: &Tenant, blobs: &[BlobId]) -> Result<u64, StoreError> {
        let mut missing = 0;
        for blob in blobs {
            let blob = Scoped::new(tenant, blob);
            missing += u64::from(self.store.blob_info(&blob).await?.is_none());
        }
        Ok(missing)
    }

    /// Removes what the subject has uploaded and nothing names, what only deleted conversations and
    /// schedules hold, and what deletions have left to remove: one step notes blobs, and the next
    /// one ends their holds. Returns whether nothing is left to do.
    pub(super) async fn delete_unnamed_blobs(
        &self,
        tenant: &Tenant,
        erasure: &mut Erasure,
    ) -> Result<bool, EraseError> {
        let gone = erasure.report.conversation_ids.as_slice();
        let ErasureState::Running(running) = &mut erasure.state else { return Ok(true) };
        let uploader = &BlobHolder::uploader(&running.subject);
        if let Some(NotedBlobs { blobs, .. }) = &running.noted {
            let noted = blobs.clone().into_iter().map(|blob| Scoped::new(tenant, &blob));
            let ends = noted.map(|blob| async move { self.end_holds(&blob, uploader, gone).await });
            let ends = stream::iter(ends).buffer_unordered(MAX_CONCURRENT_LOOKS);
            ends.try_collect::<Vec<()>>().await?;
            let missing = self.count_missing(tenant, blobs).await?;
            running.noted = None;
            erasure.report.deleted.blobs += missing;
            return Ok(false);
        }
        let next = match &running.cursor {
            None => {
                let all = PartitionSet::all();
                for dropped in self.store.dropped_names(&all, MAX_DELETIONS).await? {
                    self.store.drop_names(&dropped, false, self.clock.now()).await?;
                }
                0
            }
            Some(cursor) => cursor.parse().map_err(|_| EraseError::Cursor)?,
        };
        let mut blobs = Vec::new();
        for partition in Partition::all().skip(next) {
            blobs.extend(self.ending_in(partition, tenant, (uploader, gone)).await?);
            running.cursor = Some((partition.index() + 1).to_string());
            if blobs.len() >= MAX_NOTED_BLOBS {
                break;
            }
        }
        if blobs.is_empty() {
            return Ok(true);
        }
        running.noted = Some(NotedBlobs { conversations: 0, blobs });
        Ok(false)
    }

    /// The blobs of a partition with a hold that is to end.
    async fn ending_in(
        &self,
        partition: Partition,
        tenant: &Tenant,
        (uploader, gone): (&BlobHolder, &[String]),
    ) -> Result<Vec<BlobId>, StoreError> {
        let share: PartitionSet = [partition].into_iter().collect();
        let held = self.store.due_blobs(&share, Timestamp::MAX, MAX_PER_PARTITION).await?;
        let own = held.into_iter().filter(|blob| blob.is_of(tenant));
        let looks = own.map(|blob| async move {
            let ending = self.ending_holds(&blob, uploader, gone).await?;
            Ok::<_, StoreError>(ending.map(|_| blob.local()))
        });
        let looks = stream::iter(looks).buffer_unordered(MAX_CONCURRENT_LOOKS);
        let found: Vec<Option<BlobId>> = looks.try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// The holds on a blob that are the subject's, or of what is gone; `None` if there are only
    /// others.
    async fn ending_holds(
        &self,
        blob: &Scoped<BlobId>,
        uploader: &BlobHolder,
        gone: &[String],
    ) -> Result<Option<Vec<BlobHolder>>, StoreError> {
        let holds = self.store.blob_holds(blob).await?;
        if holds.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let mut ending = Vec::new();
        for hold in holds {
            if hold.holder == *uploader || self.is_gone(blob, &hold, gone).await? {
                ending.push(hold.holder);
            }
        }
        Ok((!ending.is_empty()).then_some(ending))
    }

    /// Ends those holds on a blob, which goes if nothing names it or holds it then.
    async fn end_holds(
        &self,
        blob: &Scoped<BlobId>,
        uploader: &BlobHolder,
        gone: &[String],
    ) -> Result<(), StoreError> {
        let now = self.clock.now();
        match self.ending_holds(blob, uploader, gone).await? {
            Some(ending) if ending.is_empty() => {
                self.store.end_holds(blob, None, now).await?;
            }
            Some(ending) => {
                for holder in &ending {
                    self.store.end_holds(blob, Some(holder), now).await?;
                }
            }
            None => {}
        }
        Ok(())
    }

    /// Whether a blob is held for a conversation or a schedule that is not there.
    async fn is_gone(
        &self,
        blob: &Scoped<BlobId>,
        hold: &BlobHold,
        gone: &[String],
    ) -> Result<bool, StoreError> {
        match &hold.holder {
            BlobHolder::Conversation(id) => {
                let is_old = self.clock.now().duration_since(hold.began_at()) > IMPORT_TIMEOUT;
                let was_deleted = || gone.iter().any(|gone| gone == id.as_str());
                Ok((is_old || was_deleted())
                    && self.store.summary(&blob.sibling(id)).await?.is_none())
            }
            BlobHolder::Schedule { .. } => {
                let is_old = self.clock.now().duration_since(hold.began_at()) > PUT_TIMEOUT;
                Ok(is_old && !schedule_changes::is_kept(&*self.store, blob, &hold.holder).await?)
            }
            BlobHolder::Uploader(_) | BlobHolder::Others => Ok(false),
        }
    }
}
