//! What the store promises, and what it has done.

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The failure of the machine, as far as its disk honours fsync.
    Fsync,
    /// The death of the process at any moment, but not the failure of the machine.
    Os,
}

/// What a store has done since it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Accepted writes.
    pub commits: u64,
    /// Fsyncs that they shared.
    pub fsyncs: u64,
}
