//! Numbers that count from 1: one type each, so that no two of them are mixed up.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$attribute:meta])* $name:ident, $whole:ty) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name($whole);

        impl $name {
            /// The first one.
            pub const FIRST: Self = Self(1);

            /// Takes the number unchecked: input is checked where it is parsed.
            pub const fn new(number: $whole) -> Self {
                Self(number)
            }

            /// The bare number.
            pub const fn get(self) -> $whole {
                self.0
            }

            /// The number that follows this one.
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// The number of an event in its conversation's journal; 0 is before the first event.
    #[derive(Default)]
    Seq, u64
);
number!(
    /// The number of a model call in its turn; 0 is before the first model call.
    #[derive(Default)]
    Step, u32
);
number!(
    /// The number of an attempt to run a call.
    Attempt, u32
);

impl Seq {
    /// Before the first event.
    pub const ZERO: Self = Self(0);

    /// After every event.
    pub const MAX: Self = Self(u64::MAX);

    /// The number that follows this one by as many events.
    pub const fn saturating_add(self, events: u64) -> Self {
        Self(self.0.saturating_add(events))
    }

    /// The number that precedes this one by as many events.
    pub const fn saturating_sub(self, events: u64) -> Self {
        Self(self.0.saturating_sub(events))
    }

    /// How many events come after `earlier`, up to this one.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Step {
    /// Before the first model call.
    pub const ZERO: Self = Self(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stops_at_the_first_and_at_the_last_one() {
        let [four, seven] = [4, 7].map(Seq::new);
        assert_eq!((seven.since(four), four.since(seven)), (3, 0));
        assert_eq!((four.saturating_add(3), seven.saturating_sub(3)), (seven, four));
        assert_eq!((Seq::MAX.saturating_add(1), four.saturating_sub(9)), (Seq::MAX, Seq::ZERO));
        assert_eq!((Seq::FIRST.next(), Seq::MAX.next()), (Seq::new(2), Seq::MAX));
    }
}
