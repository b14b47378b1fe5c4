//! A clock that follows paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use abide_actors::clock::Clock;
use abide_conversation::Timestamp;

/// A clock that follows paused time; its ids are numbered.
pub fn clock() -> Arc<dyn Clock> {
    Arc::new(TestClock::new())
}

/// A clock that is a millisecond later whenever it is read.
pub fn ticking_clock() -> Arc<dyn Clock> {
    Arc::new(TestClock { tick_ms: 1, ..TestClock::new() })
}

struct TestClock {
    start: tokio::time::Instant,
    tick_ms: u64,
    reads: AtomicU64,
    ids: AtomicU64,
}

impl TestClock {
    fn new() -> Self {
        Self {
            start: tokio::time::Instant::now(),
            tick_ms: 0,
            reads: AtomicU64::new(0),
            ids: AtomicU64::new(0),
        }
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let ticks = self.tick_ms * self.reads.fetch_add(1, Ordering::SeqCst);
        let elapsed_ms = i64::try_from(self.start.elapsed().as_millis()).unwrap();
        let elapsed_ms = elapsed_ms + i64::try_from(ticks).unwrap();
        Timestamp::from_millisecond(1_800_000_000_000 + elapsed_ms).unwrap()
    }

    fn id(&self, prefix: &str) -> String {
        format!("{prefix}_{}", self.ids.fetch_add(1, Ordering::SeqCst))
    }

    fn chance(&self) -> f64 {
        0.5
    }
}
