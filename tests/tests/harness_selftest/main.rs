//! Tests of the harness itself: it does what the tests of the cluster rely on.
#![allow(clippy::unwrap_used)]

mod cluster;
mod history;
mod proxy;
mod redis;

/// The program, built from the sources of package `abide` for these tests.
const ABIDE: &str = env!("CARGO_BIN_EXE_abide-under-test");
