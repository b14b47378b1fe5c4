//! An MCP server that is a program, with a launcher that ends it with the node.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::process::{ChildStdin, ChildStdout};

use super::transport::MAX_MESSAGE_BYTES;
use crate::exec::{LaunchError, RunningServer, Server, ServerProcess, Shell};
use crate::limits::{MAX_EXCERPT_BYTES, one_line};

/// The size of one read of its log.
const LOG_CHUNK_BYTES: usize = 4 * 1024;

/// Starts the program with pipes to its input and output; its log goes into ours.
pub(super) async fn start(
    name: &str,
    program: Server,
    shell: &Shell,
) -> Result<StdioTransport, LaunchError> {
    let RunningServer { input, output, log, process } = shell.serve(program).await?;
    tokio::spawn(drain_log(name.to_owned(), log));
    let output = BoundedLines { inner: output, length: 0 };
    let inner = AsyncRwTransport::new_client(output, input);
    Ok(StdioTransport { inner, process: Some(process) })
}

/// Reads the server's log, so that none of it is lost in between.
async fn drain_log(server: String, mut log: impl AsyncRead + Unpin) {
    let mut chunk = [0; LOG_CHUNK_BYTES];
    while let Ok(length @ 1..) = log.read(&mut chunk).await {
        if tracing::enabled!(tracing::Level::DEBUG) {
            let text = one_line(&String::from_utf8_lossy(&chunk[..length]), MAX_EXCERPT_BYTES);
            tracing::debug!(server, content = text, "MCP server log");
        }
    }
}

/// The transport over a program's pipes. The program is ended when this is dropped.
pub(super) struct StdioTransport {
    inner: AsyncRwTransport<RoleClient, BoundedLines<ChildStdout>, ChildStdin>,
    /// `None` when it was closed.
    process: Option<ServerProcess>,
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
        if let Some(process) = self.process.take() {
            process.end().await;
        }
        closed
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
