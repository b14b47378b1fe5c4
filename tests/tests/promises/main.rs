//! What the cluster promises, against real nodes that are killed, stopped, cut off and lied to.
#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stdout)] // What is measured is said.

mod acknowledged;
#[path = "../cluster/agents.rs"]
mod agents;
mod drain;
mod holders;
mod latency;
mod rig;
mod rolling;
mod streams;
mod takeover;

/// The program, built from the sources of package `abide` for these tests.
const ABIDE: &str = env!("CARGO_BIN_EXE_abide-under-test");
