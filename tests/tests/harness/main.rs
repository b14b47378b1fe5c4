//! The harness does what the tests of the cluster rely on.
#![allow(clippy::unwrap_used)]

mod proxy;
mod redis;
