//! The store against servers that the tests start.
#![allow(clippy::unwrap_used)]

mod servers;
mod single;
