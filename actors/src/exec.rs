//! Runs commands and servers in such a way that no process outlives its call, or its node.
//!
//! The node runs no program itself. For each it starts its own program again as a launcher, which
//! watches the program, ends all processes that came from it, and exits last. A socket between node
//! and launcher is the leash: when the node drops the call, or dies, however suddenly, the socket
//! closes and the launcher ends everything.
//!
//! Without the [sandbox](Sandbox) a program has all rights of the node's user: it may kill the
//! launcher and so escape, or read the store. In the sandbox it can do neither.
//!
//! Not limited: the disk space that a program fills with many files, and anything that it starts
//! through other programs, such as a job for cron or Docker.

mod allowed_ports;
mod confine;
mod descendants;
mod handover;
mod hidden_paths;
mod launcher_process;
mod limits;
pub(crate) mod output;
mod readable;
mod request;
mod sandbox;
mod server;
mod spawn_launcher;
mod tcp_detours;
mod watch;

pub use allowed_ports::ProtectedPorts;
pub use confine::confine;
pub use hidden_paths::HiddenPaths;
pub use launcher_process::launch;
pub use limits::Limits;
pub use sandbox::{Sandbox, SandboxStatus};
pub use server::{RunningServer, Server, ServerProcess};
pub use spawn_launcher::{CONFINE_SUBCOMMAND, LAUNCH_SUBCOMMAND, Launcher, requested_stage};

use std::collections::BTreeMap;
use std::env;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::OwnedReadHalf;
use tokio::process::Child;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use abide_conversation::permission::Network;
use allowed_ports::AllowedPorts;
use request::{Program, Reply, Request};

/// Each command takes two processes, a pipe, two sockets and up to its `Limits` of memory.
const MAX_CONCURRENT_COMMANDS: usize = 64;
/// The output is cut to this length, since a model reads it with every later step.
pub(crate) const MAX_OUTPUT_BYTES: usize = 16_000;
/// Time beyond the command's timeout: for its own grace period, for the launcher's ten seconds to
/// kill what ends slowly, and for a machine under load.
const LAUNCHER_ALLOWANCE: Duration = Duration::from_secs(30);
/// JSON escapes one byte as at most six.
const MAX_REPLY_BYTES: u64 = 6 * MAX_OUTPUT_BYTES as u64 + 4096;

/// A command to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The command line for `/bin/bash -c`, or `/bin/sh -c` where there is no bash.
    pub text: String,
    /// Its working directory and `HOME`, and the only directory that it may write to in the
    /// sandbox. Resolved once, when the launcher starts there.
    pub directory: PathBuf,
    /// Where it may connect to by TCP; without the sandbox it may everywhere, and with a list of ports
    /// it does not run.
    pub network: Network,
    pub timeout: Duration,
}

/// How a command ended, with its output; no process that it started is left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandOutput {
    #[serde(rename = "how")]
    pub status: ExitStatus,
    /// Standard output and error in the order written: at most 16 kB from the beginning and the
    /// end. Bytes that are not UTF-8 are replaced.
    pub output: String,
    /// The time until all its processes had ended, including background ones.
    pub duration_ms: u64,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// The command exited with this code; 128 plus the signal's number if a signal ended it.
    Exited(i32),
    TimedOut,
    Flooded,
    TooManyProcesses,
    TooMuchMemory,
}

/// The command did not run, or it is unknown how it ended.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("{MAX_CONCURRENT_COMMANDS} commands are already running")]
    Busy,
    #[error("the launcher cannot start in {directory}: {error}")]
    Start { directory: String, error: io::Error },
    #[error("the command cannot run: {0}")]
    Refused(String),
    #[error(
        "network names ports, and only a sandbox on a kernel with Landlock for TCP (6.7) keeps a \
         program to them"
    )]
    Ports,
    #[error("the launcher exited without a reply")]
    Lost,
}

/// Runs the commands and the servers of a node.
#[derive(Clone, Debug)]
pub struct Shell {
    launcher: Launcher,
    limits: Limits,
    sandbox: SandboxStatus,
    permits: Arc<Semaphore>,
    protected: ProtectedPorts,
    hidden: HiddenPaths,
}

impl Shell {
    /// Probes the kernel once for what its sandbox supports.
    pub fn new(launcher: Launcher, sandbox: Sandbox, limits: Limits) -> Self {
        let sandbox = match sandbox {
            Sandbox::Off => SandboxStatus::Off,
            Sandbox::Auto => sandbox::probe(),
        };
        Self::with_sandbox_status(launcher, sandbox, limits)
    }

    /// Takes the sandbox's status as given, without a probe.
    pub fn with_sandbox_status(launcher: Launcher, sandbox: SandboxStatus, limits: Limits) -> Self {
        let permits = Arc::new(Semaphore::new(MAX_CONCURRENT_COMMANDS));
        Self {
            launcher,
            limits,
            sandbox,
            permits,
            protected: ProtectedPorts::default(),
            hidden: HiddenPaths::default(),
        }
    }

    /// Keeps programs from these ports.
    #[must_use]
    pub fn with_protected_ports(self, protected: ProtectedPorts) -> Self {
        Self { protected, ..self }
    }

    /// Keeps programs in the sandbox from reading what is there, except for a program's own directory.
    #[must_use]
    pub fn with_hidden_paths(self, hidden: HiddenPaths) -> Self {
        Self { hidden, ..self }
    }

    /// The status of the sandbox that commands run in.
    pub fn sandbox(&self) -> &SandboxStatus {
        &self.sandbox
    }

    /// Runs one command to its end. Dropping the future returns at once and ends the command.
    ///
    /// It takes two seconds longer than the command's timeout if processes ignore TERM, and at most
    /// thirty if they cannot be killed or the machine is overloaded. It waits at most the timeout
    /// for one of 64 slots; a slot is freed when the launcher has exited.
    pub async fn run(&self, command: Command) -> Result<CommandOutput, LaunchError> {
        self.check(&command.network)?;
        let waiting = timeout(command.timeout, Arc::clone(&self.permits).acquire_owned());
        let Ok(Ok(permit)) = waiting.await else { return Err(LaunchError::Busy) };
        let program = Program::CommandLine(command.text);
        let (environment, limits) = (BTreeMap::new(), self.limits.clone());
        let time = Some(command.timeout);
        let request = self.request(program, environment, &command.network, time, limits)?;
        let launcher = self.launcher.start(&command.directory, Stdio::null).map_err(|error| {
            let directory = command.directory.display().to_string();
            LaunchError::Start { directory, error }
        })?;
        let limit = command.timeout.saturating_add(LAUNCHER_ALLOWANCE);
        // The leash is held until the reply has arrived.
        let (replies, mut leash) = launcher.control.into_split();
        // A task of its own, so that the slot is taken until the launcher has exited.
        let answer = tokio::spawn(async move {
            let answer = timeout(limit, read_reply(launcher.child, replies)).await;
            drop(permit);
            answer.unwrap_or(Err(LaunchError::Lost))
        });
        // A launcher that does not read the request has exited or hangs; then there is no reply.
        let _ = timeout(limit, leash.write_all(&request)).await;
        answer.await.unwrap_or(Err(LaunchError::Lost))
    }

    /// Refuses a list of ports where nothing can enforce it.
    fn check(&self, network: &Network) -> Result<(), LaunchError> {
        let is_list = matches!(network, Network::Ports(_));
        if is_list && !self.sandbox.limits_tcp() { Err(LaunchError::Ports) } else { Ok(()) }
    }

    fn request(
        &self,
        program: Program,
        environment: BTreeMap<String, String>,
        network: &Network,
        timeout: Option<Duration>,
        limits: Limits,
    ) -> Result<Vec<u8>, LaunchError> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let request = Request {
            program,
            environment,
            ports: AllowedPorts::new(network, &self.protected),
            hidden_paths: self.hidden.get(),
            sandboxed: matches!(self.sandbox, SandboxStatus::On { .. }),
            timeout_ms: timeout.map(millis),
            limits,
            temporary: env::temp_dir(),
        };
        let mut line = serde_json::to_vec(&request)
            .map_err(|error| LaunchError::Refused(error.to_string()))?;
        line.push(b'\n');
        Ok(line)
    }
}

async fn read_reply(
    mut child: Child,
    replies: OwnedReadHalf,
) -> Result<CommandOutput, LaunchError> {
    let mut reply = Vec::new();
    // An unreadable reply is treated as a missing one.
    let _ = replies.take(MAX_REPLY_BYTES).read_to_end(&mut reply).await;
    let _ = child.wait().await;
    let reply: Reply = serde_json::from_slice(&reply).map_err(|_| LaunchError::Lost)?;
    reply.map_err(LaunchError::Refused)
}
