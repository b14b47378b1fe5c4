//! The clock and the dice of the real world.

use abide_actors::clock::Clock;
use jiff::Timestamp;

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
