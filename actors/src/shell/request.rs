//! What the node says to its launcher, and the launcher to its second stage.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{CommandOutput, Limits};

/// One line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) command: String,
    pub(super) network: bool,
    pub(super) sandboxed: bool,
    pub(super) timeout_ms: u64,
    pub(super) limits: Limits,
    /// From the node, where temporary directories are; to the second stage, the command's own.
    pub(super) temporary: PathBuf,
}

/// JSON as well; or why the command did not run.
pub(super) type Reply = Result<CommandOutput, String>;
