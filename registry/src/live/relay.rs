//! Sends other nodes the signals that their listeners want, and what this node listens to.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use abide_actors::live::Signal;
use abide_conversation::ConversationId;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::Hub;
use crate::cluster_client::ClusterClient;
use crate::member::{LinkState, ProcessId};
use crate::protocol::LiveUpdate;

/// How many messages may wait for one node. Past that its listeners lose deltas and read the
/// journal from the store.
const MAX_WAITING_MESSAGES: usize = 4_096;
/// How many messages travel in one call.
const MAX_BATCH: usize = 256;
/// The bytes of events, and of children's calls, in one call. Listeners read what is beyond them from
/// the store.
const MAX_EVENT_BYTES: usize = 512 << 10;
/// How many subscriptions travel in one call.
const MAX_SUBSCRIPTIONS: usize = 5_000;
/// The delay before everything is sent anew after a failure.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// A message to another node.
#[derive(Debug)]
pub(super) enum Outgoing {
    Listen(ConversationId),
    Unlisten(ConversationId),
    Signal(ConversationId, Signal),
    /// The other node has forgotten what it was sent.
    Anew,
    /// Completes when the other node has received all messages before it.
    Barrier(oneshot::Sender<()>),
}

/// The messages that wait for one node.
#[derive(Debug)]
pub(super) struct Outbox {
    messages: mpsc::Sender<Outgoing>,
    /// Set when a message did not fit: then everything is sent anew.
    overflowed: Arc<AtomicBool>,
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
        let links = seen.borrow_and_update().links.clone();
        let is_connected = |process: &ProcessId| links.get(process) == Some(&LinkState::Connected);
        let disconnected: Vec<ProcessId> =
            senders.keys().filter(|known| !is_connected(known)).cloned().collect();
        for process in disconnected {
            senders.remove(&process);
            let mut plane = hub.plane();
            plane.outboxes.remove(&process);
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
    // The subscriptions that did not fit into one call.
    let mut subscriptions = Vec::new();
    loop {
        let mut batch = Vec::new();
        if !anew && subscriptions.is_empty() && messages.recv_many(&mut batch, MAX_BATCH).await == 0
        {
            return;
        }
        let is_forgotten = batch.iter().any(|message| matches!(message, Outgoing::Anew));
        if overflowed.swap(false, Ordering::Relaxed) || anew || is_forgotten {
            anew = true;
            missed = true;
        }
        let mut update = LiveUpdate { anew, missed, forgot, ..LiveUpdate::default() };
        if anew {
            // Messages that wait are older than the snapshot, or contained in it.
            while messages.try_recv().map(|message| batch.push(message)).is_ok() {}
            subscriptions = hub.plane().local_subscriptions();
        }
        update.listen =
            subscriptions.split_off(subscriptions.len().saturating_sub(MAX_SUBSCRIPTIONS));
        let barriers = pack(batch, &mut update);
        match cluster.call_process(&process, update).await {
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

/// Packs a batch into an update. Returns the barriers to complete when it has been received.
fn pack(batch: Vec<Outgoing>, update: &mut LiveUpdate) -> Vec<oneshot::Sender<()>> {
    let mut barriers = Vec::new();
    let mut bytes = 0;
    for message in batch {
        match message {
            Outgoing::Barrier(reply) => barriers.push(reply),
            // The listeners read the journal.
            Outgoing::Signal(..) if update.anew => {}
            Outgoing::Signal(id, signal) => match limit(signal, &mut bytes) {
                Signal::Child(calls) => update.children.push((id, calls)),
                signal => update.signals.push((id, signal)),
            },
            // The snapshot contains it.
            Outgoing::Listen(_) | Outgoing::Unlisten(_) if update.anew => {}
            Outgoing::Anew => {}
            Outgoing::Listen(id) => {
                update.unlisten.retain(|other| *other != id);
                update.listen.push(id);
            }
            Outgoing::Unlisten(id) => {
                update.listen.retain(|other| *other != id);
                update.unlisten.push(id);
            }
        }
    }
    barriers
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
        | Signal::Revived
        | Signal::Deleted => return signal,
    };
    *bytes += json.map_or(0, |json| json.len());
    if *bytes > MAX_EVENT_BYTES { Signal::Revived } else { signal }
}
