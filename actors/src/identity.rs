//! What tells nodes, their lives and their claims apart.

use std::fmt;

use abide_conversation::name_type;
use serde::{Deserialize, Serialize};

name_type! {
    /// The configured name of a node, which is the same after a restart. At most one live member
    /// has it.
    NodeName
}

name_type! {
    /// The id of one life of a node as a member. A node takes another one whenever it starts, and
    /// whenever it rejoins after it was declared dead.
    Incarnation
}

/// The number of a claim on a conversation. A new claim has a larger one than all claims before it,
/// so a store can refuse what a former holder still writes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(u64);

impl Epoch {
    /// Smaller than the epoch of every claim.
    pub const ZERO: Self = Self(0);

    /// The epoch with this number, as a store or another node wrote it.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number itself.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The epoch of the claim that replaces this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
