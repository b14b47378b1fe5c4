//! What the built-in tools of this node work with, and what operators should know about it.

use std::path::PathBuf;
use std::sync::Arc;

use abide_actors::clock::Clock;
use abide_actors::exec::{HiddenPaths, Launcher, Limits, ProtectedPorts, SandboxStatus, Shell};
use abide_actors::tools::BuiltinServices;
use abide_actors::web_fetch::Fetcher;
use abide_actors::workspace::Workspaces;

use crate::config::{Config, StoreUrl};
use crate::launcher;
use crate::start_error::StartError;

/// The directory of workspaces, unless one is configured.
const DEFAULT_WORKSPACES: &str = ".abide/workspaces";

/// The directory in that of the workspaces for the MCP servers of all nodes. No workspace's name begins
/// with a dot.
const MCP_DIRECTORY: &str = ".mcp";

/// The services of the built-in tools, and the notes about them.
pub(super) struct BuiltinTools {
    pub(super) services: BuiltinServices,
    /// Where MCP servers work. Nodes that share their storage share none of it.
    pub(super) mcp_directory: PathBuf,
    /// The notes that hold as long as the node runs.
    pub(super) notes: Vec<String>,
}

/// Prepares the services and logs what is missing; nothing here keeps the node from starting but a
/// broken HTTP client.
pub(super) fn prepare(
    config: &Config,
    is_shared: bool,
    clock: &Arc<dyn Clock>,
    protected: ProtectedPorts,
    hidden: HiddenPaths,
) -> Result<BuiltinTools, StartError> {
    let workspaces = Arc::new(workspaces(config, clock));
    let fetcher = Fetcher::new().map_err(StartError::broken)?;
    let mut lines = Vec::new();
    let launcher = launcher::own().unwrap_or_else(|| {
        lines.push(
            "commands: off: the program does not call abide::run_launcher_if_asked() first in main"
                .to_owned(),
        );
        Launcher::missing()
    });
    let shell = Shell::new(launcher, config.sandbox.into(), Limits::default());
    if let StoreUrl::Embedded(directory) = &config.store {
        hidden.add([directory]);
    }
    hidden.add(&config.store_key);
    hidden.add(&config.encrypt_key_file);
    let shell = shell.with_protected_ports(protected).with_hidden_paths(hidden);
    lines.extend(sandbox_note(shell.sandbox()));
    if is_shared && config.workspaces.is_none() {
        lines.push(format!(
            "workspaces: --workspaces is not given; {DEFAULT_WORKSPACES} is this node's own, and a \
             conversation that moves finds none of its files"
        ));
    }
    for note in &lines {
        tracing::warn!(note, "node is ready with a restriction");
    }
    Ok(BuiltinTools {
        services: BuiltinServices { workspaces, shell: Arc::new(shell), fetcher },
        mcp_directory: base_directory(config).join(MCP_DIRECTORY).join(config.node_name().as_str()),
        notes: lines,
    })
}

/// The workspaces that the configuration describes.
fn workspaces(config: &Config, clock: &Arc<dyn Clock>) -> Workspaces {
    Workspaces::new(base_directory(config), clock.clone())
        .with_permitted_roots(config.workspace_roots.clone())
}

fn base_directory(config: &Config) -> PathBuf {
    config.workspaces.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_WORKSPACES))
}

/// What the sandbox does not keep commands from; `None` when it is complete.
fn sandbox_note(status: &SandboxStatus) -> Option<String> {
    match status {
        SandboxStatus::On { gaps } if gaps.is_empty() => None,
        SandboxStatus::On { gaps } => {
            Some(format!("sandbox: this kernel does not keep commands from {}", gaps.join(", ")))
        }
        SandboxStatus::Off => Some("sandbox: off".to_owned()),
        SandboxStatus::Unavailable(reason) => Some(format!("sandbox: unavailable: {reason}")),
    }
}
