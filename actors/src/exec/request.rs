//! The request to run a program, from the node to the launcher and from there to its second stage.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::allowed_ports::AllowedPorts;
use super::{CommandOutput, Limits};

/// The request, sent as one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) program: Program,
    /// Its variables besides those that every program gets. A value may be a secret.
    pub(super) environment: BTreeMap<String, String>,
    pub(super) ports: AllowedPorts,
    /// Directories that nothing in the sandbox reads.
    pub(super) hidden_paths: Vec<PathBuf>,
    pub(super) sandboxed: bool,
    /// `None`: it may run for as long as the node wants.
    pub(super) timeout_ms: Option<u64>,
    pub(super) limits: Limits,
    /// The directory for temporary directories, in the node's request; the program's own temporary
    /// directory, in the launcher's.
    pub(super) temporary: PathBuf,
}

/// What to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Program {
    /// A command line for the shell. The launcher collects its output.
    CommandLine(String),
    /// A program that speaks to the node on the launcher's own standard input and output. Its
    /// standard error is passed to the node after the launcher's reply.
    Server { program: String, args: Vec<String> },
}

/// The launcher's reply to a command line, as a line of JSON when the command has ended: the result,
/// or the reason why it did not run.
pub(super) type Reply = Result<CommandOutput, String>;

/// The launcher's reply to a server, as a line of JSON when it has started or cannot start.
pub(super) type StartReply = Result<(), String>;
