//! The request to run a command, from the node to the launcher and from there to its second stage.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::allowed_ports::AllowedPorts;
use super::{CommandOutput, Limits};

/// The request, sent as one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) command: String,
    pub(super) ports: AllowedPorts,
    pub(super) sandboxed: bool,
    pub(super) timeout_ms: u64,
    pub(super) limits: Limits,
    /// The directory for temporary directories, in the node's request; the command's own temporary
    /// directory, in the launcher's.
    pub(super) temporary: PathBuf,
}

/// The launcher's reply, in JSON: the result, or the reason why the command did not run.
pub(super) type Reply = Result<CommandOutput, String>;
