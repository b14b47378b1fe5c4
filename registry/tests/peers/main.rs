//! Node to node: processes that connect, call, die, stop and come back, and strangers at the door.
//!
//! ractor's registries are process-wide, so each node is a process: this binary once more.
#![allow(clippy::unwrap_used, clippy::print_stdout, unreachable_pub)]

mod calls;
mod gone;
mod node;
mod proxy;
mod rig;
mod stopped;
mod strangers;
