//! What the built-in tools of this node work with, and what operators are told of it.

use std::path::PathBuf;
use std::sync::Arc;

use abide_actors::clock::Clock;
use abide_actors::exec::{Launcher, Limits, SandboxStatus, Shell};
use abide_actors::tools::BuiltinServices;
use abide_actors::web_fetch::Fetcher;
use abide_actors::workspace::Workspaces;

use super::StartError;
use crate::config::Config;

/// Where workspaces are, unless it is said.
const WORKSPACES: &str = ".abide/workspaces";

/// The tools, and what is to be said of them.
pub(super) struct Tools {
    pub(super) kit: BuiltinServices,
    pub(super) notes: ReadinessNotes,
}

/// What `/readyz` says besides "ready".
#[derive(Clone)]
pub struct ReadinessNotes {
    /// What will not change while the node lives.
    lasting: Arc<[String]>,
    workspaces: Arc<Workspaces>,
}

impl ReadinessNotes {
    /// A line each.
    pub fn lines(&self) -> Vec<String> {
        let troubles = self.workspaces.storage_problems().into_iter();
        self.lasting.iter().cloned().chain(troubles).collect()
    }
}

pub(super) fn kit(
    config: &Config,
    is_shared: bool,
    clock: &Arc<dyn Clock>,
) -> Result<Tools, StartError> {
    let base = config.workspaces.clone().unwrap_or_else(|| PathBuf::from(WORKSPACES));
    let workspaces = Arc::new(Workspaces::new(base, clock.clone()));
    let shell = Shell::new(Launcher::this_program(), config.sandbox.into(), Limits::default());
    let fetcher = Fetcher::new().map_err(|error| StartError::Broken(error.to_string()))?;
    let mut lasting: Vec<String> = sandbox(shell.sandbox()).into_iter().collect();
    if is_shared && config.workspaces.is_none() {
        lasting.push(format!(
            "workspaces: --workspaces is not given; {WORKSPACES} is this node's own, and a \
             conversation that moves finds none of its files"
        ));
    }
    for line in &lasting {
        tracing::warn!("{line}");
    }
    let notes = ReadinessNotes { lasting: lasting.into(), workspaces: workspaces.clone() };
    Ok(Tools { kit: BuiltinServices { workspaces, shell: Arc::new(shell), fetcher }, notes })
}

/// What commands are not kept from here.
fn sandbox(standing: &SandboxStatus) -> Option<String> {
    match standing {
        SandboxStatus::On { gaps } if gaps.is_empty() => None,
        SandboxStatus::On { gaps } => {
            Some(format!("sandbox: this kernel does not keep commands from {}", gaps.join(", ")))
        }
        SandboxStatus::Off => Some("sandbox: off".to_owned()),
        SandboxStatus::Unavailable(why) => Some(format!("sandbox: unavailable: {why}")),
    }
}
