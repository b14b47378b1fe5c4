//! Connections between nodes: processes that connect, call each other, die, stop and come back, and
//! strangers that try to connect.
//!
//! ractor's registries are process-wide, so each node is a process of its own: this binary, run
//! again.
#![allow(clippy::unwrap_used, clippy::print_stdout, unreachable_pub)]

mod calls;
mod lost_peers;
mod node;
mod node_process;
mod proxy;
mod silent_peers;
mod strangers;
