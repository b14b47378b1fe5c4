//! Counts what waits in queues for the metrics, and says which queues no worker was seen at.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::journal::StoreError;
use abide_conversation::Timestamp;

use super::{QueueId, Queues};
use crate::partition::Partition;
use crate::store::Store;

/// The time from one count to the next: as often as metrics are scraped.
const COUNT_INTERVAL: Duration = Duration::from_secs(15);
/// No more queues than this have metrics of their own.
const MAX_MEASURED: usize = 200;
/// A worker asks again, or extends its lease, at least this often.
const UNSEEN_AFTER_SECONDS: f64 = 90.0;

/// What waits in one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Measured {
    depth: u64,
    oldest_seconds: f64,
    /// For how long something has waited that no worker was seen to take, at most.
    unattended_seconds: f64,
}

/// Runs until it is dropped. One node counts for all: the one that looks after the first partition.
pub async fn run((queues, store, clock): (Queues, Arc<dyn Store>, Arc<dyn Clock>)) {
    let mut published = BTreeSet::new();
    loop {
        let view = queues.cluster().view();
        let is_counter = Partition::all().next().is_some_and(|it| view.partitions.contains(it));
        let counted = if is_counter {
            // A store that is away is reported elsewhere.
            count(&queues, &*store, clock.now()).await.unwrap_or_default()
        } else {
            BTreeMap::new()
        };
        publish(&mut published, counted);
        tokio::time::sleep(COUNT_INTERVAL).await;
    }
}

async fn count(
    queues: &Queues,
    store: &dyn Store,
    now: Timestamp,
) -> Result<BTreeMap<QueueId, Measured>, StoreError> {
    let mut counted: BTreeMap<QueueId, Measured> = BTreeMap::new();
    let seconds_since = |at: Timestamp| now.duration_since(at).as_secs_f64().max(0.0);
    for tenant in store.tenants().await? {
        for depth in store.queue_depths(&tenant, None).await? {
            let queue = QueueId::new(&tenant, &depth.queue);
            if counted.len() >= MAX_MEASURED && !counted.contains_key(&queue) {
                break;
            }
            let measured = counted.entry(queue).or_default();
            measured.depth += depth.depth;
            let oldest = depth.oldest.map_or(0.0, seconds_since);
            measured.oldest_seconds = measured.oldest_seconds.max(oldest);
        }
    }
    if counted.is_empty() {
        return Ok(counted);
    }
    let workers = queues.workers().await;
    for (queue, measured) in &mut counted {
        let seen = workers.get(queue).into_iter().flatten().map(|worker| worker.last_seen).max();
        let unseen = seen.map_or(f64::INFINITY, seconds_since);
        if unseen > UNSEEN_AFTER_SECONDS {
            measured.unattended_seconds = unseen.min(measured.oldest_seconds);
        }
    }
    Ok(counted)
}

/// Publishes what was counted; a queue that is empty again, or counted elsewhere, is 0.
fn publish(published: &mut BTreeSet<QueueId>, counted: BTreeMap<QueueId, Measured>) {
    for queue in published.iter().filter(|queue| !counted.contains_key(queue)) {
        set(queue, Measured::default());
    }
    for (queue, measured) in &counted {
        set(queue, *measured);
    }
    published.extend(counted.into_keys());
    while published.len() > 2 * MAX_MEASURED {
        published.pop_first();
    }
}

fn set(queue: &QueueId, measured: Measured) {
    let name = queue.to_string();
    let Measured { depth, oldest_seconds, unattended_seconds } = measured;
    metrics::gauge!("abide_queue_depth", "queue" => name.clone()).set(depth as f64);
    metrics::gauge!("abide_queue_oldest_seconds", "queue" => name.clone()).set(oldest_seconds);
    metrics::gauge!("abide_queue_unattended_seconds", "queue" => name).set(unattended_seconds);
}
