//! A connection as ractor_cluster gets it: one that ends when the other side falls silent, or when
//! this side is told to let go.

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

/// Without a byte from the other side for this long the connection is over. Both sides send a ping
/// at least every 5 s.
const IDLE: Duration = Duration::from_secs(7);
/// Without the other side taking a byte for this long the connection is over: nothing that waits in
/// this process is of use any more.
const STALL: Duration = Duration::from_secs(5);
/// What is under way without having all been written for this long is a backlog.
const BACKLOG_MS: u64 = 1_000;

/// How a connection is doing; shared with those that use it.
pub(super) struct Keepalive {
    opened: Instant,
    /// Milliseconds after `opened`, and 1; 0 when all that was given is written.
    unwritten: AtomicU64,
    end: OnceLock<&'static str>,
}

impl Keepalive {
    pub(super) fn new() -> Arc<Self> {
        let (unwritten, end) = Default::default();
        Arc::new(Self { opened: Instant::now(), unwritten, end })
    }

    pub(super) fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Whether the other side takes so little that what is sent now would only wait here.
    pub(super) fn is_backlogged(&self) -> bool {
        let since = self.unwritten.load(Ordering::Relaxed);
        since > 0 && self.now_ms().saturating_sub(since) > BACKLOG_MS
    }

    /// Why the connection ended; the first to say so is right.
    pub(super) fn ended(&self, why: &'static str) {
        let _ = self.end.set(why);
    }

    pub(super) fn end(&self) -> &'static str {
        self.end.get().copied().unwrap_or("session")
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.age().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn writing(&self) {
        if self.unwritten.load(Ordering::Relaxed) == 0 {
            self.unwritten.store(self.now_ms(), Ordering::Relaxed);
        }
    }

    fn written(&self) {
        self.unwritten.store(0, Ordering::Relaxed);
    }
}

/// The connection itself. Dropping it closes it.
pub(super) struct Stream {
    tls: TlsStream<TcpStream>,
    label: String,
    pulse: Arc<Keepalive>,
    idle: Pin<Box<Sleep>>,
    /// Runs while a write waits.
    stall: Option<Pin<Box<Sleep>>>,
    close: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Stream {
    /// `close` ends it for the reader, which ends its session.
    pub(super) fn new(
        tls: TlsStream<TcpStream>,
        label: String,
        pulse: Arc<Keepalive>,
        close: CancellationToken,
    ) -> Self {
        let close = Box::pin(close.cancelled_owned());
        Self { tls, label, pulse, idle: Box::pin(sleep(IDLE)), stall: None, close }
    }

    /// The end of a write that waited too long.
    fn stalled<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(STALL)));
        ready!(stall.as_mut().poll(cx));
        self.pulse.ended("stalled");
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
                        self.idle.as_mut().reset(Instant::now() + IDLE);
                    }
                    Ok(()) => self.pulse.ended("closed"),
                    // No words of farewell: the connection is dropped, or its process is dead.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        self.pulse.ended("closed");
                    }
                    Err(_) => self.pulse.ended("broken"),
                }
                Poll::Ready(read)
            }
            Poll::Pending => {
                ready!(self.idle.as_mut().poll(cx));
                self.pulse.ended("idle");
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
        self.pulse.writing();
        match Pin::new(&mut self.tls).poll_write(cx, bytes) {
            Poll::Pending => self.stalled(cx),
            wrote => {
                self.stall = None;
                wrote
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.tls).poll_flush(cx) {
            Poll::Pending => self.stalled(cx),
            flushed => {
                self.stall = None;
                self.pulse.written();
                flushed
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.tls).poll_shutdown(cx) {
            Poll::Pending => self.stalled(cx),
            shut => shut,
        }
    }
}

impl ClusterBidiStream for Stream {
    fn split(self: Box<Self>) -> (BoxRead, BoxWrite) {
        let (read, write) = tokio::io::split(*self);
        (Box::new(read), Box::new(write))
    }

    /// Its session is known by this.
    fn peer_label(&self) -> Option<String> {
        Some(self.label.clone())
    }
}
