//! Runs commands so that nothing outlives its call.
//!
//! The node runs no command itself. For each it starts its own program once more as a launcher,
//! which watches the command, ends what came from it and ends last. A pipe between the two is the
//! leash: when the node drops the call, or dies however suddenly, the pipe ends, and the launcher
//! ends everything.
//!
//! Without the [sandbox](Sandbox) a command is as mighty as the node's user: it may kill the
//! launcher and so escape it, or read the node's environment. In the sandbox it can do neither.
//!
//! Not bounded: how much disk a command fills with many files, and, of what it started through
//! other programs (such as a job that it hands to cron or to Docker), anything at all.

mod confine;
mod descendants;
mod launch;
mod launcher;
mod limits;
pub(crate) mod output;
mod request;
mod sandbox;
mod watch;

pub use confine::confine;
pub use launch::launch;
pub use launcher::{CONFINE, LAUNCH, Launcher};
pub use limits::Limits;
pub use sandbox::{Sandbox, SandboxStatus};

use std::env;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use request::{Reply, Request};

/// Each takes two processes, three pipes and up to its `Limits` of memory; the machine has an end.
const COMMANDS_AT_ONCE: usize = 64;
/// What is kept of an output; a model reads it with every later step.
pub(crate) const LONGEST_OUTPUT: usize = 16_000;
/// Beyond its time a command has the grace, and the launcher ten seconds for what ends slowly;
/// on a machine under load all of it takes longer.
const ALLOWANCE: Duration = Duration::from_secs(30);
/// JSON makes at most six bytes of one.
const LONGEST_REPLY: u64 = 6 * LONGEST_OUTPUT as u64 + 4096;

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// For `/bin/bash -c`, or `/bin/sh -c` where there is no bash.
    pub text: String,
    /// Where it runs, its `HOME`, and in the sandbox where it may write. Resolved once, when the
    /// launcher starts there.
    pub directory: PathBuf,
    /// Whether it may use TCP; without the sandbox it may anyway.
    pub network: bool,
    pub timeout: Duration,
}

/// What a command came to; nothing that it started is left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandOutput {
    pub how: ExitStatus,
    /// Standard output and error in the order written, the beginning and the end of it, at most
    /// 16 kB; bytes that are not UTF-8 are replaced.
    pub output: String,
    /// Until it ended, what it left in the background included.
    pub duration_ms: u64,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// By itself, with this code; 128 and the signal's number if a signal ended it.
    Exited(i32),
    TimedOut,
    Flooded,
    TooManyProcesses,
    TooMuchMemory,
}

/// Why a command did not run, or nobody knows how it ended.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("{COMMANDS_AT_ONCE} commands run already")]
    Busy,
    #[error("the launcher cannot start in {directory}: {error}")]
    Start { directory: String, error: io::Error },
    #[error("the command cannot run: {0}")]
    Refused(String),
    #[error("the launcher ended without an answer")]
    Lost,
}

/// Runs the commands of a node.
#[derive(Clone, Debug)]
pub struct Shell {
    launcher: Launcher,
    limits: Limits,
    sandbox: SandboxStatus,
    permits: Arc<Semaphore>,
}

impl Shell {
    /// Asks the kernel once what it has for a sandbox.
    pub fn new(launcher: Launcher, sandbox: Sandbox, limits: Limits) -> Self {
        let sandbox = match sandbox {
            Sandbox::Off => SandboxStatus::Off,
            Sandbox::Auto => sandbox::probe(),
        };
        Self::with_standing(launcher, sandbox, limits)
    }

    /// The same where the sandbox is known to stand so.
    pub fn with_standing(launcher: Launcher, sandbox: SandboxStatus, limits: Limits) -> Self {
        let permits = Arc::new(Semaphore::new(COMMANDS_AT_ONCE));
        Self { launcher, limits, sandbox, permits }
    }

    /// Whether commands run in a sandbox.
    pub fn sandbox(&self) -> &SandboxStatus {
        &self.sandbox
    }

    /// Runs one command to its end; dropping the future returns at once and ends the command.
    ///
    /// Beyond the command's timeout it takes two seconds when processes ignore TERM, and at most
    /// thirty when they cannot be killed or the machine is overloaded. It waits as long as the
    /// timeout for one of 64 places; a place is free when the launcher has ended.
    pub async fn run(&self, command: Command) -> Result<CommandOutput, LaunchError> {
        let waiting = timeout(command.timeout, Arc::clone(&self.permits).acquire_owned());
        let Ok(Ok(permit)) = waiting.await else { return Err(LaunchError::Busy) };
        let request = self.request(&command)?;
        let mut child = self.launcher.start(&command.directory).map_err(|error| {
            let directory = command.directory.display().to_string();
            LaunchError::Start { directory, error }
        })?;
        let limit = command.timeout.saturating_add(ALLOWANCE);
        let leash = child.stdin.take();
        // A task of its own, so that the place is taken until the launcher has done its work.
        let answer = tokio::spawn(async move {
            let answer = timeout(limit, answer(child)).await;
            drop(permit);
            answer.unwrap_or(Err(LaunchError::Lost))
        });
        // Held until the answer is there.
        let mut leash = leash.ok_or(LaunchError::Lost)?;
        // One that does not read the request has ended or hangs, and then there is no answer.
        let _ = timeout(limit, leash.write_all(&request)).await;
        answer.await.unwrap_or(Err(LaunchError::Lost))
    }

    fn request(&self, command: &Command) -> Result<Vec<u8>, LaunchError> {
        let request = Request {
            command: command.text.clone(),
            network: command.network,
            sandboxed: matches!(self.sandbox, SandboxStatus::On { .. }),
            timeout_ms: u64::try_from(command.timeout.as_millis()).unwrap_or(u64::MAX),
            limits: self.limits.clone(),
            temporary: env::temp_dir(),
        };
        let mut line = serde_json::to_vec(&request)
            .map_err(|error| LaunchError::Refused(error.to_string()))?;
        line.push(b'\n');
        Ok(line)
    }
}

async fn answer(mut child: Child) -> Result<CommandOutput, LaunchError> {
    let mut reply = Vec::new();
    if let Some(output) = child.stdout.take() {
        // What cannot be read is no answer.
        let _ = output.take(LONGEST_REPLY).read_to_end(&mut reply).await;
    }
    let _ = child.wait().await;
    let reply: Reply = serde_json::from_slice(&reply).map_err(|_| LaunchError::Lost)?;
    reply.map_err(LaunchError::Refused)
}
