//! The permissions of an agent, and where its conversations work.

use std::collections::BTreeSet;
use std::path::PathBuf;

use abide_conversation::permission::{Network, PermissionPhase};

/// What an agent may do by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    pub phase: PermissionPhase,
    /// `None`: all.
    pub allowed_tools: Option<BTreeSet<String>>,
    pub disallowed_tools: BTreeSet<String>,
    /// Hosts that `web_fetch` may reach although it would otherwise refuse them.
    pub allowed_hosts: BTreeSet<String>,
    /// Where commands may connect to.
    pub network: Network,
}

/// Where an agent's conversations work, if not in a directory of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceRoot {
    pub root: PathBuf,
    /// Whether all of them work in the one directory.
    pub shared: bool,
}
