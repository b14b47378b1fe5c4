//! Commands as agents run them, with real launchers and real processes, none of which may be left.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bounds;
mod leftovers;
mod killed_node;
mod output;
mod test_shell;
mod sandbox;
