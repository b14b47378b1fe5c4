//! The blobs of a subject: those that go with its conversations, and those that it uploaded and nothing
//! names.

use std::collections::BTreeSet;

use abide_actors::blobs::{BlobHold, BlobHolder};
use abide_actors::journal::StoreError;
use abide_conversation::{BlobId, ConversationId, Scoped, Tenant, Timestamp};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::SignedDuration;

use super::eraser::{EraseError, Eraser};
use crate::erasure::Erasure;
use crate::partition::{Partition, PartitionSet};
use crate::schedule_changes;

/// The blobs of a partition that are looked at, which is more than a day's uploads fill.
const MAX_PER_PARTITION: usize = 100_000;
/// The deletions of a partition that are carried on.
const MAX_DELETIONS: usize = 1_000;
/// How many blobs are looked at at once: others use the store, too.
const MAX_CONCURRENT_LOOKS: usize = 8;
/// How long a conversation or schedule that is not there may be about to be created with the blob that
/// it holds.
const CREATION_TIMEOUT: SignedDuration = SignedDuration::from_secs(60);

impl Eraser {
    /// The blobs that are there and that a conversation names.
    pub(super) async fn blobs_of(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<BTreeSet<Scoped<BlobId>>, StoreError> {
        let mut blobs = BTreeSet::new();
        for blob in self.store.named_blobs(id).await? {
            let blob = id.sibling(&blob);
            if self.store.blob_info(&blob).await?.is_some() {
                blobs.insert(blob);
            }
        }
        Ok(blobs)
    }

    /// How many of these blobs are there no more.
    pub(super) async fn count_missing(
        &self,
        blobs: BTreeSet<Scoped<BlobId>>,
    ) -> Result<u64, StoreError> {
        let mut missing = 0;
        for blob in blobs {
            missing += u64::from(self.store.blob_info(&blob).await?.is_none());
        }
        Ok(missing)
    }

    /// Removes what the subject has uploaded and nothing names, what only deleted conversations and
    /// schedules hold, and what deletions have left to remove.
    pub(super) async fn delete_unnamed_blobs(
        &self,
        tenant: &Tenant,
        erasure: &mut Erasure,
    ) -> Result<(), EraseError> {
        let Some(running) = erasure.running() else { return Ok(()) };
        let uploader = BlobHolder::uploader(&running.subject);
        let all = PartitionSet::all();
        for dropped in self.store.dropped_names(&all, MAX_DELETIONS).await? {
            self.store.drop_names(&dropped, false, self.clock.now()).await?;
        }
        for partition in Partition::all() {
            let share: PartitionSet = [partition].into_iter().collect();
            let held = self.store.due_blobs(&share, Timestamp::MAX, MAX_PER_PARTITION).await?;
            let own = held.into_iter().filter(|blob| blob.is_of(tenant));
            let (gone, uploader) = (&erasure.report.conversation_ids, &uploader);
            let removals =
                own.map(|blob| async move { self.end_holds(&blob, uploader, gone).await });
            let removals = stream::iter(removals).buffer_unordered(MAX_CONCURRENT_LOOKS);
            let removals: Vec<bool> = removals.try_collect().await?;
            let removed = removals.into_iter().filter(|removed| *removed).count();
            erasure.report.deleted.blobs += removed as u64;
        }
        Ok(())
    }

    /// Ends the holds on a blob that are the subject's, or of what is gone. Returns whether the blob
    /// was removed.
    async fn end_holds(
        &self,
        blob: &Scoped<BlobId>,
        uploader: &BlobHolder,
        gone: &[String],
    ) -> Result<bool, StoreError> {
        let now = self.clock.now();
        let holds = self.store.blob_holds(blob).await?;
        if holds.is_empty() {
            return self.store.end_holds(blob, None, now).await;
        }
        for hold in holds {
            if (hold.holder == *uploader || self.is_gone(blob, &hold, gone).await?)
                && self.store.end_holds(blob, Some(&hold.holder), now).await?
            {
                return Ok(true);
            }
        }
        Ok(false)
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
                let is_old = self.clock.now().duration_since(hold.began_at()) > CREATION_TIMEOUT;
                let was_deleted = || gone.iter().any(|gone| gone == id.as_str());
                Ok((is_old || was_deleted())
                    && self.store.summary(&blob.sibling(id)).await?.is_none())
            }
            BlobHolder::Schedule { .. } => {
                let is_old = self.clock.now().duration_since(hold.began_at()) > CREATION_TIMEOUT;
                Ok(is_old && !schedule_changes::is_kept(&*self.store, blob, &hold.holder).await?)
            }
            BlobHolder::Uploader(_) | BlobHolder::Others => Ok(false),
        }
    }
}
