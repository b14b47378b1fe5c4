//! The store against servers that the tests start.
#![allow(clippy::unwrap_used)]

mod access;
mod blob_names;
mod cluster;
mod compression;
mod costs;
mod durability;
mod encryption;
mod killed_deletions;
mod load;
mod long_journals;
mod lost_replies;
mod members;
mod opening;
mod operations;
mod proxy;
mod replicas;
mod sentinel;
mod servers;
mod single;
