//! A connection as ractor_cluster sees it. It ends when the other side falls silent, or when this
//! side closes it.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ractor_cluster::{BoxRead, BoxWrite, ClusterBidiStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::TlsStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::handshake::ACKNOWLEDGEMENT_TIMEOUT;

/// The connection ends if the other side sends no byte for this long. Both sides send a ping at
/// least every 5 s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(7);
/// The connection ends if the other side takes no byte for this long, as it does if none is
/// acknowledged: a sender cannot tell one from the other for sure.
const STALL_TIMEOUT: Duration = ACKNOWLEDGEMENT_TIMEOUT;
/// Bytes that have waited this long to be written are a backlog.
const BACKLOG_MS: u64 = 1_000;

/// The condition of a connection, shared with its users.
pub(super) struct Keepalive {
    opened: Instant,
    /// Since when bytes wait to be written, in milliseconds after `opened` plus 1; 0 if none wait.
    unwritten_since: AtomicU64,
    end_cause: OnceLock<&'static str>,
}

impl Keepalive {
    pub(super) fn new() -> Arc<Self> {
        let (unwritten_since, end_cause) = (AtomicU64::new(0), OnceLock::new());
        Arc::new(Self { opened: Instant::now(), unwritten_since, end_cause })
    }

    pub(super) fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Whether the other side takes bytes so slowly that a new call would only wait here.
    pub(super) fn is_backlogged(&self) -> bool {
        let since = self.unwritten_since.load(Ordering::Relaxed);
        since > 0 && self.now_ms().saturating_sub(since) > BACKLOG_MS
    }

    /// Records why the connection ended; the first cause counts.
    pub(super) fn set_end_cause(&self, cause: &'static str) {
        let _ = self.end_cause.set(cause);
    }

    pub(super) fn end_cause(&self) -> &'static str {
        self.end_cause.get().copied().unwrap_or("session")
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.age().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn begin_write(&self) {
        if self.unwritten_since.load(Ordering::Relaxed) == 0 {
            self.unwritten_since.store(self.now_ms(), Ordering::Relaxed);
        }
    }

    fn finish_write(&self) {
        self.unwritten_since.store(0, Ordering::Relaxed);
    }
}

/// The stream of a connection. Dropping it closes the connection.
pub(super) struct Stream {
    tls: TlsStream<TcpStream>,
    label: String,
    keepalive: Arc<Keepalive>,
    idle: Pin<Box<Sleep>>,
    /// Set while a write waits.
    stall: Option<Pin<Box<Sleep>>>,
    close: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Stream {
    /// Cancelling `close` ends the stream for its reader, which ends the session.
    pub(super) fn new(
        tls: TlsStream<TcpStream>,
        label: String,
        keepalive: Arc<Keepalive>,
        close: CancellationToken,
    ) -> Self {
        let close = Box::pin(close.cancelled_owned());
        Self { tls, label, keepalive, idle: Box::pin(sleep(IDLE_TIMEOUT)), stall: None, close }
    }

    /// Fails a write that has waited too long.
    fn poll_stall<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(STALL_TIMEOUT)));
        ready!(stall.as_mut().poll(cx));
        self.keepalive.set_end_cause("stalled");
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.close.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        match Pin::new(&mut self.tls).poll_read(cx, buffer) {
            Poll::Ready(read) => {
                match &read {
                    Ok(()) if buffer.filled().len() > before => {
                        self.idle.as_mut().reset(Instant::now() + IDLE_TIMEOUT);
                    }
                    Ok(()) => self.keepalive.set_end_cause("closed"),
                    // The peer dropped the connection without a TLS close, or its process is dead.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        self.keepalive.set_end_cause("closed");
                    }
                    Err(_) if self.keepalive.is_backlogged() => {
                        self.keepalive.set_end_cause("stalled");
                    }
                    Err(_) => self.keepalive.set_end_cause("broken"),
                }
                Poll::Ready(read)
            }
            Poll::Pending => {
                ready!(self.idle.as_mut().poll(cx));
                self.keepalive.set_end_cause("idle");
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.keepalive.begin_write();
        match Pin::new(&mut self.tls).poll_write(cx, bytes) {
            Poll::Pending => self.poll_stall(cx),
            wrote => {
                self.stall = None;
                wrote
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.tls).poll_flush(cx) {
            Poll::Pending => self.poll_stall(cx),
            flushed => {
                self.stall = None;
                self.keepalive.finish_write();
                flushed
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.tls).poll_shutdown(cx) {
            Poll::Pending => self.poll_stall(cx),
            shut => shut,
        }
    }
}

impl ClusterBidiStream for Stream {
    fn split(self: Box<Self>) -> (BoxRead, BoxWrite) {
        let (read, write) = tokio::io::split(*self);
        (Box::new(read), Box::new(write))
    }

    /// The session is identified by this label.
    fn peer_label(&self) -> Option<String> {
        Some(self.label.clone())
    }
}
