//! Turns hyper's own answers to what is no HTTP, which have no body, into problem documents.
//!
//! Hyper answers a request that it cannot parse by itself: no handler sees it. Such an answer is what
//! hyper writes while no request is being answered.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::http::StatusCode;
use bytes::{Buf, Bytes};
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::problem::Problem;

/// What a connection writes at the moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<AtomicU8>);

/// Everything is flushed, and no request is being answered.
const IDLE: u8 = 0;
/// A handler has a request, or its response is not yet at its end.
const ANSWERING: u8 = 1;
/// The response is at its end, but some of it may be buffered.
const ANSWERED: u8 = 2;

impl Progress {
    /// A request goes to its handler.
    pub(super) fn begin(&self) {
        self.0.store(ANSWERING, Ordering::Relaxed);
    }

    fn end(&self) {
        self.0.store(ANSWERED, Ordering::Relaxed);
    }

    fn flushed(&self) {
        let _ = self.0.compare_exchange(ANSWERED, IDLE, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn is_idle(&self) -> bool {
        self.0.load(Ordering::Relaxed) == IDLE
    }
}

/// The body of a response, which tells when it is at its end.
pub(super) struct TrackedBody {
    body: Body,
    progress: Progress,
}

impl TrackedBody {
    pub(super) fn new(body: Body, progress: Progress) -> Self {
        Self { body, progress }
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        self.progress.end();
    }
}

impl hyper::body::Body for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection whose own refusals have a body.
pub(super) struct Refusing<T> {
    inner: T,
    progress: Progress,
    /// What is left to be written in place of hyper's answer.
    refusal: Option<Bytes>,
}

impl<T> Refusing<T> {
    pub(super) fn new(inner: T, progress: Progress) -> Self {
        Self { inner, progress, refusal: None }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Refusing<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Refusing<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.refusal.is_none() && this.progress.is_idle() {
            this.refusal = refusal(bytes);
        }
        let Some(refusal) = &mut this.refusal else {
            return Pin::new(&mut this.inner).poll_write(cx, bytes);
        };
        while refusal.has_remaining() {
            let written = ready!(Pin::new(&mut this.inner).poll_write(cx, refusal))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            refusal.advance(written);
        }
        // Hyper closes the connection after its answer: nothing follows.
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_flush(cx))?;
        // Hyper flushes only when it has written all that it had.
        self.progress.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.refusal.is_none() && !self.progress.is_idle() {
            return Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        }
        let first = slices.iter().find(|slice| !slice.is_empty());
        self.poll_write(cx, first.map_or(&[], |slice| slice))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

/// The answer in place of hyper's; `None` if these bytes are not one of its refusals.
fn refusal(bytes: &[u8]) -> Option<Bytes> {
    let status = bytes.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    let status = StatusCode::from_bytes(status).ok().filter(StatusCode::is_client_error)?;
    let (status, body) = Problem::not_http(status).into_text();
    let head = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: application/problem+json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    Some((head + &body).into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_is_replaced() {
        let text =
            |bytes: &[u8]| refusal(bytes).map(|new| String::from_utf8(new.to_vec()).unwrap());
        for (status, expected) in [("400", 400), ("414", 431), ("431", 431)] {
            let old = format!("HTTP/1.1 {status} So\r\ncontent-length: 0\r\n\r\n");
            let new = text(old.as_bytes()).unwrap();
            assert!(new.starts_with(&format!("HTTP/1.1 {expected} ")), "{new}");
        }
        for other in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 4", ""]
        {
            assert_eq!(text(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_connection_is_idle_again_once_an_answer_is_flushed() {
        let progress = Progress::default();
        progress.begin();
        progress.flushed();
        assert!(!progress.is_idle(), "a part of the answer was flushed");
        drop(TrackedBody::new(Body::empty(), progress.clone()));
        assert!(!progress.is_idle(), "the end may be buffered");
        progress.flushed();
        assert!(progress.is_idle());
    }
}
