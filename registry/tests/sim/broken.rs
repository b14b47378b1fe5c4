//! What a test breaks on purpose, to see that it is noticed.

/// A rule that the simulated world breaks; the product is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The store writes for whoever asks, whatever it holds.
    NoFence,
    /// A claim takes a conversation from any holder.
    ClaimIgnoresHolder,
    /// Whoever is asked about is called dead, and lives on.
    BuriesTheLiving,
    /// Silence kills nobody.
    PatientRegister,
    /// The store says "done" and has not written.
    AckWithoutWrite,
    /// A node's sweeper closes what is due by itself, past the door.
    SweeperWithoutDoor,
    /// Alarms are lost.
    NoAlarms,
    /// Nobody finds out what was running.
    NoActiveMark,
    /// A node's clock stands still: its lease never ends.
    StoppedClock,
    /// The network carries a request twice.
    CarriedTwice,
    /// A host forgets over which dead holder an actor was started, as this one once did.
    ForgetsTheDead,
    /// A host lets those rest that were fenced, as this one once did.
    LetsTheFencedRest,
}
