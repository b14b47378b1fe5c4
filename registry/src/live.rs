//! The live plane: signals from conversations to listeners, on this node and on others.

mod gap_detector;
mod relay;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use abide_actors::live::{LiveSink, Signal};
use abide_conversation::ConversationId;
use bytes::Bytes;
use tokio::sync::{broadcast, oneshot, watch};

use crate::protocol::LiveUpdate;
pub use gap_detector::look_out;
pub use relay::relay;
use relay::{News, Outbox};

/// How many signals may wait for one listener. Past that it loses deltas, and reads what was
/// journalled from the store. The place for them is taken with the first listener: 40 bytes each.
const WAITING: usize = 128;

/// Knows who listens to what. A conversation that nobody listens to costs nothing.
#[derive(Clone, Debug, Default)]
pub struct Hub(Arc<Mutex<Plane>>);

#[derive(Debug, Default)]
struct Plane {
    channels: HashMap<ConversationId, Channel>,
    /// What is to be told to other nodes, by process.
    outboxes: HashMap<String, Outbox>,
}

#[derive(Debug)]
struct Channel {
    /// Made by the first listener: a channel takes its memory when it is made.
    signals: Option<broadcast::Sender<StreamItem>>,
    /// Event streams that are open here.
    here: usize,
    /// The processes where some are open.
    elsewhere: BTreeSet<String>,
    /// All of them; another process counts as one.
    pages: watch::Sender<usize>,
    /// The last event that listeners here were told of.
    told: u64,
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
    /// Some were lost; the journal has what matters.
    Missed,
}

/// A signal, and how listeners write it down, once for all of them.
#[derive(Debug)]
pub struct SharedSignal {
    pub signal: Signal,
    written: OnceLock<Box<[Bytes]>>,
}

impl SharedSignal {
    fn new(signal: Signal) -> Self {
        Self { signal, written: OnceLock::new() }
    }

    /// The signal as whoever asked first has written it; all write alike.
    pub fn written(&self, write: impl FnOnce(&Signal) -> Vec<Bytes>) -> &[Bytes] {
        self.written.get_or_init(|| write(&self.signal).into())
    }
}

impl Hub {
    /// Opens an event stream; it hears everything that is published on this node from now on.
    pub fn subscribe(&self, id: &ConversationId) -> Subscription {
        let mut plane = self.plane();
        let channel = plane.channels.entry(id.clone()).or_insert_with(Channel::new);
        channel.here += 1;
        channel.count();
        let signals = channel.signals.get_or_insert_with(|| broadcast::Sender::new(WAITING));
        let signals = Some(signals.subscribe());
        metrics::gauge!("abide_event_streams").increment(1);
        if channel.here == 1 {
            plane.tell_all(|| News::Listen(id.clone()));
        }
        Subscription { hub: self.clone(), id: id.clone(), signals }
    }

    /// Waits until every node that can be reached knows what this one listens to, for at most that
    /// long. Whatever a slower one publishes meanwhile is found in the journal.
    pub async fn announced(&self, within: Duration) {
        let mut heard = Vec::new();
        self.plane().tell_all(|| {
            let (reply, told) = oneshot::channel();
            heard.push(told);
            News::Barrier(reply)
        });
        let all = futures::future::join_all(heard);
        // Late is as good as never: the lookout finds what was missed.
        let _ = tokio::time::timeout(within, all).await;
    }

    /// Takes what another process tells. `false` if nothing could be told to it in return: then it
    /// is to tell everything anew, for nobody would notice its end.
    pub(crate) fn apply(&self, from: &str, update: LiveUpdate) -> bool {
        let mut plane = self.plane();
        let Some(outbox) = plane.outboxes.get(from) else { return false };
        if update.forgot {
            outbox.put(News::Anew);
        }
        if update.anew {
            plane.forget(from);
        }
        for id in update.listen {
            let channel = plane.channels.entry(id).or_insert_with(Channel::new);
            channel.elsewhere.insert(from.to_owned());
            channel.count();
        }
        for id in &update.unlisten {
            plane.unlisten(id, from);
        }
        for (id, signal) in update.signals {
            if let Some(channel) = plane.channels.get_mut(&id) {
                channel.tell_signal(signal);
            }
        }
        if update.missed {
            plane.miss();
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
        for process in &channel.elsewhere {
            if let Some(outbox) = outboxes.get(process) {
                outbox.put(News::Signal(conversation.clone(), signal.clone()));
            }
        }
        channel.tell_signal(signal);
    }

    fn pages(&self, conversation: &ConversationId) -> watch::Receiver<usize> {
        let channels = &mut self.plane().channels;
        // Channels that only a former watch had made go when there may be as many again.
        if channels.len() == channels.capacity() {
            channels.retain(|_, channel| channel.is_used());
        }
        channels.entry(conversation.clone()).or_insert_with(Channel::new).pages.subscribe()
    }
}

impl Plane {
    fn tell_all(&self, mut news: impl FnMut() -> News) {
        for outbox in self.outboxes.values() {
            outbox.put(news());
        }
    }

    /// What listeners here listen to.
    fn listened(&self) -> Vec<ConversationId> {
        let here = self.channels.iter().filter(|(_, channel)| channel.here > 0);
        here.map(|(id, _)| id.clone()).collect()
    }

    /// Nobody listens in that process any more, as far as is known.
    fn forget(&mut self, process: &str) {
        self.channels.retain(|_, channel| {
            if channel.elsewhere.remove(process) {
                channel.count();
            }
            channel.is_used()
        });
    }

    fn unlisten(&mut self, id: &ConversationId, process: &str) {
        let Some(channel) = self.channels.get_mut(id) else { return };
        channel.elsewhere.remove(process);
        channel.count();
        if !channel.is_used() {
            self.channels.remove(id);
        }
    }

    /// Tells every listener here to look at the journal.
    fn miss(&mut self) {
        for channel in self.channels.values_mut() {
            channel.tell(StreamItem::Missed);
        }
    }
}

impl Channel {
    fn new() -> Self {
        let (signals, elsewhere) = Default::default();
        Self { signals, here: 0, elsewhere, pages: watch::Sender::new(0), told: 0 }
    }

    fn tell_signal(&mut self, signal: Signal) {
        if let Signal::Committed(events) = &signal {
            self.told = events.last().map_or(0, |event| event.seq).max(self.told);
        }
        self.tell(StreamItem::Signal(Arc::new(SharedSignal::new(signal))));
    }

    fn tell(&self, heard: StreamItem) {
        if let Some(signals) = &self.signals {
            // Nobody listens now; there is nothing to lose.
            let _ = signals.send(heard);
        }
    }

    fn count(&self) {
        let pages = self.here + self.elsewhere.len();
        self.pages.send_if_modified(|known| std::mem::replace(known, pages) != pages);
    }

    fn is_used(&self) -> bool {
        *self.pages.borrow() > 0 || self.pages.receiver_count() > 0
    }
}

impl Subscription {
    /// The next signal; `None` when the node shuts down.
    pub async fn next(&mut self) -> Option<StreamItem> {
        match self.signals.as_mut()?.recv().await {
            Ok(heard) => Some(heard),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(dropped(missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }

    /// The same, if it is there already.
    pub fn ready(&mut self) -> Option<StreamItem> {
        match self.signals.as_mut()?.try_recv() {
            Ok(heard) => Some(heard),
            Err(broadcast::error::TryRecvError::Lagged(missed)) => Some(dropped(missed)),
            Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed) => {
                None
            }
        }
    }

    /// Says up to which event its reader knows the journal.
    pub fn knows(&self, seq: u64) {
        if let Some(channel) = self.hub.plane().channels.get_mut(&self.id) {
            channel.told = channel.told.max(seq);
        }
    }
}

/// A listener is slower than what it listens to.
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
        channel.here = channel.here.saturating_sub(1);
        channel.count();
        let (silent, used) = (channel.here == 0, channel.is_used());
        if !used {
            plane.channels.remove(&self.id);
        }
        if silent {
            plane.tell_all(|| News::Unlisten(self.id.clone()));
        }
    }
}
