//! Counts the open suspensions of the cluster, now and then, slowly.

use std::sync::Arc;
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_conversation::Timestamp;
use abide_conversation::event::SuspensionKind;
use tokio::time::Instant;

use crate::cluster_client::ClusterClient;
use crate::partition::Partition;
use crate::store::{ListError, Store, SuspensionCount};

/// From the end of one count to the beginning of the next: as often as metrics are read.
const EVERY: Duration = Duration::from_secs(15);
/// How many are read at once.
const PAGE: usize = 1_000;
/// The store rests so many times as long as that took, within these bounds: one that has much to do
/// is asked for a thousand a second, which takes a hundredth of a core of it, and another for four
/// times as many.
const RESTS: u32 = 30;
const REST: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));
/// More than these are not looked at: half an hour's reading at most.
const MOST: usize = 2_000_000;

/// What was counted, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    open: usize,
    oldest: Option<Timestamp>,
}

const KINDS: [(SuspensionKind, &str); 3] = [
    (SuspensionKind::Approval, "approval"),
    (SuspensionKind::Elicitation, "elicitation"),
    (SuspensionKind::ClientExec, "client_exec"),
];

/// Runs until it is dropped. One node counts for all: the one that looks after the first partition.
/// The others say none, so that the sum over the nodes is right.
pub async fn run(cluster: ClusterClient, store: Arc<dyn Store>, clock: Arc<dyn Clock>) {
    loop {
        let mine = || Partition::all().next().is_some_and(|it| cluster.view().share.contains(it));
        let counted = match mine() {
            // A store that is away is said by others; what was counted last is not true for ever.
            true => count(&*store).await.unwrap_or_default(),
            false => Default::default(),
        };
        publish(if mine() { counted } else { Default::default() }, clock.now());
        tokio::time::sleep(EVERY).await;
    }
}

async fn count(store: &dyn Store) -> Result<[Count; 3], ListError> {
    let (mut counts, mut cursor, mut read) = ([Count::default(); 3], None, 0);
    loop {
        let asked = Instant::now();
        let page = store.waiting(cursor.as_deref(), PAGE).await?;
        read += page.items.len();
        for SuspensionCount { kind, since } in page.items {
            for (count, (counted, _)) in counts.iter_mut().zip(KINDS) {
                if counted == kind {
                    count.open += 1;
                    count.oldest = Some(count.oldest.map_or(since, |oldest| oldest.min(since)));
                }
            }
        }
        cursor = match page.cursor {
            Some(next) if read < MOST => Some(next),
            _ => return Ok(counts),
        };
        tokio::time::sleep((asked.elapsed() * RESTS).clamp(REST.0, REST.1)).await;
    }
}

fn publish(counts: [Count; 3], now: Timestamp) {
    for (Count { open, oldest }, (_, kind)) in counts.into_iter().zip(KINDS) {
        metrics::gauge!("abide_open_suspensions", "kind" => kind).set(open as f64);
        let age = oldest.map_or(0.0, |oldest| now.duration_since(oldest).as_secs_f64().max(0.0));
        metrics::gauge!("abide_oldest_suspension_seconds", "kind" => kind).set(age);
    }
}
