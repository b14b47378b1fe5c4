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
    signals: broadcast::Sender<Signal>,
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
        let signals = Some(channel.signals.subscribe());
        Subscription { hub: self.clone(), id: id.clone(), signals }
    }

    fn channels(&self) -> MutexGuard<'_, HashMap<ConversationId, Channel>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Live for Hub {
    fn publish(&self, conversation: &ConversationId, signal: Signal) {
        if let Some(channel) = self.channels().get(conversation) {
            // Nobody listens now; there is nothing to lose.
            let _ = channel.signals.send(signal);
        }
    }

    fn pages(&self, conversation: &ConversationId) -> watch::Receiver<usize> {
        let mut channels = self.channels();
        // Channels that only a former watch had made go here, before one more is added.
        if channels.len() >= 1_024 && channels.len().is_power_of_two() {
            channels.retain(|_, channel| channel.is_used());
        }
        channels.entry(conversation.clone()).or_insert_with(Channel::new).pages.subscribe()
    }
}

impl Channel {
    fn new() -> Self {
        Self { signals: broadcast::Sender::new(WAITING), pages: watch::Sender::new(0) }
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
