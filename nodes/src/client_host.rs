//! What the commands that ask nodes need of this program: its definitions' rules, its command line.

use std::ffi::OsString;
use std::path::Path;

use abide_actors::agent::{self, LoadError, Parsed};
use abide_actors::tools::Extensions;
use abide_cli::{AgentFile, Client, ENDS_WITH_PARENT, Host};
use clap::CommandFactory;
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::config::Cli;
use crate::{demo, store_transfer};

/// Runs a command that asks nodes; returns its exit code.
pub fn run_client(client: Client) -> u8 {
    let host = Host {
        load_agents,
        export_store: store_transfer::export,
        import_store: store_transfer::import,
        command_line: Cli::command,
    };
    abide_cli::run(client, host) as u8
}

/// The arguments with the options of such a command after it, wherever they stood.
pub fn client_arguments(arguments: Vec<OsString>) -> Vec<OsString> {
    abide_cli::rotate(arguments)
}

/// Has this process end with the one that started it, if that is `abide dev`, however that ends.
pub fn end_with_parent_if_asked() {
    if std::env::var_os(ENDS_WITH_PARENT).is_some() {
        // Without it, the node outlives a command that is killed, and no more.
        let _ = set_parent_process_death_signal(Some(Signal::TERM));
    }
}

/// Reads definitions as a node does at its start.
fn load_agents(path: &Path) -> Result<Vec<AgentFile>, Vec<String>> {
    let extensions = demo::with_demo_tools(Extensions::new());
    let loaded = if path.is_dir() {
        agent::load_dir(path, &extensions)
    } else {
        agent::load_file(path, &extensions).map(|parsed| vec![parsed]).map_err(|error| vec![error])
    };
    let lines = |errors: Vec<LoadError>| -> Vec<String> {
        errors.iter().map(LoadError::to_string).collect()
    };
    let loaded = loaded.map_err(lines)?;
    Ok(loaded.into_iter().map(agent_file).collect())
}

fn agent_file(parsed: Parsed) -> AgentFile {
    let Parsed { definition, warnings } = parsed;
    AgentFile { name: definition.name.to_string(), source: definition.source.clone(), warnings }
}
