//! RunLimits of tools and MCP servers: what is over them waits in the order in which it came.

mod cluster;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use crate::conversation_client::ClientSlot;
use crate::definition::{LimitScope, Rate, RunLimits};
use cluster::{ClusterGate, ClusterPermit};

/// With more gates than these, those that nobody waits at and that remember nothing are dropped.
const MAX_IDLE_GATES: usize = 512;

/// The gates of the tools that have limits. A node has one.
#[derive(Default)]
pub(crate) struct Limiter {
    gates: Mutex<HashMap<GateKey, Arc<Gate>>>,
    cluster_gates: Mutex<HashMap<GateKey, Arc<ClusterGate>>>,
}

/// The name that runs are counted under, and their limits. Other limits of the same tool are another gate: a new revision
/// does not wait for the runs of the one before.
type GateKey = (String, RunLimits);

pub(crate) struct Gate {
    places: Option<Arc<Semaphore>>,
    starts: Option<AsyncMutex<Window>>,
}

/// The moments of the last starts, which are at most as many as the rate permits.
struct Window {
    rate: Rate,
    starts: VecDeque<Instant>,
}

/// A run that counts. Dropping it makes room for the next one.
pub(crate) enum RunPermit {
    OnNode { _permit: Option<OwnedSemaphorePermit>, _gate: Arc<Gate> },
    InCluster { _permit: ClusterPermit },
}

impl Limiter {
    /// Waits until another run may begin. Dropping the future gives the turn to the next one.
    pub(crate) async fn enter(
        &self,
        key: String,
        limits: RunLimits,
        client: &Arc<ClientSlot>,
    ) -> RunPermit {
        if limits.per == LimitScope::Cluster {
            let gate = self.cluster_gate(key, limits, client);
            return RunPermit::InCluster { _permit: gate.enter().await };
        }
        let gate = self.gate(key, limits);
        let permit = match &gate.places {
            // The semaphore is never closed.
            Some(places) => Arc::clone(places).acquire_owned().await.ok(),
            None => None,
        };
        if let Some(starts) = &gate.starts {
            // Whoever waits for the time holds the lock, and those behind wait in its fair queue.
            starts.lock().await.wait_for_room().await;
        }
        RunPermit::OnNode { _permit: permit, _gate: gate }
    }

    fn cluster_gate(
        &self,
        key: String,
        limits: RunLimits,
        client: &Arc<ClientSlot>,
    ) -> Arc<ClusterGate> {
        let mut gates = self.cluster_gates.lock().unwrap_or_else(PoisonError::into_inner);
        if gates.len() >= MAX_IDLE_GATES {
            gates.retain(|_, gate| Arc::strong_count(gate) > 1 || !gate.is_idle());
        }
        let new = || ClusterGate::new(key.clone(), limits, Arc::clone(client));
        Arc::clone(gates.entry((key.clone(), limits)).or_insert_with(|| Arc::new(new())))
    }

    fn gate(&self, key: String, limits: RunLimits) -> Arc<Gate> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        if gates.len() >= MAX_IDLE_GATES {
            let now = Instant::now();
            gates.retain(|_, gate| Arc::strong_count(gate) > 1 || !gate.is_fresh(now));
        }
        Arc::clone(gates.entry((key, limits)).or_insert_with(|| Arc::new(Gate::new(limits))))
    }
}

impl Gate {
    fn new(limits: RunLimits) -> Self {
        let places = limits.concurrency.map(|places| places as usize).map(Semaphore::new);
        let starts = limits.rate.map(|rate| Window { rate, starts: VecDeque::new() });
        Self { places: places.map(Arc::new), starts: starts.map(AsyncMutex::new) }
    }

    /// Whether a new gate would behave in the same way.
    fn is_fresh(&self, now: Instant) -> bool {
        let Some(starts) = &self.starts else { return true };
        starts.try_lock().is_ok_and(|mut window| {
            window.forget(now);
            window.starts.is_empty()
        })
    }
}

impl Window {
    /// Counts a start, as soon as there were fewer than the rate permits within its time.
    async fn wait_for_room(&mut self) {
        loop {
            let now = Instant::now();
            self.forget(now);
            match self.starts.front() {
                Some(first) if self.starts.len() >= self.rate.count as usize => {
                    sleep_until(*first + self.rate.per).await;
                }
                Some(_) | None => {
                    self.starts.push_back(now);
                    return;
                }
            }
        }
    }

    fn forget(&mut self, now: Instant) {
        let is_past = |start: &Instant| now.duration_since(*start) >= self.rate.per;
        while self.starts.front().is_some_and(is_past) {
            self.starts.pop_front();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
