//! The other nodes as one node reaches them: who they are, whether one is dead, and calls to them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::journal::{Holder, StoreError};
use abide_actors::node_lease::NodeLease;
use abide_conversation::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::cluster_view::ClusterView;
use crate::member::{Member, ProcessId};
use crate::membership::Membership;
use crate::peers::{CallError, Peers};
use crate::protocol::{Call, CallOutcome, Envelope};

/// How long a reader waits for a view that is up to date: for one renewal, and for the connection
/// to a member that it shows for the first time.
pub const FRESH_VIEW_TIMEOUT: Duration = Duration::from_millis(300);
/// How many dead incarnations are remembered; past that the store is asked about them again.
const MAX_KNOWN_DEAD: usize = 1_000;

/// Why a call to another node has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    #[error(transparent)]
    Unanswered(#[from] CallError),
    /// Nothing was done.
    #[error("the node does not hold the conversation, or takes no more")]
    NotHere,
    /// The call was carried out.
    #[error("the answer is too large to send")]
    AnswerTooLarge,
    /// Nothing was done.
    #[error("the call arrived after its deadline")]
    Late,
    /// Nothing was done.
    #[error("the node does not know this call")]
    Unintelligible,
    /// What became of the call is unknown.
    #[error("the node answered another call than this one")]
    WrongAnswer,
}

/// A node's access to its cluster. Cheap to clone.
#[derive(Clone)]
pub struct ClusterClient(Arc<Inner>);

struct Inner {
    process: ProcessId,
    lease: Arc<NodeLease>,
    membership: Arc<dyn Membership>,
    peers: Arc<dyn Peers>,
    clock: Arc<dyn Clock>,
    view: watch::Receiver<Arc<ClusterView>>,
    known_dead: Mutex<HashSet<Holder>>,
    refresh: Arc<Notify>,
}

impl ClusterClient {
    /// The cluster that the node of this process sees in `view`. `refresh` is notified when the
    /// view is thought to be out of date.
    pub fn new(
        process: ProcessId,
        lease: Arc<NodeLease>,
        membership: Arc<dyn Membership>,
        peers: Arc<dyn Peers>,
        clock: Arc<dyn Clock>,
        view: watch::Receiver<Arc<ClusterView>>,
        refresh: Arc<Notify>,
    ) -> Self {
        let known_dead = Mutex::default();
        Self(Arc::new(Inner {
            process,
            lease,
            membership,
            peers,
            clock,
            view,
            known_dead,
            refresh,
        }))
    }

    /// The process of this node.
    pub fn process(&self) -> &ProcessId {
        &self.0.process
    }

    /// What this node may do now.
    pub fn lease(&self) -> &Arc<NodeLease> {
        &self.0.lease
    }

    /// The latest view of the cluster.
    pub fn view(&self) -> Arc<ClusterView> {
        self.0.view.borrow().clone()
    }

    /// Sees every change of the view.
    pub fn watch(&self) -> watch::Receiver<Arc<ClusterView>> {
        self.0.view.clone()
    }

    /// Asks for a fresh view and waits, for at most `within`, until it differs from what `seen`
    /// last returned.
    pub async fn changed(&self, seen: &mut watch::Receiver<Arc<ClusterView>>, within: Duration) {
        self.0.refresh.notify_one();
        let change = async {
            if seen.changed().await.is_err() {
                // The view of a node that has ended never changes; returning would busy the caller.
                std::future::pending::<()>().await;
            }
        };
        // The caller looks again either way.
        let _ = tokio::time::timeout(within, change).await;
    }

    /// A view that was just read, in which every member can be reached: one that has just started
    /// is about to be. Members that stay out of reach are waited for only briefly.
    pub async fn fresh_view(&self) -> Arc<ClusterView> {
        let mut seen = self.watch();
        seen.mark_unchanged();
        let give_up_at = Instant::now() + FRESH_VIEW_TIMEOUT;
        loop {
            let left = give_up_at.saturating_duration_since(Instant::now());
            self.changed(&mut seen, left).await;
            let view = seen.borrow_and_update().clone();
            if view.all().all(|member| view.reaches(member)) || Instant::now() >= give_up_at {
                return view;
            }
        }
    }

    /// Whether a holder is dead, according to the store.
    pub async fn is_dead(&self, holder: &Holder) -> Result<bool, StoreError> {
        if self.known_dead().contains(holder) {
            return Ok(true);
        }
        let dead = self.0.membership.declare_dead_if(holder, false).await?;
        if dead {
            let mut known_dead = self.known_dead();
            if known_dead.len() >= MAX_KNOWN_DEAD {
                known_dead.clear();
            }
            if known_dead.insert(holder.clone()) {
                tracing::info!(%holder, "node is dead");
                self.0.refresh.notify_one();
            }
        }
        Ok(dead)
    }

    /// Declares a holder dead although the store has heard of it lately, and asks for a fresh view.
    pub async fn declare_dead(&self, holder: &Holder) -> Result<(), StoreError> {
        self.0.membership.declare_dead_if(holder, true).await?;
        self.0.refresh.notify_one();
        Ok(())
    }

    /// Has a member carry out a call, and waits for its answer as long as the call allows.
    pub async fn call<C: Call>(
        &self,
        member: &Member,
        call: C,
    ) -> Result<C::Response, RemoteError> {
        self.call_process(&member.process, call).await
    }

    /// Has the node of a process carry out a call, as [`call`](Self::call) does.
    pub async fn call_process<C: Call>(
        &self,
        process: &ProcessId,
        call: C,
    ) -> Result<C::Response, RemoteError> {
        let timeout = call.timeout();
        let deadline = self.0.clock.now().checked_add(timeout).unwrap_or(Timestamp::MAX);
        let envelope = Envelope { deadline, from: self.0.process.clone(), call: call.into() };
        match self.exchange(process, &envelope, timeout).await? {
            CallOutcome::NotHere => Err(RemoteError::NotHere),
            CallOutcome::TooLarge => Err(RemoteError::AnswerTooLarge),
            CallOutcome::Late => Err(RemoteError::Late),
            CallOutcome::Unintelligible => Err(RemoteError::Unintelligible),
            outcome => C::decode(outcome).map_err(|_| {
                tracing::warn!(
                    process = process.as_str(),
                    "answer of another node does not fit the call"
                );
                metrics::counter!("abide_unintelligible_messages_total").increment(1);
                RemoteError::WrongAnswer
            }),
        }
    }

    async fn exchange(
        &self,
        process: &ProcessId,
        envelope: &Envelope,
        timeout: Duration,
    ) -> Result<CallOutcome, CallError> {
        let Ok(request) = serde_json::to_vec(envelope) else { return Err(CallError::TooLarge) };
        let answer = tokio::select! {
            biased;
            answer = self.0.peers.call(process, request, timeout) => answer?,
            // The connection to a dead process may stay open for long.
            () = self.departed(process) => return Err(CallError::Lost),
        };
        abide_conversation::from_json(&answer).map_err(|error| {
            tracing::warn!(
                process = process.as_str(),
                content = %error,
                "answer of another node is unintelligible"
            );
            metrics::counter!("abide_unintelligible_messages_total").increment(1);
            CallError::Lost
        })
    }

    /// Returns when a process has ceased to be a member; one that is not a member yet may become
    /// one.
    async fn departed(&self, process: &ProcessId) {
        let is_member =
            |view: &Arc<ClusterView>| view.all().any(|member| member.process == *process);
        let mut seen = self.watch();
        if seen.wait_for(is_member).await.is_ok() {
            // The view ends with this node, and so does the caller.
            let _ = seen.wait_for(|view| !is_member(view)).await;
        }
    }

    fn known_dead(&self) -> MutexGuard<'_, HashSet<Holder>> {
        self.0.known_dead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
