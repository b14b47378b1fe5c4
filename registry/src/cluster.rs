//! The other nodes: who they are, whether one is dead, and asking one.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::journal::{Holder, StoreError};
use abide_actors::standing::NodeLease;
use tokio::sync::{Notify, watch};

use crate::membership::Membership;
use crate::peers::{CallError, Peers};
use crate::view::ClusterView;
use crate::wire::{Call, CallResult, Envelope};

/// How many dead incarnations are remembered; past that they are asked for again.
const DEAD: usize = 1_000;

/// What a node has of its cluster. Cheap to clone.
#[derive(Clone)]
pub struct Cluster(Arc<Parts>);

struct Parts {
    process: String,
    standing: Arc<NodeLease>,
    membership: Arc<dyn Membership>,
    peers: Arc<dyn Peers>,
    clock: Arc<dyn Clock>,
    view: watch::Receiver<Arc<ClusterView>>,
    dead: Mutex<HashSet<Holder>>,
    stale: Arc<Notify>,
}

impl Cluster {
    /// The cluster that the node of this process sees in `view`. `stale` is told when that is
    /// thought to be out of date.
    pub fn new(
        process: String,
        standing: Arc<NodeLease>,
        membership: Arc<dyn Membership>,
        peers: Arc<dyn Peers>,
        clock: Arc<dyn Clock>,
        view: watch::Receiver<Arc<ClusterView>>,
        stale: Arc<Notify>,
    ) -> Self {
        let dead = Mutex::default();
        Self(Arc::new(Parts { process, standing, membership, peers, clock, view, dead, stale }))
    }

    /// What this node may do now.
    pub fn standing(&self) -> &NodeLease {
        &self.0.standing
    }

    /// The cluster as it was seen last.
    pub fn view(&self) -> Arc<ClusterView> {
        self.0.view.borrow().clone()
    }

    /// Sees every change of the view.
    pub fn watch(&self) -> watch::Receiver<Arc<ClusterView>> {
        self.0.view.clone()
    }

    /// Waits for the view to change from what it was when `seen` was taken, for at most that long.
    pub async fn changed(&self, seen: &mut watch::Receiver<Arc<ClusterView>>, within: Duration) {
        self.0.stale.notify_one();
        let change = async {
            if seen.changed().await.is_err() {
                // Nothing changes any more on a node that has ended; looking again would be a rush.
                std::future::pending::<()>().await;
            }
        };
        // Late or never: who waits looks again either way.
        let _ = tokio::time::timeout(within, change).await;
    }

    /// Whether a holder is dead, by the store.
    pub async fn is_dead(&self, who: &Holder) -> Result<bool, StoreError> {
        if self.dead().contains(who) {
            return Ok(true);
        }
        let dead = self.0.membership.declare_dead_if(who, false).await?;
        if dead {
            let mut all = self.dead();
            if all.len() >= DEAD {
                all.clear();
            }
            if all.insert(who.clone()) {
                tracing::info!(holder = %who, "dead");
                self.0.stale.notify_one();
            }
        }
        Ok(dead)
    }

    /// Asks the node of another process, and waits for its answer for at most `within`.
    pub async fn ask(
        &self,
        process: &str,
        ask: Call,
        within: Duration,
    ) -> Result<CallResult, CallError> {
        let now = self.0.clock.now();
        let deadline = now.checked_add(within).unwrap_or(jiff::Timestamp::MAX);
        let envelope = Envelope { deadline, from: self.0.process.clone(), ask };
        let Ok(call) = serde_json::to_vec(&envelope) else { return Err(CallError::TooLarge) };
        let answer = tokio::select! {
            biased;
            answer = self.0.peers.call(process, call, within) => answer?,
            // Its connection may stay open for long after its death.
            () = self.gone(process) => return Err(CallError::Lost),
        };
        abide_conversation::from_json(&answer).map_err(|error| {
            tracing::warn!(process, said = %error, "an answer is unintelligible");
            metrics::counter!("abide_unintelligible_messages_total").increment(1);
            CallError::Lost
        })
    }

    /// Returns when a process is no member any more; one that is not yet may become one.
    async fn gone(&self, process: &str) {
        let is_member =
            |view: &Arc<ClusterView>| view.all().any(|member| member.process == process);
        let mut seen = self.watch();
        if seen.wait_for(is_member).await.is_ok() {
            // Nobody sees anything any more: who asked goes with this node.
            let _ = seen.wait_for(|view| !is_member(view)).await;
        }
    }

    fn dead(&self) -> std::sync::MutexGuard<'_, HashSet<Holder>> {
        self.0.dead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
