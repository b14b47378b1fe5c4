//! Commands and servers as agents run them, with real launchers and real processes, none of which may be left.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bounds;
mod killed_node;
mod leftovers;
mod output;
mod sandbox;
mod servers;
mod test_shell;
