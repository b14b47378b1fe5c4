//! The cluster's promises, tested on real nodes that are killed, stopped and cut off.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // Measurements are printed.

mod acknowledged;
#[allow(dead_code)] // These tests do not use every agent of the tests of one node.
#[path = "../cluster/agents.rs"]
mod agents;
mod alarms;
mod approvals;
mod chaos;
mod children;
mod clocks;
mod cluster_state;
mod compression;
mod drain;
mod erasures;
mod failover;
mod foreign_peers;
mod kill_matrix;
mod killed_jobs;
mod lapsed_streams;
mod latency;
mod limits;
mod operators;
mod quarantine;
mod quotas;
mod redis_cut;
mod redis_faults;
mod redis_kinds;
mod repairs;
mod rolling;
mod single_writer;
mod start;
mod streams;
mod sub_agent_scenario;
mod sub_agent_trees;
mod takeover;
mod three_nodes;
mod ticks;
mod tools;
mod upgrade;
mod waits;

/// The program, built from the sources of package `abide` for these tests.
const ABIDE: &str = env!("CARGO_BIN_EXE_abide-under-test");
