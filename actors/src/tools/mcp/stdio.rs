//! A server that is a process of the node, in a process group of its own.
//!
//! It ends when its connection is dropped, with all of its group. When the node dies, the end of its
//! standard input tells it to end; one that does not heed that stays.

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

use super::transport::LARGEST_MESSAGE;
use crate::environment::Env;
use crate::limits::{SHOWN_TEXT, one_line};

/// What every process knows: where programs are, where its user's files are, the language.
const VARIABLES: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];
/// What a process has to tidy up in after its input ended, and once more after TERM.
const GRACE: Duration = Duration::from_secs(2);
/// One read of what it logs.
const CHUNK: usize = 4 * 1024;

/// Starts the program with pipes to its input and output; what it logs goes into ours.
pub(super) fn start(
    server: &str,
    command: &str,
    args: &[String],
    env: &[String],
    variables: &Env,
) -> io::Result<StdioTransport> {
    let names = VARIABLES.into_iter().chain(env.iter().map(String::as_str));
    let mut child = Command::new(command)
        .args(args)
        .env_clear()
        .envs(names.filter_map(|name| Some((name, variables(name)?))))
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
    tokio::spawn(drain(server.to_owned(), log));
    let output = Lines { inner: output, length: 0 };
    Ok(StdioTransport { inner: AsyncRwTransport::new_client(output, input), process })
}

/// Reads what the server logs, so that it never waits for that.
async fn drain(server: String, mut log: ChildStderr) {
    let mut chunk = [0; CHUNK];
    while let Ok(length @ 1..) = log.read(&mut chunk).await {
        if tracing::enabled!(tracing::Level::DEBUG) {
            let text = one_line(&String::from_utf8_lossy(&chunk[..length]), SHOWN_TEXT);
            tracing::debug!(server, said = text, "an MCP server logs");
        }
    }
}

/// The transport over a process's pipes.
pub(super) struct StdioTransport {
    inner: AsyncRwTransport<RoleClient, Lines<ChildStdout>, ChildStdin>,
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

/// A process and its group, which end with this.
struct Process {
    child: Child,
    group: Option<Pid>,
}

impl Process {
    /// Its input has ended: waits for it, then TERM, then KILL to what is left of its group.
    async fn end(&mut self) {
        if timeout(GRACE, self.child.wait()).await.is_err() {
            self.signal(Signal::TERM);
            let _ = timeout(GRACE, self.child.wait()).await;
        }
        self.signal(Signal::KILL);
        self.group = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // A group of which nobody is left hears nothing.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// A reader that fails when a line gets too long, rather than keeping it.
struct Lines<R> {
    inner: R,
    /// Of the line that has not ended.
    length: usize,
}

impl<R: AsyncRead + Unpin> AsyncRead for Lines<R> {
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
        if self.length > LARGEST_MESSAGE {
            return Poll::Ready(Err(io::Error::other("a message is too large")));
        }
        Poll::Ready(Ok(()))
    }
}
