//! The task of a broker: it reads the index, listens for arrivals, and answers workers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use abide_actors::journal::{Holder, StoreError};
use abide_actors::request::RequestError;
use abide_conversation::state::QueueEntry;
use abide_conversation::{ConversationId, Scoped};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::broker::{Broker, REFILL_BELOW};
use super::workers::Workers;
use super::{MAX_BROKER_MESSAGES, QueueId, QueueResponse, Queues, keepers};
use super::{TakeOffers, WorkerView};
use crate::cluster_view::ClusterView;

/// How often a broker looks at the index while workers wait: it finds what nobody could announce.
const LOOK_INTERVAL: Duration = Duration::from_secs(15);
/// The delay before it looks again after the store was away, or when it has used up what it read.
const RETRY_DELAY: Duration = Duration::from_millis(200);
/// How many calls of a tool it reads at once, about.
const HEADS: usize = 4_096;
/// A broker that nobody asked for this long ends, and its workers are forgotten.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3_600);
/// How long a broker that waits for nothing sleeps at most.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// How a worker is answered.
pub(super) type Reply = oneshot::Sender<QueueResponse>;

/// What a broker is told.
pub(super) enum BrokerMsg {
    Take(TakeOffers, Reply),
    Withdraw(String),
    Arrived(Vec<(Scoped<ConversationId>, QueueEntry)>),
    Seen(String),
    Describe(oneshot::Sender<Vec<WorkerView>>),
}

impl Queues {
    /// The broker of a queue on this node, begun if there is none; `None` if there are too many.
    pub(super) fn broker(&self, queue: &QueueId) -> Option<mpsc::Sender<BrokerMsg>> {
        let mut brokers = self.brokers();
        if let Some(broker) = brokers.ask(queue, Instant::now()) {
            return Some(broker);
        }
        let (sender, messages) = mpsc::channel(MAX_BROKER_MESSAGES);
        if !brokers.insert(queue, sender.clone(), Instant::now()) {
            return None;
        }
        let task = BrokerTask {
            queues: self.clone(),
            queue: queue.clone(),
            broker: Broker::default(),
            workers: Workers::default(),
            look_at: Instant::now(),
            asked_at: Instant::now(),
        };
        tokio::spawn(task.run(messages));
        Some(sender)
    }
}

struct BrokerTask {
    queues: Queues,
    queue: QueueId,
    broker: Broker<Reply>,
    workers: Workers,
    look_at: Instant,
    asked_at: Instant,
}

/// Those that keep queues now. A view changes with each heartbeat, and they seldom do.
fn holders(view: &ClusterView) -> Vec<Holder> {
    keepers(view).map(|member| member.holder.clone()).collect()
}

impl BrokerTask {
    /// Runs until nobody has asked for long.
    async fn run(mut self, mut messages: mpsc::Receiver<BrokerMsg>) {
        let mut view = self.queues.cluster().watch();
        let mut known = holders(&view.borrow_and_update());
        loop {
            if self.broker.has_waiting() && self.look_at <= Instant::now() {
                self.look().await;
            }
            self.answer();
            let now = Instant::now();
            if now.duration_since(self.asked_at) >= IDLE_TIMEOUT && !self.broker.has_waiting() {
                return;
            }
            let look_at = self.broker.has_waiting().then_some(self.look_at);
            let next = self.broker.next_deadline().into_iter().chain(look_at).min();
            let wake_at = next.unwrap_or(now + MAX_SLEEP).min(now + MAX_SLEEP);
            tokio::select! {
                biased;
                message = messages.recv() => match message {
                    Some(message) => self.take_in(message),
                    None => return,
                },
                changed = view.changed() => match changed {
                    Ok(()) => {
                        let now = holders(&view.borrow_and_update());
                        // The keeper of some arrivals may have been another node.
                        if now != known {
                            known = now;
                            self.look_soon();
                        }
                    }
                    Err(_) => return,
                },
                () = sleep_until(wake_at) => {}
            }
            while let Ok(message) = messages.try_recv() {
                self.take_in(message);
            }
        }
    }

    fn take_in(&mut self, message: BrokerMsg) {
        let now = self.queues.0.clock.now();
        match message {
            BrokerMsg::Take(take, reply) => {
                self.asked_at = Instant::now();
                self.workers.asks(&take.worker, take.tools.as_ref(), now);
                if let Err(reply) = self.broker.ask(take, reply, Instant::now()) {
                    // The worker may be gone.
                    let _ = reply.send(QueueResponse::Refused(RequestError::Overloaded));
                }
            }
            BrokerMsg::Withdraw(id) => self.broker.withdraw(&id),
            BrokerMsg::Arrived(calls) => {
                for (conversation, entry) in calls {
                    self.broker.add(conversation, entry);
                }
            }
            BrokerMsg::Seen(worker) => drop(self.workers.seen(&worker, now)),
            BrokerMsg::Describe(reply) => drop(reply.send(self.workers.all())),
        }
    }

    fn answer(&mut self) {
        for answer in self.broker.answer(Instant::now(), Reply::is_closed) {
            let now = self.queues.0.clock.now();
            let response = match answer.offers {
                Some(offers) => {
                    self.workers.seen(&answer.worker, now).offered += offers.len() as u64;
                    QueueResponse::Offers(offers)
                }
                None => QueueResponse::Dismissed,
            };
            // A worker that has just gone was offered something for nothing: the index has it.
            let _ = answer.reply.send(response);
        }
        if self.broker.needs_more() {
            self.look_at = self.look_at.min(Instant::now() + RETRY_DELAY);
        }
    }

    fn look_soon(&mut self) {
        self.look_at = self.look_at.min(Instant::now() + Duration::from_secs(1));
    }

    /// Reads from the index what it has of each tool, unless enough of it is known.
    async fn look(&mut self) {
        let is_read = self.read_index().await;
        let delay = if is_read.is_ok() { LOOK_INTERVAL } else { RETRY_DELAY };
        self.look_at = Instant::now() + delay;
        if let Err(error) = is_read {
            tracing::warn!(queue = %self.queue, %error, "queue cannot be read");
        }
    }

    async fn read_index(&mut self) -> Result<(), StoreError> {
        let store = Arc::clone(&self.queues.0.store);
        let (tenant, queue) = (self.queue.tenant(), self.queue.local());
        let depths = store.queue_depths(&tenant, Some(&queue)).await?;
        let mut has_more = BTreeMap::new();
        for depth in depths {
            let known = self.broker.len_of(&depth.tool);
            let waits = usize::try_from(depth.depth).unwrap_or(usize::MAX);
            if known >= REFILL_BELOW.min(waits) {
                has_more.insert(depth.tool, waits > known);
                continue;
            }
            let heads = store.queue_heads(&tenant, &queue, &depth.tool, HEADS).await?;
            let mut calls = heads.calls;
            calls.sort_by_key(|(_, entry)| entry.since);
            for (conversation, entry) in calls {
                self.broker.add(conversation, entry);
            }
            has_more.insert(depth.tool, heads.has_more);
        }
        self.broker.learn_tools(&has_more);
        Ok(())
    }
}
