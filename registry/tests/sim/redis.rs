//! A model of Redis, which runs the product's own Lua scripts: servers with replicas that crash, fail
//! over, forget, run full and hang.

mod call;
mod commands;
mod compared;
mod compared_store;
mod group;
mod keyspace;
mod lua;
pub mod random_calls;
pub mod random_notices;
mod ranges;
mod server;
mod sorted_set;
pub mod wire;

pub use call::{Call, ScriptName};
pub use group::{Fault, Group, REPLICAS};
pub use server::{Patches, Server, Transaction};

/// The words of a command.
pub type Words = Vec<Vec<u8>>;

/// What a command results in: a value, or the line of an error.
pub type Answer = Result<::redis::Value, String>;

/// An error's line as the server sends it.
pub fn server_error(line: &str) -> ::redis::Value {
    let line = format!("-{}\r\n", line.replace(['\r', '\n'], " "));
    ::redis::parse_redis_value(line.as_bytes()).unwrap()
}

/// Bytes of the model as text, which all names in the store are.
pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
