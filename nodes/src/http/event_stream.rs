//! Responses that are streams of server-sent events.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;

/// What a stream is made of, produced as fast as its client reads.
pub(super) trait EventSource: Send + 'static {
    /// The next bytes; `None` at the end of the stream.
    fn next_chunk(&mut self) -> impl Future<Output = Option<Bytes>> + Send;
}

/// The response that streams a source.
pub(super) fn respond(source: impl EventSource) -> Response {
    // Boxed: the stream would hold it twice, at rest and while it waits for a chunk.
    let chunks = futures::stream::unfold(Box::new(source), |mut source| async {
        let chunk = source.next_chunk().await?;
        Some((Ok::<_, Infallible>(chunk), source))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        // A proxy that buffers a response until its end would pass on nothing.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(chunks)).into_response()
}

/// Adds an event with these data. Compact JSON has no line breaks.
pub(super) fn write_data(data: &impl Serialize, encoded: &mut BytesMut) {
    encoded.extend_from_slice(b"data: ");
    // Memory refuses nothing, and events consist of texts and numbers.
    let _ = serde_json::to_writer((&mut *encoded).writer(), data);
    encoded.extend_from_slice(b"\n\n");
}
