//! An MCP server that is a child process of the node, in a process group of its own.
//!
//! The process group is ended when the connection is dropped. If the node crashes, the end of its
//! standard input tells the server to end; a server that ignores it survives.

use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::transport::MAX_MESSAGE_BYTES;
use crate::environment::Env;
use crate::limits::{MAX_EXCERPT_BYTES, one_line};

/// Variables that every server inherits: where programs and the user's files are, and the language.
const INHERITED_VARIABLES: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];
/// How long a process may take to exit after the end of its input, and again after TERM.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// The size of one read of its log.
const LOG_CHUNK_BYTES: usize = 4 * 1024;

/// Starts the program with pipes to its input and output; its log goes into ours.
pub(super) fn start(
    server: &str,
    command: &str,
    args: &[String],
    env: &[String],
    read_env: &Env,
) -> io::Result<StdioTransport> {
    let names = INHERITED_VARIABLES.into_iter().chain(env.iter().map(String::as_str));
    let mut child = Command::new(command)
        .args(args)
        .env_clear()
        .envs(names.filter_map(|name| Some((name, read_env(name)?))))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let pipes = (child.stdout.take(), child.stdin.take(), child.stderr.take());
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let process = Process { child, group };
    let (Some(output), Some(input), Some(log)) = pipes else {
        return Err(io::Error::other("it has no pipes"));
    };
    tokio::spawn(drain_log(server.to_owned(), log));
    let output = BoundedLines { inner: output, length: 0 };
    Ok(StdioTransport { inner: AsyncRwTransport::new_client(output, input), process })
}

/// Reads the server's log, so that the server never blocks on writing it.
async fn drain_log(server: String, mut log: ChildStderr) {
    let mut chunk = [0; LOG_CHUNK_BYTES];
    while let Ok(length @ 1..) = log.read(&mut chunk).await {
        if tracing::enabled!(tracing::Level::DEBUG) {
            let text = one_line(&String::from_utf8_lossy(&chunk[..length]), MAX_EXCERPT_BYTES);
            tracing::debug!(server, content = text, "MCP server log");
        }
    }
}

/// The transport over a process's pipes.
pub(super) struct StdioTransport {
    inner: AsyncRwTransport<RoleClient, BoundedLines<ChildStdout>, ChildStdin>,
    process: Process,
}

impl Transport<RoleClient> for StdioTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleClient>>> + Send {
        self.inner.receive()
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        let closed = self.inner.close().await;
        self.process.end().await;
        closed
    }
}

/// A process and its group, which are killed when this is dropped.
struct Process {
    child: Child,
    group: Option<Pid>,
}

impl Process {
    /// Ends the process after its input was closed: waits for it, sends TERM, and then KILL to the
    /// rest of its group.
    async fn end(&mut self) {
        if timeout(EXIT_TIMEOUT, self.child.wait()).await.is_err() {
            self.signal(Signal::TERM);
            let _ = timeout(EXIT_TIMEOUT, self.child.wait()).await;
        }
        self.signal(Signal::KILL);
        self.group = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // An empty group is no error.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// A reader that fails when a line gets too long, instead of buffering it.
struct BoundedLines<R> {
    inner: R,
    /// The length of the line that has not ended.
    length: usize,
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedLines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        let read = &buffer.filled()[before..];
        self.length = match read.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => read.len() - at - 1,
            None => self.length + read.len(),
        };
        if self.length > MAX_MESSAGE_BYTES {
            return Poll::Ready(Err(io::Error::other("a message is too large")));
        }
        Poll::Ready(Ok(()))
    }
}
