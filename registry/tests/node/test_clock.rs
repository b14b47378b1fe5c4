//! A clock that follows paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use abide_actors::clock::Clock;
use abide_conversation::Timestamp;

/// A clock that follows paused time; its ids are numbered.
pub fn clock() -> Arc<dyn Clock> {
    Arc::new(TestClock::new())
}

struct TestClock {
    start: tokio::time::Instant,
    ids: AtomicU64,
}

impl TestClock {
    fn new() -> Self {
        Self { start: tokio::time::Instant::now(), ids: AtomicU64::new(0) }
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let elapsed_ms = i64::try_from(self.start.elapsed().as_millis()).unwrap();
        Timestamp::from_millisecond(1_800_000_000_000 + elapsed_ms).unwrap()
    }

    fn id(&self, prefix: &str) -> String {
        format!("{prefix}_{}", self.ids.fetch_add(1, Ordering::SeqCst))
    }

    fn chance(&self) -> f64 {
        0.5
    }
}
