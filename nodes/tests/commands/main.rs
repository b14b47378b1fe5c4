//! Commands as agents run them: real launchers, real processes, and none of them left over.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bounds;
mod leftovers;
mod node;
mod output;
mod rig;
mod sandbox;
