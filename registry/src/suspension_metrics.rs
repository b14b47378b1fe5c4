//! Counts the open suspensions of the cluster for the metrics, slowly, at intervals.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_conversation::Timestamp;
use abide_conversation::event::SuspensionKind;
use futures::TryStreamExt;
use tokio::time::Instant;

use crate::cluster_client::ClusterClient;
use crate::partition::Partition;
use crate::store::{ListError, Store, SuspensionCount, pages};

/// The time from the end of one count to the beginning of the next: as often as metrics are
/// scraped.
const COUNT_INTERVAL: Duration = Duration::from_secs(15);
/// How many suspensions are read at once.
const PAGE_SIZE: usize = 1_000;
/// After each page the store rests 30 times as long as reading it took, within these bounds. A busy
/// store is thus asked for a thousand suspensions a second, which takes it a hundredth of a core,
/// and an idle store for four times as many.
const REST_FACTOR: u32 = 30;
const MIN_REST: Duration = Duration::from_millis(250);
const MAX_REST: Duration = Duration::from_secs(1);
/// No more suspensions than this are read, which takes half an hour at most.
const MAX_COUNTED: usize = 2_000_000;

/// The count of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    open: usize,
    oldest: Option<Timestamp>,
}

const KINDS: [(SuspensionKind, &str); 4] = [
    (SuspensionKind::Approval, "approval"),
    (SuspensionKind::Elicitation, "elicitation"),
    (SuspensionKind::ClientExec, "client_exec"),
    (SuspensionKind::InDoubt, "in_doubt"),
];

/// Runs until it is dropped. One node counts for all: the one that looks after the first partition.
/// The others report zero, so that the sum over the nodes is right.
pub async fn run(cluster: ClusterClient, store: Arc<dyn Store>, clock: Arc<dyn Clock>) {
    loop {
        let is_counter =
            || Partition::all().next().is_some_and(|it| cluster.view().partitions.contains(it));
        let mut counts = <[Count; 4]>::default();
        if is_counter() {
            // A store that is away is reported elsewhere; the last count does not stay true for
            // ever.
            counts = count(&*store).await.unwrap_or_default();
        }
        // Another node may have become the counter in the meantime.
        publish(if is_counter() { counts } else { Default::default() }, clock.now());
        tokio::time::sleep(COUNT_INTERVAL).await;
    }
}

async fn count(store: &dyn Store) -> Result<[Count; 4], ListError> {
    let mut counts = [Count::default(); 4];
    let mut read = 0;
    for tenant in store.tenants().await? {
        let tenant = &tenant;
        let pages = pages(|cursor| async move {
            let requested = Instant::now();
            let page = store.open_suspensions(tenant, cursor.as_deref(), PAGE_SIZE).await?;
            let rest = (requested.elapsed() * REST_FACTOR).clamp(MIN_REST, MAX_REST);
            tokio::time::sleep(rest).await;
            Ok::<_, ListError>(page)
        });
        let mut pages = pin!(pages);
        while let Some(page) = pages.try_next().await? {
            read += page.len();
            add(&mut counts, page);
            if read >= MAX_COUNTED {
                return Ok(counts);
            }
        }
    }
    Ok(counts)
}

fn add(counts: &mut [Count; 4], open: Vec<SuspensionCount>) {
    for SuspensionCount { kind, since } in open {
        for (count, (counted_kind, _)) in counts.iter_mut().zip(KINDS) {
            if counted_kind == kind {
                count.open += 1;
                count.oldest = Some(count.oldest.map_or(since, |oldest| oldest.min(since)));
            }
        }
    }
}

fn publish(counts: [Count; 4], now: Timestamp) {
    for (Count { open, oldest }, (_, kind)) in counts.into_iter().zip(KINDS) {
        metrics::gauge!("abide_open_suspensions", "kind" => kind).set(open as f64);
        let age = oldest.map_or(0.0, |oldest| now.duration_since(oldest).as_secs_f64().max(0.0));
        metrics::gauge!("abide_oldest_suspension_seconds", "kind" => kind).set(age);
    }
}
