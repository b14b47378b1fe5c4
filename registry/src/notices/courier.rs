//! The loop that delivers: learns what is due, and starts deliveries.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use abide_actors::journal::StoreError;
use abide_actors::notices::WebhookKey;
use abide_conversation::{ConversationId, Scoped, Timestamp};
use futures::FutureExt;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::CourierDeps;
use super::delivery::{Outcome, SharedDeps};
use super::lanes::{LaneRead, Lanes};
use super::sweep::Sweeper;
use crate::partition::{Partition, PartitionSet};
use crate::store::NoticeQueue;

/// How often the store is asked what is due: what another node has committed, and retries.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long a failing webhook is left alone, at most, before its health is looked at.
const HOLD: Duration = Duration::from_secs(60);

/// What a task of the loop ends with.
enum Ended {
    Delivery(NoticeQueue, Outcome),
    Read(LaneRead, Vec<Scoped<ConversationId>>),
    Poll(Option<Vec<(Partition, WebhookKey)>>),
    Sweep,
}

/// Runs until it is dropped. What it has begun ends with it: a notice that was sent and not settled
/// is sent again.
pub async fn run(deps: CourierDeps) {
    let mut courier = Courier {
        deps: Arc::new(deps),
        lanes: Lanes::default(),
        tasks: JoinSet::new(),
        next_poll_at: Instant::now(),
        is_polling: false,
        sweeper: Sweeper::default(),
        is_sweeping: false,
    };
    courier.run().await;
}

struct Courier {
    deps: SharedDeps,
    lanes: Lanes,
    tasks: JoinSet<Ended>,
    next_poll_at: Instant,
    is_polling: bool,
    sweeper: Sweeper,
    is_sweeping: bool,
}

impl Courier {
    async fn run(&mut self) {
        let mut seen = self.deps.cluster.watch();
        let mut versions = self.deps.catalog.watch();
        loop {
            let partitions = seen.borrow_and_update().partitions.clone();
            self.take_near(&partitions);
            // Without webhooks nothing is owed, and the store is not asked.
            if !self.deps.catalog.is_empty() {
                self.begin(&partitions);
            }
            let near = self.deps.near.clone();
            tokio::select! {
                Some(ended) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                    // No task panics outside of `catch_unwind`.
                    if let Ok(ended) = ended {
                        self.end(ended);
                    }
                }
                () = near.arrival() => {}
                Ok(()) = versions.changed() => self.forget_removed(),
                () = sleep_until(self.next_poll_at), if !self.is_polling => {
                    if self.deps.catalog.is_empty() {
                        self.next_poll_at = Instant::now() + POLL_INTERVAL;
                    }
                }
                () = sleep(POLL_INTERVAL) => {}
            }
        }
    }

    fn take_near(&mut self, partitions: &PartitionSet) {
        for (webhook, conversation) in self.deps.near.take() {
            if partitions.contains(Partition::from(&conversation)) {
                self.lanes.push(NoticeQueue { webhook, conversation });
            }
        }
    }

    /// Starts what can be started.
    fn begin(&mut self, partitions: &PartitionSet) {
        let now = Instant::now();
        if !self.is_polling && now >= self.next_poll_at {
            self.is_polling = true;
            self.lanes.tidy(now);
            self.spawn(poll(self.deps.clone(), partitions.clone()), || Ended::Poll(None));
        }
        if !self.is_sweeping && self.sweeper.is_due(now) {
            self.is_sweeping = true;
            let sweep = self.sweeper.sweep(self.deps.clone(), now);
            self.spawn(sweep.map(|()| Ended::Sweep), || Ended::Sweep);
        }
        for read in self.lanes.next_reads(now) {
            let panicked = read.clone();
            let failed = move || Ended::Read(panicked.clone(), Vec::new());
            self.spawn(read_lane(self.deps.clone(), read), failed);
        }
        while let Some(queue) = self.lanes.next(now) {
            let deps = self.deps.clone();
            let failed = queue.clone();
            let delivery = async move {
                let outcome = deps.deliver(&queue).await;
                Ended::Delivery(queue, outcome)
            };
            self.spawn(delivery, move || Ended::Delivery(failed.clone(), Outcome::Failed));
        }
    }

    /// Spawns a task that ends like this if it panics.
    fn spawn(
        &mut self,
        task: impl Future<Output = Ended> + Send + 'static,
        panicked: impl Fn() -> Ended + Send + 'static,
    ) {
        self.tasks.spawn(async move {
            AssertUnwindSafe(task).catch_unwind().await.unwrap_or_else(|_| {
                tracing::error!("delivery of notices panicked");
                panicked()
            })
        });
    }

    fn end(&mut self, ended: Ended) {
        match ended {
            Ended::Delivery(queue, outcome) => {
                let held_until = self.held_until(&queue.webhook);
                self.lanes.finish(queue, outcome, held_until);
            }
            Ended::Read(read, due) => self.lanes.learn(&read, due),
            Ended::Poll(due) => {
                self.is_polling = false;
                self.next_poll_at = Instant::now() + POLL_INTERVAL;
                for (partition, webhook) in due.unwrap_or_default() {
                    self.expect(partition, webhook);
                }
            }
            Ended::Sweep => self.is_sweeping = false,
        }
    }

    /// Takes in what is due, of webhooks that are there; the rest is for the sweeper.
    fn expect(&mut self, partition: Partition, webhook: WebhookKey) {
        match self.deps.catalog.get(&webhook) {
            Some(known) if known.is_active() => self.lanes.expect(partition, webhook),
            Some(_) => {}
            None => self.sweeper.suspect(partition, webhook),
        }
    }

    fn forget_removed(&mut self) {
        let catalog = self.deps.catalog.clone();
        self.lanes.retain(|webhook| catalog.get(webhook).is_some_and(|it| it.is_active()));
    }

    /// Until when a failing webhook is held.
    fn held_until(&self, webhook: &WebhookKey) -> Instant {
        let now = self.deps.clock.now();
        let health = self.deps.catalog.get(webhook).map(|webhook| webhook.health.clone());
        let probe_at: Option<Timestamp> = health.and_then(|health| health.next_probe_at);
        let wait = probe_at.and_then(|at| Duration::try_from(at.duration_since(now)).ok());
        Instant::now() + wait.unwrap_or(POLL_INTERVAL).min(HOLD)
    }
}

async fn poll(deps: SharedDeps, partitions: PartitionSet) -> Ended {
    match deps.store.due_webhooks(&partitions, deps.clock.now()).await {
        Ok(due) => Ended::Poll(Some(due)),
        Err(error) => {
            tracing::debug!(%error, "notices cannot be read");
            Ended::Poll(None)
        }
    }
}

async fn read_lane(deps: SharedDeps, read: LaneRead) -> Ended {
    let LaneRead { webhook, partitions, .. } = &read;
    let due = deps.store.due_queues(webhook, partitions, deps.clock.now(), read.limit()).await;
    let mut due = due.unwrap_or_else(|error: StoreError| {
        tracing::debug!(%error, "notices cannot be read");
        Vec::new()
    });
    due.sort();
    let due = due.into_iter().map(|(_, id)| id).collect();
    Ended::Read(read, due)
}
