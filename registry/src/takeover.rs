//! Resumes orphaned conversations: those that have work to do and that no live node holds.

use std::sync::Arc;
use std::time::Duration;

use abide_conversation::{ConversationId, Scoped};
use futures::StreamExt;
use tokio::sync::mpsc;

use crate::cluster_view::ClusterView;
use crate::router::ConversationRouter;
use crate::store::Store;

/// How often a node sweeps although its view has not changed, in case something fell between two
/// views.
pub const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// How many active conversations are read at once.
const PAGE_SIZE: usize = 1_000;
/// How many conversations are started at once.
const MAX_CONCURRENT_STARTS: usize = 32;
/// The number of running model calls and tools from which each start is delayed, since it may add
/// more.
const BUSY_WORK: usize = 256;
const BUSY_START_DELAY: Duration = Duration::from_millis(20);
/// The delay before reading again from a store that is away, which bounds how long its return goes
/// unnoticed.
const STORE_RETRY_DELAY: Duration = Duration::from_millis(200);
/// The delay before the next sweep after one that could not start all that it found; it doubles
/// with each further one, up to [`SWEEP_INTERVAL`].
const FIRST_FAILED_SWEEP_DELAY: Duration = Duration::from_millis(200);

/// Runs until it is dropped: sweeps when the members change, and at every interval.
pub async fn run(conversations: ConversationRouter, store: Arc<dyn Store>) {
    let mut seen = conversations.cluster().watch();
    let mut failed_sweeps: u32 = 0;
    loop {
        let view = seen.borrow_and_update().clone();
        let SweepOutcome { started, failed } = sweep(&conversations, &*store).await;
        if started > 0 {
            tracing::info!(count = started, "resumed orphaned conversations");
            metrics::counter!("abide_takeovers_total").increment(started as u64);
        }
        failed_sweeps = if failed > 0 { failed_sweeps.saturating_add(1) } else { 0 };
        let changed = async {
            while seen.changed().await.is_ok() {
                if may_orphan(&view, &seen.borrow_and_update()) {
                    return;
                }
            }
        };
        // Sweep again after a change or after the interval.
        let _ = tokio::time::timeout(sweep_delay(failed_sweeps), changed).await;
    }
}

/// The delay before the next sweep, after this many in a row that could not start all they found.
fn sweep_delay(failed_sweeps: u32) -> Duration {
    let Some(doublings) = failed_sweeps.checked_sub(1) else { return SWEEP_INTERVAL };
    FIRST_FAILED_SWEEP_DELAY.saturating_mul(2_u32.saturating_pow(doublings)).min(SWEEP_INTERVAL)
}

/// Whether a new view may come with orphans that the view before did not have. A view changes at
/// every renewal; its members and shares, which matter here, seldom do.
pub fn may_orphan(before: &ClusterView, now: &ClusterView) -> bool {
    let same_members =
        || now.all().map(|member| &member.holder).eq(before.all().map(|it| &it.holder));
    now.partitions != before.partitions || !same_members()
}

/// How many orphaned conversations a sweep started, and how many it could not start.
struct SweepOutcome {
    started: usize,
    failed: usize,
}

/// Starts every orphaned conversation of this node's partitions, however long the store takes.
async fn sweep(conversations: &ConversationRouter, store: &dyn Store) -> SweepOutcome {
    let mut cursor = None;
    let mut outcome = SweepOutcome { started: 0, failed: 0 };
    let mut is_store_away = false;
    loop {
        let partitions = conversations.cluster().view().partitions.clone();
        let page = match store.active(&partitions, cursor.as_deref(), PAGE_SIZE).await {
            Ok(page) => page,
            Err(error) => {
                if !std::mem::replace(&mut is_store_away, true) {
                    tracing::warn!(%error, "active conversations cannot be read");
                }
                tokio::time::sleep(STORE_RETRY_DELAY).await;
                continue;
            }
        };
        let mut orphans = Vec::new();
        for (id, held) in page.items {
            if conversations.is_orphan(&id, held.map(|held| held.holder)).await {
                orphans.push(id);
            }
        }
        let starts = orphans.into_iter().map(|id| async move { start(conversations, &id).await });
        let started = futures::stream::iter(starts).buffer_unordered(MAX_CONCURRENT_STARTS);
        let started: Vec<bool> = started.collect().await;
        let count = started.iter().filter(|started| **started).count();
        outcome.started += count;
        outcome.failed += started.len() - count;
        match page.cursor {
            Some(next) => cursor = Some(next),
            None => return outcome,
        }
    }
}

/// Starts the conversations elsewhere that a draining node leaves with work to do, one by one.
/// Those that it does not get to are found by the sweeps of the other nodes.
pub async fn hand_over(
    conversations: ConversationRouter,
    unfinished: mpsc::UnboundedReceiver<Scoped<ConversationId>>,
) {
    let unfinished = futures::stream::unfold(unfinished, |mut unfinished| async {
        let id = unfinished.recv().await?;
        Some((id, unfinished))
    });
    let conversations = &conversations;
    let start = |id| async move {
        start(conversations, &id).await;
    };
    unfinished.for_each_concurrent(MAX_CONCURRENT_STARTS, start).await;
}

async fn start(conversations: &ConversationRouter, id: &Scoped<ConversationId>) -> bool {
    if conversations.running_work() >= BUSY_WORK {
        tokio::time::sleep(BUSY_START_DELAY).await;
    }
    match conversations.start(id).await {
        Ok(()) => true,
        // The next sweep tries again.
        Err(error) => {
            tracing::debug!(conversation = %id, %error, "orphaned conversation not started");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use abide_actors::identity::Incarnation;

    use super::*;
    use crate::cluster_view::tests::seen;
    use crate::member::{LinkState, ObservedMember};

    #[test]
    fn orphans_come_with_another_incarnation_or_another_share_only() {
        let view = |b: ObservedMember, link: LinkState| {
            let links = [(b.member.process.clone(), link)].into();
            ClusterView::new(seen("a").member.holder, vec![seen("a"), b], Arc::new(links))
        };
        let (mut silent, mut reborn) = (seen("b"), seen("b"));
        silent.silent_ms = 1_000;
        reborn.member.holder.incarnation = Incarnation::new("second");
        let before = view(seen("b"), LinkState::Connected);
        assert!(!may_orphan(&before, &before));
        assert!(!may_orphan(&before, &view(silent, LinkState::Connected)));
        assert!(may_orphan(&before, &view(reborn, LinkState::Connected)));
        assert!(may_orphan(&before, &view(seen("b"), LinkState::Lost)), "b's share is a's");
    }

    #[test]
    fn a_sweep_that_left_orphans_is_repeated_soon_and_ever_more_seldom() {
        let delays: Vec<_> = (0..8).map(|failed| sweep_delay(failed).as_millis()).collect();
        assert_eq!(delays, [5_000, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        assert_eq!(sweep_delay(u32::MAX), SWEEP_INTERVAL);
    }
}
