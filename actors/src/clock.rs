//! Time and randomness as a port: the program provides them, so that tests can control them.

use abide_conversation::Timestamp;

/// The source of timestamps, ids and random numbers.
pub trait Clock: Send + Sync + 'static {
    /// The current time, in whole milliseconds.
    fn now(&self) -> Timestamp;

    /// A new, globally unique id: `<prefix>_<random>`.
    fn id(&self, prefix: &str) -> String;

    /// A random number, uniform in `0.0..1.0`.
    fn chance(&self) -> f64;
}
