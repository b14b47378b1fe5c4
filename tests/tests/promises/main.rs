//! What the cluster promises, against real nodes that are killed, stopped, cut off and lied to.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // What is measured is printed.

mod acknowledged;
#[allow(dead_code)] // Not every agent of the single node is one of the cluster's.
#[path = "../cluster/agents.rs"]
mod agents;
mod alarms;
mod chaos;
mod children;
mod clocks;
mod crashing;
mod drain;
mod facts;
mod families;
mod holders;
mod latency;
mod operators;
mod redis_cut;
mod redis_faults;
mod redis_kinds;
mod repairs;
mod rig;
mod rolling;
mod start;
mod story;
mod strangers;
mod streams;
mod takeover;
mod tools;
mod upgrade;

/// The program, built from the sources of package `abide` for these tests.
const ABIDE: &str = env!("CARGO_BIN_EXE_abide-under-test");
