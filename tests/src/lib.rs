//! The test harness: real processes, the servers that they talk to, and checks of what they
//! recorded.
#![allow(clippy::unwrap_used, clippy::print_stderr)] // The harness fails by panicking, as tests do.

pub mod book_blocks;
pub mod browser;
pub mod browser_page_server;
pub mod chaos;
pub mod checks;
pub mod client;
pub mod cluster;
pub mod collector;
pub mod deadline;
pub mod disk;
pub mod fake_clock;
pub mod frames;
pub mod history;
pub mod journal;
pub mod kill_matrix;
pub mod load;
pub mod model_server;
pub mod node;
pub mod processes;
pub mod program;
pub mod protocol_stream;
pub mod proxy;
pub mod random;
pub mod redis;
pub mod request_log;
pub mod signal;
pub mod tool_server;
