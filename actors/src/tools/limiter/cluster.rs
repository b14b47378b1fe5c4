//! RunLimits that hold in the whole cluster: one node gives permits, and each node keeps it informed.
//!
//! While that node cannot be reached, nothing begins. What runs goes on, and counts there as long as
//! its node is a member.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};

use crate::conversation_client::ClientSlot;
use crate::definition::RunLimits;
use crate::permit_sync::PermitSync;

/// How often the node that gives permits is asked while calls wait, and told while calls run.
const WAITING_INTERVAL: Duration = Duration::from_millis(200);
const RUNNING_INTERVAL: Duration = Duration::from_secs(1);
/// Calls that begin and end at once are told together.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// The calls of this node that are counted together.
pub(super) struct ClusterGate {
    key: String,
    limits: RunLimits,
    counts: Mutex<Counts>,
    /// A permit for each call that was granted one and has not taken it yet.
    granted: Semaphore,
    changed: Notify,
    client: Arc<ClientSlot>,
}

#[derive(Default)]
struct Counts {
    waiting: u32,
    running: u32,
    seq: u64,
    /// Whether a task keeps the other node informed.
    is_told: bool,
}

/// A run that counts in the cluster until it is dropped.
pub(crate) struct ClusterPermit(Arc<ClusterGate>);

/// A call that waits until it is dropped.
struct Waiting<'a>(&'a Arc<ClusterGate>);

impl ClusterGate {
    pub(super) fn new(key: String, limits: RunLimits, client: Arc<ClientSlot>) -> Self {
        Self {
            key,
            limits,
            counts: Mutex::default(),
            granted: Semaphore::new(0),
            changed: Notify::new(),
            client,
        }
    }

    /// Waits until another run may begin anywhere in the cluster.
    pub(super) async fn enter(self: &Arc<Self>) -> ClusterPermit {
        self.count(|counts| counts.waiting += 1);
        self.keep_told();
        let waiting = Waiting(self);
        if let Ok(permit) = self.granted.acquire().await {
            permit.forget();
        }
        self.count(|counts| counts.running += 1);
        drop(waiting);
        ClusterPermit(Arc::clone(self))
    }

    /// Whether nobody waits and nothing runs.
    pub(super) fn is_idle(&self) -> bool {
        let counts = self.lock();
        counts.waiting == 0 && counts.running == 0 && !counts.is_told
    }

    fn keep_told(self: &Arc<Self>) {
        self.changed.notify_one();
        if !std::mem::replace(&mut self.lock().is_told, true) {
            tokio::spawn(Arc::clone(self).tell());
        }
    }

    /// Tells the other node what runs and waits here, until nothing does, and takes its permits.
    async fn tell(self: Arc<Self>) {
        loop {
            let (sync, is_done) = self.next_sync();
            let granted = self.client.sync_permits(sync).await;
            let is_answered = granted.is_some();
            self.granted.add_permits(granted.unwrap_or_default() as usize);
            let interval = {
                let mut counts = self.lock();
                let is_empty = counts.waiting == 0 && counts.running == 0;
                if is_done && is_empty && is_answered {
                    counts.is_told = false;
                    return;
                }
                if counts.waiting > 0 || is_empty { WAITING_INTERVAL } else { RUNNING_INTERVAL }
            };
            sleep(MIN_INTERVAL).await;
            // A change, or time to renew: both call for another message.
            let _ = timeout(interval, self.changed.notified()).await;
        }
    }

    /// The next message, and whether it says that nothing runs or waits.
    fn next_sync(&self) -> (PermitSync, bool) {
        let mut counts = self.lock();
        if counts.waiting == 0 {
            // Whoever waited for them has gone.
            self.granted.forget_permits(self.granted.available_permits());
        }
        counts.seq += 1;
        let unused = u32::try_from(self.granted.available_permits()).unwrap_or(u32::MAX);
        let held = counts.running.saturating_add(unused);
        let waiting = counts.waiting.saturating_sub(unused);
        let span = self.limits.rate.map_or(0, |rate| rate.per.as_millis());
        let sync = PermitSync {
            // Other limits of the same tool are another revision's, and counted for themselves.
            key: format!("{} {}", self.key, self.limits),
            concurrency: self.limits.concurrency,
            rate_count: self.limits.rate.map(|rate| rate.count),
            rate_ms: u64::try_from(span).unwrap_or(u64::MAX),
            held,
            waiting,
            seq: counts.seq,
        };
        (sync, held == 0 && waiting == 0)
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.lock());
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.count(|counts| counts.waiting = counts.waiting.saturating_sub(1));
    }
}

impl Drop for ClusterPermit {
    fn drop(&mut self) {
        self.0.count(|counts| counts.running = counts.running.saturating_sub(1));
    }
}
