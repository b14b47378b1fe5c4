//! What was ever written is read for ever: journals, what else is stored, what nodes tell each
//! other.
//!
//! The files of `tests/golden` are only appended to. Where a test says that something has no line,
//! append one as this program writes it; where it says that a line no longer reads, or reads
//! differently, it is the program that must change, for journals and older nodes have such lines.
#![allow(clippy::unwrap_used)]

mod covered;
mod journals;
mod kinds;
mod lines;
mod stored;
mod variants;
mod wire;
