//! What an acknowledged write survives.

use std::fmt;
use std::num::NonZeroU8;

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The failure of the primary's machine: the write is on disk first. Needs `appendonly yes` and
    /// `appendfsync always`.
    Fsync,
    /// The death of the primary's process. Needs `appendonly yes`.
    Os,
    /// The loss of the primary, when one of the N replicas that have the write takes over.
    Replicas(NonZeroU8),
    /// Nothing is promised, to whoever only reads.
    Nothing,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Durability::Fsync => f.write_str("fsync"),
            Durability::Os => f.write_str("os"),
            Durability::Replicas(wanted) => write!(f, "replicas={wanted}"),
            Durability::Nothing => f.write_str("nothing"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_durability_is_written_as_it_is_configured() {
        let every =
            [Durability::Fsync, Durability::Os, Durability::Replicas(2.try_into().unwrap())];
        assert_eq!(every.map(|durability| durability.to_string()), ["fsync", "os", "replicas=2"]);
    }
}
