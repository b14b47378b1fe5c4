//! A shell with the program under test as its launcher, and a look at what runs.

use std::fs;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use abide_actors::exec::{
    Command, CommandOutput, ExitStatus, LaunchError, Launcher, Limits, Sandbox, Shell,
};
use tempfile::TempDir;

/// Longer than anything here takes; a busy machine is slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A shell and a workspace that is gone with it.
pub(crate) struct Rig {
    pub(crate) shell: Shell,
    pub(crate) workspace: TempDir,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default())
    }

    pub(crate) fn with(limits: Limits) -> Self {
        Self::of(Shell::new(launcher(), Sandbox::Auto, limits))
    }

    pub(crate) fn of(shell: Shell) -> Self {
        Self { shell, workspace: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn command(&self, text: &str) -> Command {
        Command {
            text: text.to_owned(),
            directory: self.workspace.path().to_owned(),
            network: false,
            timeout: PATIENCE,
        }
    }

    pub(crate) async fn run(&self, text: &str) -> CommandOutput {
        self.shell.run(self.command(text)).await.unwrap()
    }

    /// What a command that ends well says.
    pub(crate) async fn output(&self, text: &str) -> String {
        let ended = self.run(text).await;
        assert_eq!(ended.how, ExitStatus::Exited(0), "{}", ended.output);
        ended.output
    }

    pub(crate) async fn run_for(
        &self,
        timeout: Duration,
        text: &str,
    ) -> Result<CommandOutput, LaunchError> {
        self.shell.run(Command { timeout, ..self.command(text) }).await
    }
}

pub(crate) fn launcher() -> Launcher {
    Launcher::of(env!("CARGO_BIN_EXE_abide"))
}

/// A number of seconds that no other test sleeps, and by which a process is found.
pub(crate) fn long() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("9999.{}{:03}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// How many processes have the words among their arguments; one that became a zombie has none.
pub(crate) fn alive(words: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let arguments = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let sleeps = arguments.filter(|line| {
        let line = String::from_utf8_lossy(line);
        line.starts_with("sleep\0") && line.contains(words)
    });
    sleeps.count()
}

/// Returns when it is so; panics if it does not become so.
pub(crate) async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
