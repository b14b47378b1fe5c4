//! Removes blobs that nothing names any longer, and finishes what deletions have left to do about them.
//!
//! A blob that nothing names yet has a hold that runs out; the store removes it only if that is still
//! so at the moment of the removal.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use abide_actors::blobs::BlobHold;
use abide_actors::clock::Clock;
use abide_actors::journal::StoreError;
use abide_conversation::{BlobId, Scoped};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::time::Instant;

use crate::retention::RetentionRules;
use crate::router::ConversationRouter;
use crate::schedule_changes;
use crate::store::{DroppedNames, Store};

/// How often a node looks at its partitions, so that what is due goes within a minute.
const SWEEP_INTERVAL: Duration = Duration::from_secs(20);
/// The blobs of a partition that one sweep looks at, and the deletions.
const MAX_PER_PARTITION: usize = 100;
/// How many blobs are removed at once: others use the store, too.
const MAX_CONCURRENT_REMOVALS: usize = 4;
/// The conversations that one sweep looks at, whether they are there whose names of blobs are: a million
/// take half a day.
const NAMERS_PER_SWEEP: usize = 500;
/// How long the names of a deleted conversation may still be added by a writer that has not learned of
/// the deletion: longer than any write takes.
const DELETION_SETTLES: Duration = Duration::from_secs(60);

/// Sweeps the partitions that this node looks after. For a moment two may; then one finds nothing.
pub struct BlobSweeper {
    pub conversations: ConversationRouter,
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub rules: Arc<dyn RetentionRules>,
}

/// Since when each deletion has been known here.
type Deletions = HashMap<DroppedNames, Instant>;

/// What a sweeper remembers from one sweep to the next.
#[derive(Default)]
struct Progress {
    deletions: Deletions,
    /// Up to where it was looked for names whose conversations are not there.
    names_cursor: Option<String>,
}

impl BlobSweeper {
    /// Runs until it is dropped.
    pub async fn run(self) {
        let mut is_store_away = false;
        let mut progress = Progress::default();
        loop {
            match self.sweep(&mut progress).await {
                Ok(()) => is_store_away = false,
                Err(error) => {
                    if !std::mem::replace(&mut is_store_away, true) {
                        tracing::warn!(%error, "blobs not swept");
                    }
                }
            }
            tokio::time::sleep(SWEEP_INTERVAL).await;
        }
    }

    async fn sweep(&self, progress: &mut Progress) -> Result<(), StoreError> {
        self.settle_deletions(&mut progress.deletions).await?;
        self.look_for_lost_names(&mut progress.names_cursor).await?;
        if !self.store.rebuild().await?.is_some_and(|rebuild| rebuild.has_blob_names) {
            // What nothing seems to name may be named by a journal that was not read for this yet.
            return Ok(());
        }
        let view = self.conversations.cluster().view();
        let now = self.clock.now();
        let due = self.store.due_blobs(&view.partitions, now, MAX_PER_PARTITION).await?;
        let removals = due.into_iter().map(|blob| async move { self.end_holds(&blob).await });
        let removals = stream::iter(removals).buffer_unordered(MAX_CONCURRENT_REMOVALS);
        removals.try_collect::<Vec<()>>().await.map(drop)
    }

    /// Ends what has run out of the holds on a blob; those of schedules that name it are renewed.
    async fn end_holds(&self, blob: &Scoped<BlobId>) -> Result<(), StoreError> {
        let now = self.clock.now();
        for BlobHold { holder, until } in self.store.blob_holds(blob).await? {
            if until <= now && schedule_changes::is_kept(&*self.store, blob, &holder).await? {
                self.store.hold_blob(blob, &BlobHold::new(holder, now)).await?;
            }
        }
        if self.store.end_holds(blob, None, now).await? {
            tracing::info!(%blob, "blob removed that nothing names");
            self.rules.deleted(&blob.tenant());
        }
        Ok(())
    }

    /// Removes the names that deletions have left, and once more when nobody can have added any.
    async fn settle_deletions(&self, deletions: &mut Deletions) -> Result<(), StoreError> {
        let view = self.conversations.cluster().view();
        let found = self.store.dropped_names(&view.partitions, MAX_PER_PARTITION).await?;
        let present: BTreeSet<_> = found.iter().map(|it| (it.id.clone(), it.epoch)).collect();
        deletions.retain(|known, _| present.contains(&(known.id.clone(), known.epoch)));
        for dropped in found {
            let known_since = deletions.get(&dropped);
            let is_settled = known_since.is_some_and(|it| it.elapsed() >= DELETION_SETTLES);
            if known_since.is_some() && !is_settled {
                continue;
            }
            if is_settled {
                self.give_up_claim(&dropped).await?;
            }
            self.store.drop_names(&dropped, is_settled, self.clock.now()).await?;
            deletions.entry(dropped).or_insert_with(Instant::now);
        }
        Ok(())
    }

    /// Has the names dropped that a node of an earlier version has left with a deletion: some
    /// conversations at a time, so that a sweep costs the same however many there are.
    async fn look_for_lost_names(&self, cursor: &mut Option<String>) -> Result<(), StoreError> {
        let partitions = &self.conversations.cluster().view().partitions;
        let next =
            self.store.drop_lost_names(partitions, cursor.as_deref(), NAMERS_PER_SWEEP).await?;
        *cursor = next;
        Ok(())
    }

    /// Gives the claim up of a holder that died before it wrote the first commit.
    async fn give_up_claim(
        &self,
        DroppedNames { id, .. }: &DroppedNames,
    ) -> Result<(), StoreError> {
        let cluster = self.conversations.cluster();
        let Some(claim) = self.store.current_claim(id).await? else { return Ok(()) };
        if self.store.summary(id).await?.is_some() || !cluster.is_dead(&claim.holder).await? {
            return Ok(());
        }
        let me = cluster.lease().me();
        let mine = self.store.claim(id, &me, Some(&claim.holder)).await?;
        if mine.holder == me { self.store.release(id, &mine).await } else { Ok(()) }
    }
}
