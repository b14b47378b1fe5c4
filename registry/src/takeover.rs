//! Takes up what was running where nobody runs it any more, without being asked.

use std::sync::Arc;
use std::time::Duration;

use abide_conversation::ConversationId;
use futures::StreamExt;
use tokio::sync::mpsc;

use crate::cluster_view::ClusterView;
use crate::router::Conversations;
use crate::store::Store;

/// How often a node looks although nothing changed, in case something fell between two views.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How many are read at once, and how many are started at once.
const PAGE: usize = 1_000;
const AT_ONCE: usize = 32;
/// Starting takes this much longer while so many model calls and tools run here, for each may start
/// another.
const BUSY: usize = 256;
const BREATH: Duration = Duration::from_millis(20);
/// How long to wait for a store that is away.
const AGAIN: Duration = Duration::from_secs(1);

/// Runs until it is dropped: looks when the members change, and now and then.
pub async fn run(conversations: Conversations, store: Arc<dyn Store>) {
    let mut seen = conversations.cluster().watch();
    loop {
        let view = seen.borrow_and_update().clone();
        let taken = sweep(&conversations, &*store).await;
        if taken > 0 {
            tracing::info!(taken, "took up what was running");
            metrics::counter!("abide_takeovers_total").increment(taken as u64);
        }
        let changed = async {
            while seen.changed().await.is_ok() {
                if is_news(&view, &seen.borrow_and_update()) {
                    return;
                }
            }
        };
        // The time or a change: look again either way.
        let _ = tokio::time::timeout(LOOK_EVERY, changed).await;
    }
}

/// Whether there may be something to take up that was not there in the view before. A view changes
/// at every renewal; who is there, and so what is to be done, seldom.
pub fn is_news(before: &ClusterView, now: &ClusterView) -> bool {
    let same = || now.all().map(|member| &member.holder).eq(before.all().map(|it| &it.holder));
    now.share != before.share || !same()
}

/// Starts every conversation of this node's share that wants something running and that no live
/// node holds, however long the store takes. Returns how many.
pub async fn sweep(conversations: &Conversations, store: &dyn Store) -> usize {
    let (mut cursor, mut taken) = (None, 0);
    loop {
        let share = conversations.cluster().view().share.clone();
        let page = match store.active(&share, cursor.as_deref(), PAGE).await {
            Ok(page) => page,
            Err(refusal) => {
                tracing::warn!(%refusal, "what was running cannot be read");
                tokio::time::sleep(AGAIN).await;
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
        let started = futures::stream::iter(starts).buffer_unordered(AT_ONCE);
        taken += started.filter(|started| std::future::ready(*started)).count().await;
        match page.cursor {
            Some(next) => cursor = Some(next),
            None => return taken,
        }
    }
}

/// Starts elsewhere what a draining node leaves undone, as it comes. What it does not come to is
/// found by the others.
pub async fn hand_over(
    conversations: Conversations,
    left: mpsc::UnboundedReceiver<ConversationId>,
) {
    let left = futures::stream::unfold(left, |mut left| async {
        let id = left.recv().await?;
        Some((id, left))
    });
    let conversations = &conversations;
    let start = |id| async move {
        start(conversations, &id).await;
    };
    left.for_each_concurrent(AT_ONCE, start).await;
}

async fn start(conversations: &Conversations, id: &ConversationId) -> bool {
    if conversations.running_work() >= BUSY {
        tokio::time::sleep(BREATH).await;
    }
    match conversations.start(id).await {
        Ok(()) => true,
        // Whatever keeps it from starting, the next look tries again.
        Err(failure) => {
            tracing::debug!(conversation = %id, %failure, "not taken up");
            false
        }
    }
}
