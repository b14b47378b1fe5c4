//! The live plane of one node: signals from its conversations to its listeners.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use abide_actors::live::{Live, Signal};
use abide_conversation::ConversationId;
use tokio::sync::{broadcast, watch};

/// How many signals may wait for one listener. Past that it loses deltas, and reads what was
/// journalled from the store.
const WAITING: usize = 512;

/// Knows who listens to what. A conversation that nobody listens to costs nothing.
#[derive(Clone, Debug, Default)]
pub struct Hub(Arc<Mutex<HashMap<ConversationId, Channel>>>);

#[derive(Debug)]
struct Channel {
    /// Made by the first listener: a channel takes its memory when it is made.
    signals: Option<broadcast::Sender<Signal>>,
    /// Open event streams.
    pages: watch::Sender<usize>,
}

/// An open event stream; dropping it closes it.
#[derive(Debug)]
pub struct Subscription {
    hub: Hub,
    id: ConversationId,
    signals: Option<broadcast::Receiver<Signal>>,
}

/// What a listener gets next.
#[derive(Debug)]
pub enum Heard {
    Signal(Signal),
    /// Some were lost; the journal has what matters.
    Missed,
}

impl Hub {
    /// Opens an event stream; it hears everything that is published from now on.
    pub fn subscribe(&self, id: &ConversationId) -> Subscription {
        let mut channels = self.channels();
        let channel = channels.entry(id.clone()).or_insert_with(Channel::new);
        channel.pages.send_modify(|pages| *pages += 1);
        let signals = channel.signals.get_or_insert_with(|| broadcast::Sender::new(WAITING));
        let signals = Some(signals.subscribe());
        Subscription { hub: self.clone(), id: id.clone(), signals }
    }

    fn channels(&self) -> MutexGuard<'_, HashMap<ConversationId, Channel>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Live for Hub {
    fn publish(&self, conversation: &ConversationId, signal: Signal) {
        let channels = self.channels();
        let listened = channels.get(conversation).and_then(|channel| channel.signals.as_ref());
        if let Some(signals) = listened {
            // Nobody listens now; there is nothing to lose.
            let _ = signals.send(signal);
        }
    }

    fn pages(&self, conversation: &ConversationId) -> watch::Receiver<usize> {
        let mut channels = self.channels();
        // Channels that only a former watch had made go when there may be as many again.
        if channels.len() == channels.capacity() {
            channels.retain(|_, channel| channel.is_used());
        }
        channels.entry(conversation.clone()).or_insert_with(Channel::new).pages.subscribe()
    }
}

impl Channel {
    fn new() -> Self {
        Self { signals: None, pages: watch::Sender::new(0) }
    }

    fn is_used(&self) -> bool {
        *self.pages.borrow() > 0 || self.pages.receiver_count() > 0
    }
}

impl Subscription {
    /// The next signal; `None` when the node shuts down.
    pub async fn next(&mut self) -> Option<Heard> {
        match self.signals.as_mut()?.recv().await {
            Ok(signal) => Some(Heard::Signal(signal)),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(Heard::Missed),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.signals = None;
        let mut channels = self.hub.channels();
        let Some(channel) = channels.get(&self.id) else { return };
        channel.pages.send_modify(|pages| *pages = pages.saturating_sub(1));
        if !channel.is_used() {
            channels.remove(&self.id);
        }
    }
}
