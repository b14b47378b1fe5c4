//! The clocks and the random source of a node.

use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use abide_actors::clock::Clock;
use abide_conversation::Timestamp;
use jiff::SignedDuration;

/// Reads the system's clock and its random source.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let now = jiff::Timestamp::now();
        Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now.into())
    }

    fn id(&self, prefix: &str) -> String {
        let mut text = [0; uuid::fmt::Simple::LENGTH];
        let uuid = uuid::Uuid::now_v7().simple();
        [prefix, "_", uuid.encode_lower(&mut text)].concat()
    }

    fn chance(&self) -> f64 {
        let (high, _) = uuid::Uuid::new_v4().as_u64_pair();
        // A double holds 53 bits; the fixed bits of a v4 UUID are below them.
        (high >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The store's clock as this node last read it: the nodes of a cluster agree on the time by it,
/// whatever their own clocks say.
#[derive(Debug, Default)]
pub(crate) struct StoreClock(RwLock<Option<Reading>>);

#[derive(Debug)]
struct Reading {
    at: Instant,
    store: Timestamp,
    /// The largest possible error of `store`.
    max_error: Duration,
}

impl StoreClock {
    /// Takes the store's time from an answer that came after `round_trip`. Returns the correction: the
    /// store's time minus the time of this clock before.
    pub(crate) fn set(&self, now: Timestamp, round_trip: Duration) -> SignedDuration {
        let max_error = round_trip / 2;
        let store = now.checked_add(max_error).unwrap_or(now);
        let correction = store.duration_since(self.now());
        let mut reading = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // A slow answer that does not contradict the last reading is less precise than that.
        let is_better = reading.as_ref().is_none_or(|last| {
            correction.unsigned_abs() > max_error + last.max_error || max_error <= last.max_error
        });
        if is_better {
            *reading = Some(Reading { at: Instant::now(), store, max_error });
        }
        correction
    }
}

impl Clock for StoreClock {
    fn now(&self) -> Timestamp {
        let reading = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(Reading { at, store, .. }) = &*reading else { return SystemClock.now() };
        let now = store.checked_add(at.elapsed()).unwrap_or(*store);
        Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
    }

    fn id(&self, prefix: &str) -> String {
        SystemClock.id(prefix)
    }

    fn chance(&self) -> f64 {
        SystemClock.chance()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_stores_clock_wins_over_the_machines_by_an_hour() {
        let clock = StoreClock::default();
        let machine = SystemClock.now();
        let store = machine.checked_add(SignedDuration::from_hours(1)).unwrap();
        let correction = clock.set(store, Duration::from_millis(2));
        assert!((3_590..3_610).contains(&correction.as_secs()), "{correction:?}");
        assert!(clock.now() >= store);
        assert!(clock.now().duration_since(store) < SignedDuration::from_secs(60));
    }

    #[test]
    fn a_slow_answer_does_not_move_a_clock_that_may_be_right() {
        let clock = StoreClock::default();
        let store = SystemClock.now();
        clock.set(store, Duration::from_millis(1));
        let earlier = store.checked_sub(SignedDuration::from_secs(4)).unwrap();
        clock.set(earlier, Duration::from_secs(10));
        assert!(clock.now().duration_since(store).abs() < SignedDuration::from_millis(500));
    }
}
