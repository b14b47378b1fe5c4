//! `dev`: a node to develop with, and the agents of a directory as they change.

mod node;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use tokio::signal::unix::{SignalKind, signal};

use super::agents;
use crate::command::setup::DevCommand;
use crate::error::CliError;
use crate::host::Host;
use crate::printer::Tone;
use crate::session::Session;

use node::DevNode;

const WATCH_INTERVAL: Duration = Duration::from_millis(300);

/// The files of a directory as they were: a change of one is a change of the map.
type Files = BTreeMap<PathBuf, (Option<SystemTime>, u64)>;

pub(super) async fn run(session: &Session, given: &DevCommand, host: Host) -> Result<(), CliError> {
    let mut watch =
        Watch { directory: given.agents.clone(), host, seen: Files::new(), names: BTreeSet::new() };
    // Mistakes are told before anything is started.
    watch.check()?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut node = DevNode::start(given).await?;
    let on_node = node.session(session)?;
    let console = format!("http://{}/console/", node.public);
    let outcome = async {
        watch.apply_changes(&on_node).await?;
        session.printer.line(&format!("node     http://{}", node.public))?;
        session.printer.line(&format!("admin    http://{}", node.admin))?;
        session.printer.toned_line(&format!("console  {console}"), Tone::Bold)
    };
    if let Err(error) = outcome.await {
        node.stop(None).await;
        return Err(error);
    }
    if !given.no_open && std::io::stdout().is_terminal() {
        open(&console);
    }
    let ended = loop {
        tokio::select! {
            () = tokio::time::sleep(WATCH_INTERVAL) => match watch.apply_changes(&on_node).await {
                Ok(()) => {}
                // The next change of a file may mend it.
                Err(CliError::Closed) => break Ok(()),
                Err(error) => session.printer.note(&error.to_string()),
            },
            status = node.ended() => {
                return Err(CliError::Failed(format!("the node ended: {status}")));
            }
            _ = interrupt.recv() => break Ok(()),
            _ = terminate.recv() => break Ok(()),
        }
    };
    session.printer.note("stopping the node; ^C again kills it");
    node.stop(Some(&mut interrupt)).await;
    ended
}

/// The definitions of a directory, as they were applied.
struct Watch {
    directory: Option<PathBuf>,
    host: Host,
    seen: Files,
    names: BTreeSet<String>,
}

impl Watch {
    fn check(&self) -> Result<(), CliError> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let loaded = (self.host.load_agents)(directory);
        loaded.map(|_| ()).map_err(|mistakes| CliError::Usage(mistakes.join("\n")))
    }

    /// Applies the directory if a file of it is new, changed or gone.
    async fn apply_changes(&mut self, session: &Session) -> Result<(), CliError> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let files = files(directory);
        if files == self.seen {
            return Ok(());
        }
        self.seen = files;
        let loaded = (self.host.load_agents)(directory);
        let loaded = loaded.map_err(|mistakes| CliError::Usage(mistakes.join("\n")))?;
        let names: BTreeSet<String> = loaded.iter().map(|file| file.name.clone()).collect();
        for file in &loaded {
            let change = agents::apply(session, file, false).await?;
            if change["change"] != "unchanged" || !self.names.contains(&file.name) {
                agents::print_change(session, &change)?;
            }
        }
        for gone in self.names.difference(&names) {
            session.printer.line(&format!("no file   {gone}: abide agents rm {gone}"))?;
        }
        self.names = names;
        Ok(())
    }
}

fn files(directory: &Path) -> Files {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let file = |entry: fs::DirEntry| {
        let metadata = entry.metadata().ok()?;
        Some((entry.path(), (metadata.modified().ok(), metadata.len())))
    };
    entries.filter_map(file).collect()
}

/// Shows a page in the user's browser, if there is one.
fn open(url: &str) {
    let mut command = Command::new("xdg-open");
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // The address has been printed.
    let _ = command.spawn();
}
