//! The harness: real processes, the servers that they talk to, and what must be true of journals.
#![allow(clippy::unwrap_used, clippy::print_stderr)] // A harness fails by panicking, as tests do.

pub mod browser;
pub mod chance;
pub mod chaos;
pub mod client;
pub mod cluster;
pub mod collector;
pub mod frames;
pub mod history;
pub mod journal;
pub mod load;
pub mod model_server;
pub mod node;
pub mod page_server;
pub mod patience;
pub mod processes;
pub mod program;
pub mod promises;
pub mod proxy;
pub mod redis;
pub mod seen;
mod signal;
pub mod tool_server;
pub mod walk;
