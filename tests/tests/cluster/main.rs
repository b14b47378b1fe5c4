//! One node of real processes: killed at any moment, started again, and nothing is lost.
#![allow(clippy::unwrap_used)]

mod agents;
mod chaos;
mod commands;
mod deadlines;
mod hooks;
mod killed;
mod many;
mod mcp;
mod mistakes;
mod models;
mod operators;
mod outcomes;
mod pages;
mod refused;
mod repeats;
mod revived;
mod stopped;
mod streams;
mod telemetry;
mod tools;
mod walk;
mod wild;
mod workspaces;

/// The program, built from the sources of package `abide` for these tests.
const ABIDE: &str = env!("CARGO_BIN_EXE_abide-under-test");
