//! Sends other nodes the signals that their listeners want, and what this node listens to.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use abide_actors::live::Signal;
use abide_conversation::{ConversationId, Scoped};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::Hub;
use crate::cluster_client::{ClusterClient, RemoteError};
use crate::member::{LinkState, Member, ProcessId};
use crate::protocol::{LiveUpdate, Register};

/// How many messages may wait for one node. Past that its listeners lose deltas and read the
/// journal from the store.
const MAX_WAITING_MESSAGES: usize = 4_096;
/// How many messages travel in one call.
const MAX_BATCH: usize = 256;
/// The bytes of events, and of children's calls, in one call. Listeners read what is beyond them from
/// the store.
const MAX_EVENT_BYTES: usize = 512 << 10;
/// How long a message waits that only ends a registration in the directory: until then it travels
/// with others. A turn at one node of two makes four calls to the other, of 0.1 ms and more each, and
/// one of them would only say that nobody listens any more.
const END_DELAY: Duration = Duration::from_secs(1);
/// How many subscriptions travel in one call.
const MAX_SUBSCRIPTIONS: usize = 5_000;
/// The delay before everything is sent anew after a failure.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// A message to another node.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// To a node that publishes: there are listeners here.
    Listen(Scoped<ConversationId>),
    Unlisten(Scoped<ConversationId>),
    Signal(Scoped<ConversationId>, Signal),
    /// To the node that keeps the directory.
    RegisterListener(Scoped<ConversationId>),
    UnregisterListener(Scoped<ConversationId>),
    RegisterPublisher(Scoped<ConversationId>),
    UnregisterPublisher(Scoped<ConversationId>),
    /// From the node that keeps the directory to a listener: this process publishes.
    Publisher(Scoped<ConversationId>, ProcessId),
    /// The other node has forgotten what it was sent.
    Anew,
    /// Completes when the other node has received all messages before it, and its answers are known.
    Barrier(oneshot::Sender<()>),
}

impl Outgoing {
    /// Whether nothing is lost if the message arrives late: a directory that knows a process for too
    /// long names it to others, who then hear from it that it does not listen.
    fn may_wait(&self) -> bool {
        match self {
            Self::UnregisterListener(_) | Self::UnregisterPublisher(_) => true,
            Self::Listen(_)
            | Self::Unlisten(_)
            | Self::Signal(..)
            | Self::RegisterListener(_)
            | Self::RegisterPublisher(_)
            | Self::Publisher(..)
            | Self::Anew
            | Self::Barrier(_) => false,
        }
    }
}

/// The messages that wait for one node.
#[derive(Debug)]
pub(super) struct Outbox {
    pub(super) messages: mpsc::Sender<Outgoing>,
    /// Set when a message did not fit: then everything is sent anew.
    pub(super) overflowed: Arc<AtomicBool>,
}

impl Outbox {
    pub(super) fn put(&self, message: Outgoing) {
        if self.messages.try_send(message).is_err() {
            metrics::counter!("abide_deltas_dropped_total").increment(1);
            self.overflowed.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs until it is dropped, with one sender task for each connected node.
pub async fn relay(hub: Hub, cluster: ClusterClient) {
    let mut senders: HashMap<ProcessId, AbortOnDropHandle<()>> = HashMap::new();
    let mut seen = cluster.watch();
    loop {
        let view = seen.borrow_and_update().clone();
        let links = &view.links;
        let is_connected = |process: &ProcessId| links.get(process) == Some(&LinkState::Connected);
        let disconnected: Vec<ProcessId> =
            senders.keys().filter(|known| !is_connected(known)).cloned().collect();
        for process in disconnected {
            senders.remove(&process);
            let mut plane = hub.plane();
            plane.forget(&process);
            // The signals of its conversations were not received in the meantime.
            plane.report_missed();
        }
        for process in links.keys().filter(|process| is_connected(process)) {
            if senders.contains_key(process) {
                continue;
            }
            let (messages, receiver) = mpsc::channel(MAX_WAITING_MESSAGES);
            let overflowed = Arc::new(AtomicBool::new(false));
            let outbox = Outbox { messages, overflowed: overflowed.clone() };
            hub.plane().outboxes.insert(process.clone(), outbox);
            let sender = send(hub.clone(), cluster.clone(), process.clone(), receiver, overflowed);
            senders.insert(process.clone(), AbortOnDropHandle::new(tokio::spawn(sender)));
        }
        let connected = view.all().filter(|member| is_connected(&member.process));
        let (legacy, others): (Vec<_>, Vec<_>) =
            connected.partition(|member| member.live_directory_version == 0);
        let set = |members: Vec<&Member>| members.iter().map(|it| it.process.clone()).collect();
        hub.plane().set_processes(cluster.process(), &set(others), set(legacy));
        if seen.changed().await.is_err() {
            return;
        }
    }
}

/// Sends one node its messages in batches, and after a loss everything anew.
async fn send(
    hub: Hub,
    cluster: ClusterClient,
    process: ProcessId,
    mut messages: mpsc::Receiver<Outgoing>,
    overflowed: Arc<AtomicBool>,
) {
    let mut anew = true;
    let mut missed = false;
    // What the node sent before was forgotten with its former connection, too.
    let mut forgot = true;
    // What did not fit into one call.
    let mut rest = Snapshot::default();
    loop {
        let mut batch = Vec::new();
        if !anew && rest.is_empty() {
            batch = next_batch(&mut messages).await;
            if batch.is_empty() {
                return;
            }
        }
        let is_forgotten = batch.iter().any(|message| matches!(message, Outgoing::Anew));
        if overflowed.swap(false, Ordering::Relaxed) || anew || is_forgotten {
            anew = true;
            missed = true;
        }
        let mut update = LiveUpdate { anew, missed, forgot, ..LiveUpdate::default() };
        let mut register = Register { anew, ..Register::default() };
        if anew {
            // Messages that wait are older than the snapshot, or contained in it.
            while messages.try_recv().map(|message| batch.push(message)).is_ok() {}
            rest = Snapshot::of(&hub, &process);
        }
        rest.fill(&mut update, &mut register);
        let barriers = pack(batch, &mut update, &mut register);
        match exchange(&hub, &cluster, &process, update, register).await {
            Ok(()) => {
                anew = false;
                missed = false;
                forgot = false;
                for barrier in barriers {
                    // The task that waited may have gone.
                    let _ = barrier.send(());
                }
            }
            Err(_) => {
                anew = true;
                missed = true;
                metrics::counter!("abide_relays_lost_total").increment(1);
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}

/// The messages of the next call, as soon as one of them may not wait. Empty if none will come.
pub(super) async fn next_batch(messages: &mut mpsc::Receiver<Outgoing>) -> Vec<Outgoing> {
    let mut batch = Vec::new();
    messages.recv_many(&mut batch, MAX_BATCH).await;
    let wait_until = Instant::now() + END_DELAY;
    while batch.len() < MAX_BATCH && batch.iter().all(Outgoing::may_wait) {
        let more = messages.recv_many(&mut batch, MAX_BATCH);
        match timeout_at(wait_until, more).await {
            Ok(1..) => {}
            Ok(0) | Err(_) => break,
        }
    }
    batch
}

/// What a node is told that knows nothing.
#[derive(Default)]
struct Snapshot {
    listen: Vec<Scoped<ConversationId>>,
    register_listeners: Vec<Scoped<ConversationId>>,
    register_publishers: Vec<Scoped<ConversationId>>,
    publishers: Vec<(Scoped<ConversationId>, ProcessId)>,
}

impl Snapshot {
    fn of(hub: &Hub, process: &ProcessId) -> Self {
        let plane = hub.plane();
        let (register_listeners, register_publishers) = plane.registrations_at(process);
        Self {
            listen: plane.subscriptions_at(process),
            register_listeners,
            register_publishers,
            publishers: plane.publishers_for(process),
        }
    }

    fn is_empty(&self) -> bool {
        self.listen.is_empty()
            && self.register_listeners.is_empty()
            && self.register_publishers.is_empty()
            && self.publishers.is_empty()
    }

    /// Moves as much as fits into the next calls.
    fn fill(&mut self, update: &mut LiveUpdate, register: &mut Register) {
        update.listen = take(&mut self.listen);
        register.listen = take(&mut self.register_listeners);
        register.publish = take(&mut self.register_publishers);
        update.publishers = take(&mut self.publishers);
    }
}

/// The last ones, as many as travel in one call.
fn take<T>(from: &mut Vec<T>) -> Vec<T> {
    from.split_off(from.len().saturating_sub(MAX_SUBSCRIPTIONS))
}

/// Makes the calls that say something, and takes in what the directory answers.
async fn exchange(
    hub: &Hub,
    cluster: &ClusterClient,
    process: &ProcessId,
    update: LiveUpdate,
    register: Register,
) -> Result<(), RemoteError> {
    if !register.is_empty() && !hub.plane().is_legacy(process) {
        let answer = cluster.call_process(process, register).await?;
        hub.plane().learn(answer);
    }
    if !update.is_empty() {
        cluster.call_process(process, update).await?;
    }
    Ok(())
}

/// Packs a batch into the calls to be made. Returns the barriers to complete when they were answered.
pub(super) fn pack(
    batch: Vec<Outgoing>,
    update: &mut LiveUpdate,
    register: &mut Register,
) -> Vec<oneshot::Sender<()>> {
    let mut barriers = Vec::new();
    let mut bytes = 0;
    let anew = update.anew;
    for message in batch {
        match message {
            Outgoing::Barrier(reply) => barriers.push(reply),
            Outgoing::Publisher(id, publisher) => update.publishers.push((id, publisher)),
            // The listeners read the journal, and the snapshot contains the rest.
            _ if anew => {}
            Outgoing::Signal(id, signal) => match limit(signal, &mut bytes) {
                Signal::Child(calls) => update.children.push((id, calls)),
                Signal::CallArgs(delta) => update.call_args.push((id, delta)),
                signal => update.signals.push((id, signal)),
            },
            Outgoing::Anew => {}
            Outgoing::Listen(id) => put_last(id, &mut update.listen, &mut update.unlisten),
            Outgoing::Unlisten(id) => put_last(id, &mut update.unlisten, &mut update.listen),
            Outgoing::RegisterListener(id) => {
                put_last(id, &mut register.listen, &mut register.unlisten);
            }
            Outgoing::UnregisterListener(id) => {
                put_last(id, &mut register.unlisten, &mut register.listen);
            }
            Outgoing::RegisterPublisher(id) => {
                put_last(id, &mut register.publish, &mut register.unpublish);
            }
            Outgoing::UnregisterPublisher(id) => {
                put_last(id, &mut register.unpublish, &mut register.publish);
            }
        }
    }
    barriers
}

/// Puts an id into a list and takes it out of the opposite one, because the last word counts.
fn put_last(
    id: Scoped<ConversationId>,
    list: &mut Vec<Scoped<ConversationId>>,
    opposite: &mut Vec<Scoped<ConversationId>>,
) {
    opposite.retain(|other| *other != id);
    list.push(id);
}

/// The signal, or a request to read the store if its content exceeds the bytes of one call.
fn limit(signal: Signal, bytes: &mut usize) -> Signal {
    let json = match &signal {
        Signal::Committed(events) => serde_json::to_vec(events),
        Signal::Child(calls) => serde_json::to_vec(calls),
        Signal::Status { .. }
        | Signal::Text(_)
        | Signal::Thinking(_)
        | Signal::Progress { .. }
        | Signal::CallArgs(_)
        | Signal::Revived
        | Signal::Deleted => return signal,
    };
    *bytes += json.map_or(0, |json| json.len());
    if *bytes > MAX_EVENT_BYTES { Signal::Revived } else { signal }
}
