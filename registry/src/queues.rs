//! Queues of calls that workers take.
//!
//! The truth is in the journals, and an index of what waits is written by their commits. For each queue
//! one node, its keeper, has a broker in memory that says which worker may try to take which call. The
//! conversation decides whether it gets it, so that two brokers at once, or none, cost time only.

mod broker;
mod broker_task;
mod brokers;
mod calls;
mod depths;
mod offered;
mod workers;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::external::{ExternalRequest, QueueArrivals, Work};
use abide_actors::request::{Reply, Request, RequestError};
use abide_conversation::command::LeaseCall;
use abide_conversation::ids::LeaseId;
use futures::{StreamExt, stream};
use tokio::time::Instant;

use crate::cluster_client::ClusterClient;
use crate::cluster_view::ClusterView;
use crate::member::{Member, MemberState};
use crate::partition::rendezvous_weight;
pub use crate::queue_calls::{Offer, QueueId, QueueRequest, QueueResponse, TakeOffers, WorkerView};
use crate::router::ConversationRouter;
use crate::store::Store;
use brokers::Brokers;
pub use depths::run as count_depths;

/// How many brokers one node has, and how many of them for one tenant: one for each queue that
/// somebody asked for lately.
const MAX_BROKERS: usize = 4_096;
const MAX_BROKERS_OF_TENANT: usize = 1_024;
/// How many messages wait for a broker.
const MAX_BROKER_MESSAGES: usize = 4_096;
/// A worker's request waits at the keeper for this long at a time, so that it follows the keeper
/// when members come or go.
const SLICE: Duration = Duration::from_secs(10);
/// The delay before asking again when the keeper could not be asked.
const KEEPER_RETRY_DELAY: Duration = Duration::from_millis(200);
/// How many calls one request leases at once.
const MAX_CONCURRENT_LEASES: usize = 8;
/// What is handed to a worker at once; a call whose arguments are larger comes alone.
const MAX_WORK_BYTES: usize = 4 << 20;

/// A worker's request for calls; everything in it has been checked.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    pub queue: QueueId,
    /// Only calls of these tools; `None`: of any.
    pub tools: Option<Vec<String>>,
    /// How many calls at most.
    pub max: usize,
    pub wait: Duration,
    pub lease: Duration,
    /// The worker's own name for itself.
    pub worker: String,
}

/// The queues, as one node reaches them. Cheap to clone.
#[derive(Clone)]
pub struct Queues(Arc<Inner>);

struct Inner {
    conversations: ConversationRouter,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    brokers: Mutex<Brokers>,
}

impl Queues {
    pub fn new(
        conversations: ConversationRouter,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self(Arc::new(Inner { conversations, store, clock, brokers: Mutex::default() }))
    }

    /// Leases calls to a worker, and waits for the first one as long as the request says, or until the
    /// node takes no more work.
    pub async fn lease(&self, request: LeaseRequest) -> Result<Vec<Work>, RequestError> {
        let give_up_at = Instant::now() + request.wait;
        loop {
            let left = give_up_at.saturating_duration_since(Instant::now());
            let is_last = left <= SLICE;
            let taken = tokio::select! {
                biased;
                taken = self.take(&request, left.min(SLICE)) => taken,
                // Who waits still when the node has drained gets no answer at all.
                () = self.cluster().lease().drain_begun() => return Ok(Vec::new()),
            };
            let offers = match taken {
                Ok(Some(offers)) => offers,
                Ok(None) => return Ok(Vec::new()),
                Err(error) if is_last && left <= KEEPER_RETRY_DELAY => return Err(error),
                Err(_) => {
                    tokio::time::sleep(KEEPER_RETRY_DELAY.min(left)).await;
                    continue;
                }
            };
            let is_empty = offers.is_empty();
            let work = self.lease_offers(&request, offers).await?;
            // Calls that wait no more are followed by others.
            if !work.is_empty() || (is_empty && is_last) {
                return Ok(work);
            }
        }
    }

    /// Has each conversation journal its lease. A call that does not wait any more is left out.
    async fn lease_offers(
        &self,
        request: &LeaseRequest,
        offers: Vec<Offer>,
    ) -> Result<Vec<Work>, RequestError> {
        let bytes = &AtomicUsize::new(0);
        let leasing = offers.into_iter().map(|offer| async move {
            // The rest is offered again when the reservation ends.
            if bytes.load(Ordering::Relaxed) > MAX_WORK_BYTES {
                return Ok(None);
            }
            let leased = self.lease_offer(request, offer).await?;
            let added = leased.as_ref().map_or(0, |work| work.args.to_string().len());
            bytes.fetch_add(added, Ordering::Relaxed);
            Ok::<_, RequestError>(leased)
        });
        let mut leasing = stream::iter(leasing).buffer_unordered(MAX_CONCURRENT_LEASES);
        let mut work = Vec::new();
        let mut failure = None;
        while let Some(leased) = leasing.next().await {
            match leased {
                Ok(Some(leased)) => work.push(leased),
                Ok(None) => {}
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if work.is_empty() => Err(error),
            Some(_) | None => Ok(work),
        }
    }

    async fn lease_offer(
        &self,
        request: &LeaseRequest,
        offer: Offer,
    ) -> Result<Option<Work>, RequestError> {
        let Offer { conversation, call, attempt } = offer;
        let lease = LeaseCall {
            call,
            attempt,
            queue: request.queue.local(),
            lease: LeaseId::new(self.0.clock.id("lease")),
            worker: request.worker.clone(),
            for_ms: u64::try_from(request.lease.as_millis()).unwrap_or(u64::MAX),
        };
        let delivery = Request::External(ExternalRequest::Lease(lease));
        match self.0.conversations.deliver(&conversation, delivery, Vec::new()).await {
            Ok(Reply::Leased { work }) => {
                metrics::counter!("abide_queue_leases_total").increment(1);
                Ok(Some(*work))
            }
            Ok(_) | Err(RequestError::Rejected(_)) => Ok(None),
            Err(error) => {
                tracing::debug!(%conversation, %error, "call not leased");
                Err(error)
            }
        }
    }

    /// Asks the keeper of the queue which calls the worker may try to take; `None`: it must ask again.
    async fn take(
        &self,
        request: &LeaseRequest,
        wait: Duration,
    ) -> Result<Option<Vec<Offer>>, RequestError> {
        let LeaseRequest { queue, tools, max, worker, .. } = request.clone();
        let id = self.0.clock.id("take");
        let take = TakeOffers { queue: queue.clone(), id: id.clone(), tools, max, wait, worker };
        // A worker that goes away while it waits must not be offered anything.
        let withdrawal = Withdrawal { queues: self.clone(), take: Some((queue, id)) };
        let offers = self.ask_keeper(QueueRequest::Take(take)).await;
        withdrawal.disarm();
        match offers? {
            QueueResponse::Offers(offers) => Ok(Some(offers)),
            QueueResponse::Dismissed => Ok(None),
            QueueResponse::Refused(error) => Err(error),
            QueueResponse::Noted | QueueResponse::Workers(_) => Err(unavailable("a wrong answer")),
        }
    }

    /// Has the keeper of a queue carry out a request, here or on another node.
    async fn ask_keeper(&self, request: QueueRequest) -> Result<QueueResponse, RequestError> {
        let view = self.cluster().view();
        let keeper = request.queue().and_then(|queue| keeper(&view, queue));
        match keeper.filter(|keeper| keeper.holder != view.me) {
            Some(keeper) => {
                let answer = self.cluster().call(keeper, request).await;
                answer.map_err(|error| unavailable(error.to_string()))
            }
            None => Ok(self.carry_out(request).await),
        }
    }

    /// Tells the keepers of these calls that they wait.
    pub(crate) async fn run_announcer(self, arrivals: QueueArrivals) {
        loop {
            arrivals.arrival().await;
            let mut by_queue: BTreeMap<QueueId, Vec<_>> = BTreeMap::new();
            for arrival in arrivals.take() {
                let queue = arrival.conversation.sibling(&arrival.entry.queue);
                by_queue.entry(queue).or_default().push((arrival.conversation, arrival.entry));
            }
            for (queue, calls) in by_queue {
                let queues = self.clone();
                // What is lost is found in the index.
                tokio::spawn(async move {
                    let _ = queues.ask_keeper(QueueRequest::Arrived { queue, calls }).await;
                });
            }
        }
    }

    /// Notes that a worker lives, which extended its lease.
    pub fn note_worker(&self, queue: QueueId, worker: String) {
        let queues = self.clone();
        tokio::spawn(async move {
            let _ = queues.ask_keeper(QueueRequest::Seen { queue, worker }).await;
        });
    }

    /// The workers that were seen lately, by queue, as far as the members can be asked.
    pub async fn workers(&self) -> BTreeMap<QueueId, Vec<WorkerView>> {
        let view = self.cluster().view();
        let mut found: BTreeMap<QueueId, Vec<WorkerView>> = self.workers_here().await;
        let others: Vec<Member> =
            view.others().filter(|member| view.reaches(member)).cloned().collect();
        let asked = others.iter().map(|member| self.cluster().call(member, QueueRequest::Describe));
        for answer in futures::future::join_all(asked).await {
            let Ok(QueueResponse::Workers(theirs)) = answer else { continue };
            for (queue, workers) in theirs {
                let known = found.entry(queue).or_default();
                known.extend(workers);
                known.sort_by(|one, other| one.name.cmp(&other.name));
                known.dedup_by(|later, first| {
                    let is_same = later.name == first.name;
                    if is_same {
                        first.last_seen = first.last_seen.max(later.last_seen);
                    }
                    is_same
                });
            }
        }
        found
    }

    fn cluster(&self) -> &ClusterClient {
        self.0.conversations.cluster()
    }

    fn brokers(&self) -> MutexGuard<'_, Brokers> {
        self.0.brokers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the keeper that a request is over, unless it was answered.
struct Withdrawal {
    queues: Queues,
    take: Option<(QueueId, String)>,
}

impl Withdrawal {
    fn disarm(mut self) {
        self.take = None;
    }
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        if let Some((queue, id)) = self.take.take() {
            let queues = self.queues.clone();
            tokio::spawn(async move {
                let _ = queues.ask_keeper(QueueRequest::Withdraw { queue, id }).await;
            });
        }
    }
}

/// The members that keep queues: those that are up and can be reached.
fn keepers(view: &ClusterView) -> impl Iterator<Item = &Member> {
    view.all().filter(move |member| member.state == MemberState::Up && view.reaches(member))
}

/// The member that keeps a queue: by rendezvous.
fn keeper<'a>(view: &'a ClusterView, queue: &QueueId) -> Option<&'a Member> {
    let weight = |member: &&Member| {
        let node = &member.holder.node;
        (rendezvous_weight(node, queue.as_str()), node.clone())
    };
    keepers(view).max_by_key(weight)
}

fn unavailable(reason: impl Into<String>) -> RequestError {
    RequestError::Unavailable(reason.into())
}
