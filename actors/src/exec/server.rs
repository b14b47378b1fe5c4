//! Programs that stay, such as MCP servers: they speak to the node on their standard input and output.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use abide_conversation::permission::Network;

use super::request::{Program, StartReply};
use super::{LaunchError, Limits, MAX_REPLY_BYTES, Shell};

/// How long a server may take to exit after the end of its input.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long its launcher may take to end it afterwards, by TERM and 2 s later by KILL.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// A server to start.
#[derive(Clone, PartialEq, Eq)]
pub struct Server {
    /// A path, or a name that is looked for in `PATH`.
    pub program: String,
    pub args: Vec<String>,
    /// Its variables besides those that every program gets. They replace all of these but `TMPDIR`.
    pub environment: BTreeMap<String, String>,
    /// Its working directory and `HOME`, and the only directory that it may write to in the sandbox. It
    /// is made if it does not exist.
    pub directory: PathBuf,
    /// Where it may connect to by TCP; without the sandbox it may everywhere, and with a list of ports
    /// it does not run.
    pub network: Network,
}

/// A running server, with the pipes to it.
pub struct RunningServer {
    pub input: ChildStdin,
    pub output: ChildStdout,
    /// Its standard error.
    pub log: BufReader<OwnedReadHalf>,
    pub process: ServerProcess,
}

/// A server and all processes that it started. They are ended when this is dropped, or when the node
/// dies.
pub struct ServerProcess {
    launcher: Child,
    /// The launcher ends everything when this closes.
    leash: OwnedWriteHalf,
}

impl ServerProcess {
    /// Ends the server after its input was closed, and returns soon even if that does not help.
    pub async fn end(self) {
        let Self { mut launcher, leash } = self;
        if timeout(EXIT_TIMEOUT, launcher.wait()).await.is_err() {
            drop(leash);
            let _ = timeout(END_TIMEOUT, launcher.wait()).await;
        }
    }
}

impl Shell {
    /// Starts a server. It has the limits of a command, but may run and use the processor for as long as
    /// it wants. Dropping the future ends it.
    pub async fn serve(&self, server: Server) -> Result<RunningServer, LaunchError> {
        self.check(&server.network)?;
        let Server { program, args, environment, directory, network } = server;
        let failed = |error: io::Error| {
            let directory = directory.display().to_string();
            LaunchError::Start { directory, error }
        };
        let wanted = directory.clone();
        // Only this user may look into it: a server may keep secrets there.
        let create = move || DirBuilder::new().recursive(true).mode(0o700).create(wanted);
        spawn_blocking(create).await.map_err(io::Error::other).flatten().map_err(failed)?;
        let limits = Limits { cpu_seconds: u64::MAX, ..self.limits.clone() };
        let program = Program::Server { program, args };
        let request = self.request(program, environment, &network, None, limits)?;
        let mut launcher = self.launcher.start(&directory, Stdio::piped).map_err(failed)?;
        let pipes = (launcher.child.stdin.take(), launcher.child.stdout.take());
        let (Some(input), Some(output)) = pipes else { return Err(LaunchError::Lost) };
        let (replies, mut leash) = launcher.control.into_split();
        // A launcher that does not read the request has exited; then there is no reply.
        let _ = leash.write_all(&request).await;
        let mut log = BufReader::new(replies);
        let mut line = Vec::new();
        let read = (&mut log).take(MAX_REPLY_BYTES).read_until(b'\n', &mut line).await;
        let started = read.ok().and_then(|_| serde_json::from_slice::<StartReply>(&line).ok());
        started.ok_or(LaunchError::Lost)?.map_err(LaunchError::Refused)?;
        let process = ServerProcess { launcher: launcher.child, leash };
        Ok(RunningServer { input, output, log, process })
    }
}
