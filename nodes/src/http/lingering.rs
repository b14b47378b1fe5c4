//! Large bodies that are refused before they were read.
//!
//! A connection that is closed while bytes of it wait to be read is reset, and the reset may reach the
//! client before the response that says why. So what a handler leaves is read on for a moment.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::Request;
use futures::{Stream, StreamExt};
use tokio::runtime::Handle;

/// How long a client may take to read the response while it sends on.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// How much is read in that time.
const MAX_LINGER_BYTES: usize = 64 << 20;

/// The request, whose body is read on for a moment if its handler drops it.
pub(super) fn lingering(request: Request) -> Request {
    let is_large = ["/v1/conversations/import", "/v1/blobs"].contains(&request.uri().path());
    if request.method().is_safe() || !is_large {
        return request;
    }
    request.map(|body| Body::from_stream(Lingering { pieces: Some(body.into_data_stream()) }))
}

/// The pieces of a body.
struct Lingering {
    /// None once the body has ended.
    pieces: Option<BodyDataStream>,
}

impl Stream for Lingering {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(pieces) = &mut self.pieces else { return Poll::Ready(None) };
        let polled = pieces.poll_next_unpin(context);
        if let Poll::Ready(None | Some(Err(_))) = polled {
            self.pieces = None;
        }
        polled
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        let (Some(pieces), Ok(runtime)) = (self.pieces.take(), Handle::try_current()) else {
            return;
        };
        drop(runtime.spawn(tokio::time::timeout(LINGER_TIMEOUT, read_on(pieces))));
    }
}

async fn read_on(mut pieces: BodyDataStream) {
    let mut left = MAX_LINGER_BYTES;
    while let Some(Ok(piece)) = pieces.next().await {
        let Some(rest) = left.checked_sub(piece.len()) else { return };
        left = rest;
    }
}
