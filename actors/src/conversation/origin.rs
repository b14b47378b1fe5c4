//! What an actor begins with.

use crate::journal::Holder;

/// What an actor begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The journal, if there is one.
    Journal,
    /// The journal, and the claim of this holder, which is dead: the actor may replace it.
    DeadHolder(Holder),
    /// Nothing: nobody held the conversation and it did not exist, a moment ago. Its first commit claims
    /// it, and nothing is read before.
    New,
}

impl Origin {
    /// The dead holder whose claim the actor may replace.
    pub fn dead_holder(&self) -> Option<&Holder> {
        match self {
            Self::DeadHolder(holder) => Some(holder),
            Self::Journal | Self::New => None,
        }
    }
}

impl From<Option<Holder>> for Origin {
    fn from(dead: Option<Holder>) -> Self {
        dead.map_or(Self::Journal, Self::DeadHolder)
    }
}
