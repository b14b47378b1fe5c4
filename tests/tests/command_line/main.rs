//! The command line as people and scripts use it: the program, run against nodes that are processes.
#![allow(clippy::unwrap_used)]

mod agents;
mod chat;
mod contexts;
mod conversations;
mod dev;
mod exit_codes;
mod failover;
mod hostile_texts;
mod incomplete;
mod moving;
mod operators;
mod reference;
mod shell;
mod shells;
mod spec;
mod time;

/// The program, built from the sources of package `abide` for these tests.
const ABIDE: &str = env!("CARGO_BIN_EXE_abide-under-test");
