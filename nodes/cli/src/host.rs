//! What the program around these commands brings: they know nothing of its other parts.

use std::path::Path;
use std::pin::Pin;

use serde_json::Value;

/// The variable that asks a node to end with the process that started it.
pub const ENDS_WITH_PARENT: &str = "ABIDE_ENDS_WITH_PARENT";

/// A definition that was read from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentFile {
    pub name: String,
    /// The definition, as it is sent to a node.
    pub source: Value,
    pub warnings: Vec<String>,
}

/// What the program does in the runtime of a command: the last line for people, or an error.
pub type BoxedTask = Pin<Box<dyn Future<Output = Result<String, String>>>>;

/// The program's own part of some commands.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Reads and checks the definitions of a directory, or one file, as a node does. The errors have one
    /// line each.
    pub load_agents: fn(&Path) -> Result<Vec<AgentFile>, Vec<String>>,
    /// Writes the store of this URL to standard output as lines. Says what was done.
    pub export_store: fn(String) -> BoxedTask,
    /// Reads such lines from standard input into the store of this URL, with this durability if one is
    /// given. Says what was done.
    pub import_store: fn(String, Option<String>) -> BoxedTask,
    /// The whole command line, for completions and manual pages.
    pub command_line: fn() -> clap::Command,
}
