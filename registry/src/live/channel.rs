//! What this process knows of one conversation's listeners, and what is published here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use abide_actors::live::Signal;
use abide_conversation::Seq;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use super::{MAX_WAITING_SIGNALS, SharedSignal, StreamItem};
use crate::member::ProcessId;

/// How long signals wait at most for listeners elsewhere to be known. What they miss by then, they
/// find in the journal.
const MAX_HOLD: Duration = Duration::from_secs(1);
/// How long after its last signal a process stays registered as a publisher: an actor ends 30 s after
/// its last use.
const PUBLICATION_TTL: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Channel {
    /// Created with the first listener, because a channel allocates its buffer at once.
    pub(super) signals: Option<broadcast::Sender<StreamItem>>,
    /// The number of event streams that are open on this node.
    pub(super) local_streams: usize,
    /// The other processes where event streams are open, as far as they have said so here.
    pub(super) remote_processes: BTreeSet<ProcessId>,
    /// The processes that were told of the event streams here, because they publish.
    pub(super) publishers: BTreeSet<ProcessId>,
    /// Set while this process is registered as a publisher.
    pub(super) publication: Option<Publication>,
    /// The number of listeners, where another process counts as one.
    pub(super) listeners: watch::Sender<usize>,
    /// The last event that was sent to the listeners here.
    pub(super) last_seq: Seq,
    /// Whether the conversation may have descendants whose calls its listeners are sent.
    pub(super) has_children: bool,
}

/// That this process publishes signals of the conversation.
#[derive(Debug)]
pub(super) struct Publication {
    last_use: Instant,
    hold: Option<Hold>,
}

/// The signals that wait for listeners elsewhere to be known.
#[derive(Debug)]
struct Hold {
    since: Instant,
    signals: Vec<Signal>,
    /// The processes from which to hear whether they listen; `None` until the directory has named
    /// them.
    awaited: Option<BTreeSet<ProcessId>>,
}

impl Publication {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let hold = Hold { since: now, signals: Vec::new(), awaited: None };
        Self { last_use: now, hold: Some(hold) }
    }

    /// Has signals wait again, because another process keeps the directory now.
    pub(super) fn restart(&mut self) {
        let signals = self.hold.take().map(|hold| hold.signals).unwrap_or_default();
        self.hold = Some(Hold { since: Instant::now(), signals, awaited: None });
    }

    /// Takes a signal; returns it if it can be sent now.
    pub(super) fn take(&mut self, signal: Signal) -> Option<Signal> {
        self.last_use = Instant::now();
        let Some(hold) = &mut self.hold else { return Some(signal) };
        if hold.signals.len() == MAX_WAITING_SIGNALS {
            // Listeners read the journal instead.
            hold.signals = vec![Signal::Revived];
        }
        hold.signals.push(signal);
        None
    }

    /// Counts as a use. Returns whether signals wait, because the listeners elsewhere are not known yet.
    fn mark_used(&mut self) -> bool {
        self.last_use = Instant::now();
        self.hold.is_some()
    }

    /// Learns from which processes to hear, unless that is known.
    pub(super) fn expect(&mut self, listeners: BTreeSet<ProcessId>) {
        if let Some(Hold { awaited: awaited @ None, .. }) = &mut self.hold {
            *awaited = Some(listeners);
        }
    }

    /// Notes that a process has said whether it listens, or can no longer say so.
    pub(super) fn hear_from(&mut self, process: &ProcessId) {
        if let Some(Hold { awaited: Some(awaited), .. }) = &mut self.hold {
            awaited.remove(process);
        }
    }

    /// The signals that waited, once all listeners are known, or have been waited for long enough.
    pub(super) fn release(&mut self) -> Vec<Signal> {
        let is_over = |hold: &mut Hold| {
            hold.awaited.as_ref().is_some_and(BTreeSet::is_empty)
                || hold.since.elapsed() >= MAX_HOLD
        };
        self.hold.take_if(is_over).map(|hold| hold.signals).unwrap_or_default()
    }
}

impl Channel {
    pub(super) fn new() -> Self {
        Self {
            signals: None,
            local_streams: 0,
            remote_processes: BTreeSet::new(),
            publishers: BTreeSet::new(),
            publication: None,
            listeners: watch::Sender::new(0),
            last_seq: Seq::ZERO,
            has_children: false,
        }
    }

    /// Whether a signal has listeners, or may have some that are not known yet.
    pub(super) fn may_be_heard(&mut self) -> bool {
        let is_held = self.publication.as_mut().is_some_and(Publication::mark_used);
        is_held || self.local_streams > 0 || !self.remote_processes.is_empty()
    }

    pub(super) fn send_signal(&mut self, signal: Signal) {
        if let Signal::Committed(events) = &signal {
            self.last_seq = events.last().map_or(Seq::ZERO, |event| event.seq).max(self.last_seq);
        }
        self.send(StreamItem::Signal(Arc::new(SharedSignal::new(signal))));
    }

    pub(super) fn send(&self, item: StreamItem) {
        if let Some(signals) = &self.signals {
            // Without a listener there is nothing to lose.
            let _ = signals.send(item);
        }
    }

    pub(super) fn update_listeners(&self) {
        let listeners = self.local_streams + self.remote_processes.len();
        self.listeners.send_if_modified(|known| std::mem::replace(known, listeners) != listeners);
    }

    /// Whether the publication was not used for so long that it may end.
    pub(super) fn is_publication_idle(&self) -> bool {
        let is_old = |publication: &Publication| publication.last_use.elapsed() >= PUBLICATION_TTL;
        self.publication.as_ref().is_some_and(is_old) && self.listeners.receiver_count() == 0
    }

    pub(super) fn is_used(&self) -> bool {
        *self.listeners.borrow() > 0
            || self.listeners.receiver_count() > 0
            || self.publication.is_some()
    }
}
