//! Where a turn is stopped: the gate holds what arrives first at a chosen point, until its fault has
//! happened.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

/// Whether what is awaited has been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// It was asked for, and is not done.
    Before,
    /// It is done, and nobody knows.
    After,
}

/// The place of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InjectionPoint {
    pub(super) point: String,
    pub(super) side: Side,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    #[default]
    Awaited,
    Held,
    Released,
}

/// The gate of one run, shared by everything that a node awaits.
#[derive(Clone)]
pub(super) struct Gate {
    place: Option<InjectionPoint>,
    /// What nodes await before that is no part of the turn.
    has_begun: Arc<AtomicBool>,
    progress: watch::Sender<Progress>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Gate {
    /// A gate that holds what arrives first at this place; without a place it only watches.
    pub(super) fn new(place: Option<InjectionPoint>) -> Self {
        let (has_begun, progress) = (Arc::default(), watch::Sender::default());
        Self { place, has_begun, progress, seen: Arc::default() }
    }

    /// Begins to watch.
    pub(super) fn open(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// Passes a point, which is held there if it is the place of the fault.
    pub(super) async fn pass(&self, point: &str, side: Side) {
        if !self.has_begun.load(Ordering::Relaxed) {
            return;
        }
        if side == Side::Before {
            let mut seen = self.seen.lock().unwrap();
            if !seen.iter().any(|known| known == point) {
                seen.push(point.to_owned());
            }
        }
        let is_place = |place: &InjectionPoint| place.point == point && place.side == side;
        if !self.place.as_ref().is_some_and(is_place) {
            return;
        }
        let is_first = self.progress.send_if_modified(|progress| {
            let is_first = *progress == Progress::Awaited;
            if is_first {
                *progress = Progress::Held;
            }
            is_first
        });
        if is_first {
            self.wait_for(Progress::Released).await;
        }
    }

    /// Waits until something is held.
    pub(super) async fn wait_until_held(&self) {
        self.wait_for(Progress::Held).await;
    }

    /// Lets go what is held.
    pub(super) fn release(&self) {
        self.progress.send_replace(Progress::Released);
    }

    /// The points that were passed, in the order in which they were first passed.
    pub(super) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    async fn wait_for(&self, expected: Progress) {
        // The sender is this gate's own.
        let _ = self.progress.subscribe().wait_for(|progress| *progress == expected).await;
    }
}
