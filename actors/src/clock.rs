//! Clock and chance as a port: they come in from the program, so that tests can hold them still.

use abide_conversation::Timestamp;

/// Where moments and random ids come from.
pub trait Clock: Send + Sync + 'static {
    /// The present moment, in whole milliseconds.
    fn now(&self) -> Timestamp;

    /// A new id, unique for ever: `<prefix>_<random>`.
    fn id(&self, prefix: &str) -> String;

    /// A random number, evenly spread over `0.0..1.0`.
    fn chance(&self) -> f64;
}
