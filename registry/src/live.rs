//! The live plane: signals from conversations to listeners, on this node and on others.

mod channel;
mod directory;
mod gap_detector;
mod plane;
mod relay;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use abide_actors::live::{LiveSink, Signal};
use abide_conversation::{ConversationId, Scoped, Seq};
use bytes::Bytes;
use tokio::sync::{broadcast, oneshot, watch};

use crate::member::ProcessId;
use crate::protocol::{LiveUpdate, Register, Registered};
pub use gap_detector::detect_gaps;
use plane::Plane;
use relay::Outgoing;
pub use relay::relay;

/// How many signals may wait for one listener. Past that it loses deltas and reads the journal from
/// the store. The buffer is allocated with the first listener: 40 bytes for each signal.
const MAX_WAITING_SIGNALS: usize = 64;

/// Distributes the signals of conversations to listeners. A conversation without listeners costs
/// nothing.
#[derive(Clone, Debug, Default)]
pub struct Hub(Arc<Mutex<Plane>>);

/// An open event stream; dropping it closes it.
#[derive(Debug)]
pub struct Subscription {
    hub: Hub,
    id: Scoped<ConversationId>,
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
    pub fn subscribe(&self, id: &Scoped<ConversationId>) -> Subscription {
        let mut plane = self.plane();
        let channel = plane.channel(id);
        channel.local_streams += 1;
        channel.update_listeners();
        let signals =
            channel.signals.get_or_insert_with(|| broadcast::Sender::new(MAX_WAITING_SIGNALS));
        let signals = Some(signals.subscribe());
        let is_first = channel.local_streams == 1;
        metrics::gauge!("abide_event_streams").increment(1);
        if is_first {
            plane.begin_listening(id);
        }
        Subscription { hub: self.clone(), id: id.clone(), signals }
    }

    /// Applies the update of another process. `false` if that process has no outbox here: then it
    /// must send everything anew, because its end would go unnoticed.
    pub(crate) fn apply(&self, from: &ProcessId, update: LiveUpdate) -> bool {
        let mut plane = self.plane();
        let Some(outbox) = plane.outboxes.get(from) else { return false };
        if update.forgot {
            outbox.put(Outgoing::Anew);
        }
        plane.apply(from, update);
        true
    }

    /// Registers another process in the directory here. `None` as in [`apply`](Self::apply).
    pub(crate) fn register(&self, from: &ProcessId, request: Register) -> Option<Registered> {
        let mut plane = self.plane();
        plane.outboxes.contains_key(from).then(|| plane.register(from, request))
    }

    fn plane(&self) -> MutexGuard<'_, Plane> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveSink for Hub {
    fn publish(&self, conversation: &Scoped<ConversationId>, signal: Signal) {
        self.plane().publish(conversation, signal);
    }

    fn may_be_heard(&self, conversation: &Scoped<ConversationId>) -> bool {
        self.plane().may_be_heard(conversation)
    }

    fn listeners(&self, conversation: &Scoped<ConversationId>) -> watch::Receiver<usize> {
        let mut plane = self.plane();
        let channels = &mut plane.channels;
        // Channels that only a former watch needed are removed before the map grows.
        if channels.len() == channels.capacity() {
            channels.retain(|_, channel| channel.is_used());
        }
        plane.begin_publishing(conversation);
        plane.channel(conversation).listeners.subscribe()
    }
}

impl Subscription {
    /// Waits, for at most `timeout`, until every connected node that publishes signals of this
    /// conversation knows that this one listens. What a slower node publishes in the meantime is found
    /// in the journal.
    pub async fn wait_until_announced(&self, timeout: Duration) {
        let announced = async {
            // The first answer names those that publish.
            for step in [0, 1] {
                let mut received = Vec::new();
                for outbox in &self.hub.plane().told_of(&self.id)[step] {
                    let (reply, acknowledged) = oneshot::channel();
                    outbox.put(Outgoing::Barrier(reply));
                    received.push(acknowledged);
                }
                futures::future::join_all(received).await;
            }
        };
        // After the timeout the gap detector finds what was missed.
        let _ = tokio::time::timeout(timeout, announced).await;
    }

    /// The next item. A stream has no end of its own: whoever reads it watches for the departure of
    /// the node, too.
    pub async fn next(&mut self) -> StreamItem {
        let Some(signals) = &mut self.signals else { return std::future::pending().await };
        match signals.recv().await {
            Ok(item) => item,
            Err(broadcast::error::RecvError::Lagged(missed)) => dropped(missed),
            // A channel keeps its sender for as long as it has a listener.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
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
        let told = (channel.local_streams == 0).then(|| std::mem::take(&mut channel.publishers));
        if !channel.is_used() {
            plane.channels.remove(&self.id);
        }
        if let Some(told) = told {
            plane.end_listening(&self.id, told);
        }
    }
}
