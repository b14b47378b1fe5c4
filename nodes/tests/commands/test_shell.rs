//! A shell whose launcher is the program under test, and a look at the processes that run.

use std::fs;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use abide_actors::exec::{
    Command, CommandOutput, ExitStatus, LaunchError, Launcher, Limits, Sandbox, Shell,
};
use abide_conversation::permission::Network;
use tempfile::TempDir;

/// Longer than anything here takes, also on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A shell and its workspace, which is removed with it.
pub(crate) struct TestShell {
    pub(crate) inner: Shell,
    pub(crate) workspace: TempDir,
}

impl TestShell {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default())
    }

    pub(crate) fn with(limits: Limits) -> Self {
        Self::around(Shell::new(launcher(), Sandbox::Auto, limits))
    }

    pub(crate) fn around(inner: Shell) -> Self {
        Self { inner, workspace: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn command(&self, text: &str) -> Command {
        Command {
            text: text.to_owned(),
            directory: self.workspace.path().to_owned(),
            network: Network::None,
            timeout: DEADLINE,
        }
    }

    pub(crate) async fn run(&self, text: &str) -> CommandOutput {
        self.inner.run(self.command(text)).await.unwrap()
    }

    /// The output of a command that must succeed.
    pub(crate) async fn output(&self, text: &str) -> String {
        let ended = self.run(text).await;
        assert_eq!(ended.status, ExitStatus::Exited(0), "{}", ended.output);
        ended.output
    }

    pub(crate) async fn run_for(
        &self,
        timeout: Duration,
        text: &str,
    ) -> Result<CommandOutput, LaunchError> {
        self.inner.run(Command { timeout, ..self.command(text) }).await
    }
}

pub(crate) fn launcher() -> Launcher {
    Launcher::of(env!("CARGO_BIN_EXE_abide"))
}

/// A number of seconds that no other test sleeps, by which its processes are found.
pub(crate) fn unique_seconds() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("9999.{}{:03}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The number of `sleep` processes with this argument; zombies have no arguments.
pub(crate) fn sleeping(seconds: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let arguments = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let sleeps = arguments.filter(|line| {
        let line = String::from_utf8_lossy(line);
        line.starts_with("sleep\0") && line.contains(seconds)
    });
    sleeps.count()
}

/// Returns when the condition holds; panics if it does not hold in time.
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "timed out waiting for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
