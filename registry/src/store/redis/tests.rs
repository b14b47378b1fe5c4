//! The store against servers that the tests start.
#![allow(clippy::unwrap_used)]

mod cluster;
mod load;
mod lost;
mod members;
mod opening;
mod plan;
mod proxy;
mod servers;
mod single;
mod watched;
