//! The live plane: signals from conversations to listeners, on this node and on others.

mod gap_detector;
mod relay;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use abide_actors::live::{LiveSink, Signal};
use abide_conversation::{ConversationId, Seq};
use bytes::Bytes;
use tokio::sync::{broadcast, oneshot, watch};

use crate::member::ProcessId;
use crate::protocol::LiveUpdate;
pub use gap_detector::detect_gaps;
pub use relay::relay;
use relay::{Outbox, Outgoing};

/// How many signals may wait for one listener. Past that it loses deltas and reads the journal from
/// the store. The buffer is allocated with the first listener: 40 bytes for each signal.
const MAX_WAITING_SIGNALS: usize = 128;

/// Distributes the signals of conversations to listeners. A conversation without listeners costs
/// nothing.
#[derive(Clone, Debug, Default)]
pub struct Hub(Arc<Mutex<Plane>>);

#[derive(Debug, Default)]
struct Plane {
    channels: HashMap<ConversationId, Channel>,
    /// What waits to be sent to other nodes, by process.
    outboxes: HashMap<ProcessId, Outbox>,
}

#[derive(Debug)]
struct Channel {
    /// Created with the first listener, because a channel allocates its buffer at once.
    signals: Option<broadcast::Sender<StreamItem>>,
    /// The number of event streams that are open on this node.
    local_streams: usize,
    /// The other processes where event streams are open.
    remote_processes: BTreeSet<ProcessId>,
    /// The number of listeners, where another process counts as one.
    listeners: watch::Sender<usize>,
    /// The last event that was sent to the listeners here.
    last_seq: Seq,
    /// Whether the conversation may have descendants whose calls its listeners are sent.
    has_children: bool,
}

/// An open event stream; dropping it closes it.
#[derive(Debug)]
pub struct Subscription {
    hub: Hub,
    id: ConversationId,
    signals: Option<broadcast::Receiver<StreamItem>>,
}

/// What a listener gets next. All listeners of a conversation share it.
#[derive(Clone, Debug)]
pub enum StreamItem {
    Signal(Arc<SharedSignal>),
    /// Signals were lost; the journal has what matters.
    Missed,
}

/// A signal, with its encoding that all listeners share.
#[derive(Debug)]
pub struct SharedSignal {
    pub signal: Signal,
    encoded: OnceLock<Box<[Bytes]>>,
}

impl SharedSignal {
    fn new(signal: Signal) -> Self {
        Self { signal, encoded: OnceLock::new() }
    }

    /// The signal as the first caller encoded it; all callers encode it in the same way.
    pub fn encoded(&self, encode: impl FnOnce(&Signal) -> Vec<Bytes>) -> &[Bytes] {
        self.encoded.get_or_init(|| encode(&self.signal).into())
    }
}

impl Hub {
    /// Opens an event stream, which receives everything that is published on this node from now on.
    pub fn subscribe(&self, id: &ConversationId) -> Subscription {
        let mut plane = self.plane();
        let channel = plane.channels.entry(id.clone()).or_insert_with(Channel::new);
        channel.local_streams += 1;
        channel.update_listeners();
        let signals =
            channel.signals.get_or_insert_with(|| broadcast::Sender::new(MAX_WAITING_SIGNALS));
        let signals = Some(signals.subscribe());
        metrics::gauge!("abide_event_streams").increment(1);
        if channel.local_streams == 1 {
            plane.announce(|| Outgoing::Listen(id.clone()));
        }
        Subscription { hub: self.clone(), id: id.clone(), signals }
    }

    /// Waits, for at most `timeout`, until every connected node knows what this one listens to.
    /// What a slower node publishes in the meantime is found in the journal.
    pub async fn wait_until_announced(&self, timeout: Duration) {
        let mut received = Vec::new();
        self.plane().announce(|| {
            let (reply, acknowledged) = oneshot::channel();
            received.push(acknowledged);
            Outgoing::Barrier(reply)
        });
        let all = futures::future::join_all(received);
        // After the timeout the gap detector finds what was missed.
        let _ = tokio::time::timeout(timeout, all).await;
    }

    /// Applies the update of another process. `false` if that process has no outbox here: then it
    /// must send everything anew, because its end would go unnoticed.
    pub(crate) fn apply(&self, from: &ProcessId, update: LiveUpdate) -> bool {
        let mut plane = self.plane();
        let Some(outbox) = plane.outboxes.get(from) else { return false };
        if update.forgot {
            outbox.put(Outgoing::Anew);
        }
        if update.anew {
            plane.forget(from);
        }
        for id in update.listen {
            let channel = plane.channels.entry(id).or_insert_with(Channel::new);
            channel.remote_processes.insert(from.clone());
            channel.update_listeners();
        }
        for id in &update.unlisten {
            plane.unlisten(id, from);
        }
        let children = update.children.into_iter().map(|(id, calls)| (id, Signal::Child(calls)));
        for (id, signal) in update.signals.into_iter().chain(children) {
            if let Some(channel) = plane.channels.get_mut(&id) {
                channel.send_signal(signal);
            }
        }
        if update.missed {
            plane.report_missed();
        }
        true
    }

    fn plane(&self) -> MutexGuard<'_, Plane> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveSink for Hub {
    fn publish(&self, conversation: &ConversationId, signal: Signal) {
        let mut plane = self.plane();
        let Plane { channels, outboxes } = &mut *plane;
        let Some(channel) = channels.get_mut(conversation) else { return };
        for process in &channel.remote_processes {
            if let Some(outbox) = outboxes.get(process) {
                outbox.put(Outgoing::Signal(conversation.clone(), signal.clone()));
            }
        }
        channel.send_signal(signal);
    }

    fn listeners(&self, conversation: &ConversationId) -> watch::Receiver<usize> {
        let channels = &mut self.plane().channels;
        // Channels that only a former watch needed are removed before the map grows.
        if channels.len() == channels.capacity() {
            channels.retain(|_, channel| channel.is_used());
        }
        channels.entry(conversation.clone()).or_insert_with(Channel::new).listeners.subscribe()
    }
}

impl Plane {
    fn announce(&self, mut message: impl FnMut() -> Outgoing) {
        for outbox in self.outboxes.values() {
            outbox.put(message());
        }
    }

    /// The conversations that have listeners on this node.
    fn local_subscriptions(&self) -> Vec<ConversationId> {
        let here = self.channels.iter().filter(|(_, channel)| channel.local_streams > 0);
        here.map(|(id, _)| id.clone()).collect()
    }

    /// Removes all listeners of another process.
    fn forget(&mut self, process: &ProcessId) {
        self.channels.retain(|_, channel| {
            if channel.remote_processes.remove(process) {
                channel.update_listeners();
            }
            channel.is_used()
        });
    }

    fn unlisten(&mut self, id: &ConversationId, process: &ProcessId) {
        let Some(channel) = self.channels.get_mut(id) else { return };
        channel.remote_processes.remove(process);
        channel.update_listeners();
        if !channel.is_used() {
            self.channels.remove(id);
        }
    }

    /// Tells every listener here to read the journal.
    fn report_missed(&mut self) {
        for channel in self.channels.values_mut() {
            channel.send(StreamItem::Missed);
        }
    }
}

impl Channel {
    fn new() -> Self {
        Self {
            signals: None,
            local_streams: 0,
            remote_processes: BTreeSet::new(),
            listeners: watch::Sender::new(0),
            last_seq: Seq::ZERO,
            has_children: false,
        }
    }

    fn send_signal(&mut self, signal: Signal) {
        if let Signal::Committed(events) = &signal {
            self.last_seq = events.last().map_or(Seq::ZERO, |event| event.seq).max(self.last_seq);
        }
        self.send(StreamItem::Signal(Arc::new(SharedSignal::new(signal))));
    }

    fn send(&self, item: StreamItem) {
        if let Some(signals) = &self.signals {
            // Without a listener there is nothing to lose.
            let _ = signals.send(item);
        }
    }

    fn update_listeners(&self) {
        let listeners = self.local_streams + self.remote_processes.len();
        self.listeners.send_if_modified(|known| std::mem::replace(known, listeners) != listeners);
    }

    fn is_used(&self) -> bool {
        *self.listeners.borrow() > 0 || self.listeners.receiver_count() > 0
    }
}

impl Subscription {
    /// The next item; `None` when the node shuts down.
    pub async fn next(&mut self) -> Option<StreamItem> {
        match self.signals.as_mut()?.recv().await {
            Ok(item) => Some(item),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(dropped(missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }

    /// The next item if it is there already.
    pub fn try_next(&mut self) -> Option<StreamItem> {
        match self.signals.as_mut()?.try_recv() {
            Ok(item) => Some(item),
            Err(broadcast::error::TryRecvError::Lagged(missed)) => Some(dropped(missed)),
            Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed) => {
                None
            }
        }
    }

    /// Notes that the reader knows the journal up to this event.
    pub fn mark_known(&self, seq: Seq) {
        if let Some(channel) = self.hub.plane().channels.get_mut(&self.id) {
            channel.last_seq = channel.last_seq.max(seq);
        }
    }

    /// Notes whether the conversation may have descendants: what they wait for is not in its own
    /// journal, so that gaps in what is known of them are found in another way.
    pub fn mark_children(&self, may_have_some: bool) {
        if let Some(channel) = self.hub.plane().channels.get_mut(&self.id) {
            channel.has_children = may_have_some;
        }
    }
}

/// Counts what a slow listener has missed.
fn dropped(missed: u64) -> StreamItem {
    metrics::counter!("abide_deltas_dropped_total").increment(missed);
    StreamItem::Missed
}

impl Drop for Subscription {
    fn drop(&mut self) {
        metrics::gauge!("abide_event_streams").decrement(1);
        self.signals = None;
        let mut plane = self.hub.plane();
        let Some(channel) = plane.channels.get_mut(&self.id) else { return };
        channel.local_streams = channel.local_streams.saturating_sub(1);
        channel.update_listeners();
        let is_silent = channel.local_streams == 0;
        if !channel.is_used() {
            plane.channels.remove(&self.id);
        }
        if is_silent {
            plane.announce(|| Outgoing::Unlisten(self.id.clone()));
        }
    }
}
