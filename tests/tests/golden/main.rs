//! Everything that was ever written can be read for ever: journals, other stored data, and messages
//! between nodes.
//!
//! The files of `tests/golden` are append-only. If a test says that something has no line, append
//! one as this program writes it. If a test says that a line no longer parses, or parses
//! differently, the program must change: journals and older nodes contain such lines.
#![allow(clippy::unwrap_used)]

mod golden_types;
mod imports;
mod journals;
mod lines;
mod schema_coverage;
mod stored;
mod variants;
mod wire;
