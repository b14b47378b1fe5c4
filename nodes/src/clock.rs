//! The clocks and the dice of the real world.

use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use abide_actors::clock::Clock;
use jiff::{SignedDuration, Timestamp};

/// Reads the system's clock and its random source.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
    }

    fn id(&self, prefix: &str) -> String {
        format!("{prefix}_{}", uuid::Uuid::now_v7().simple())
    }

    fn chance(&self) -> f64 {
        let (high, _) = uuid::Uuid::new_v4().as_u64_pair();
        // The 53 bits that a double holds; the fixed bits of a v4 id are lower ones.
        (high >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The store's clock, as far as this node knows it: all nodes of a cluster share it, whatever their
/// own say.
#[derive(Debug, Default)]
pub struct StoreClock(RwLock<Option<Reading>>);

#[derive(Debug)]
struct Reading {
    at: Instant,
    store: Timestamp,
    /// By how much it may be wrong.
    unsure: Duration,
}

impl StoreClock {
    /// The store said that it is `now`, in an answer that took this long. Returns by how much this
    /// clock was wrong.
    pub fn set(&self, now: Timestamp, took: Duration) -> SignedDuration {
        let unsure = took / 2;
        let store = now.checked_add(unsure).unwrap_or(now);
        let wrong = store.duration_since(self.now());
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // A slow answer says less than what is known.
        let better = known.as_ref().is_none_or(|known| {
            wrong.unsigned_abs() > unsure + known.unsure || unsure <= known.unsure
        });
        if better {
            *known = Some(Reading { at: Instant::now(), store, unsure });
        }
        wrong
    }
}

impl Clock for StoreClock {
    fn now(&self) -> Timestamp {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(Reading { at, store, .. }) = &*known else { return SystemClock.now() };
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
        let wrong = clock.set(store, Duration::from_millis(2));
        assert!((3_590..3_610).contains(&wrong.as_secs()), "{wrong:?}");
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
