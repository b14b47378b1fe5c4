//! The response to a chat page: a stream of chunks as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::http::turn_stream::{Next, TurnStream};
use crate::protocols::ai_sdk::encoder::Encoder;
use crate::protocols::feed::Item;

/// How long a response goes on while the turn rests on calls that the caller may not answer.
const MAX_REST: Duration = Duration::from_secs(300);

/// The chunks of one response, produced as fast as the client reads.
pub(super) struct ChunkStream {
    stream: TurnStream,
    encoder: Encoder,
    /// Bytes that are not sent yet.
    encoded: BytesMut,
    /// When the response ends although the turn has not, because it rests.
    rests_until: Option<Instant>,
    is_done: bool,
}

impl ChunkStream {
    pub(super) fn new(stream: TurnStream, encoder: Encoder) -> Self {
        let mut encoded = BytesMut::new();
        write(&mut encoded, &encoder.begin());
        Self { stream, encoder, encoded, rests_until: None, is_done: false }
    }

    pub(super) fn into_response(self) -> Response {
        let chunks = futures::stream::unfold(self, |mut chunks| async {
            let chunk = chunks.next_chunk().await?;
            Some((Ok::<_, Infallible>(chunk), chunks))
        });
        let headers = [
            (header::CONTENT_TYPE, "text/event-stream"),
            (header::CACHE_CONTROL, "no-cache"),
            // A proxy that buffers a response until its end would pass on nothing.
            (HeaderName::from_static("x-accel-buffering"), "no"),
            (HeaderName::from_static("x-vercel-ai-ui-message-stream"), "v1"),
        ];
        (headers, Body::from_stream(chunks)).into_response()
    }

    /// The next bytes; `None` at the end of the response.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        while self.encoded.is_empty() {
            if self.is_done {
                return None;
            }
            if self.encoder.is_over() {
                self.is_done = true;
                return Some(Bytes::from_static(b"data: [DONE]\n\n"));
            }
            let next = match self.rests_until {
                Some(until) => timeout_at(until, self.stream.next()).await.ok(),
                None => Some(self.stream.next().await),
            };
            match next {
                Some(Next::Items(items)) => self.encode(&items).await?,
                Some(Next::KeepAlive) => return Some(Bytes::from_static(b": keep-alive\n\n")),
                Some(Next::Broken(why)) => self.finish(Some(why.text())),
                Some(Next::Ended) | None => self.finish(None),
            }
        }
        Some(self.encoded.split().freeze())
    }

    async fn encode(&mut self, items: &[Item]) -> Option<()> {
        let encoding_streams = self.stream.api.encoding_streams.clone();
        let _permit = encoding_streams.acquire().await.ok()?;
        for item in items {
            match item {
                Item::Rest(_) => self.rests_until = Some(Instant::now() + MAX_REST),
                Item::CaughtUp => {}
                _ => self.rests_until = None,
            }
            for chunk in self.encoder.item(item) {
                write(&mut self.encoded, &chunk);
            }
        }
        Some(())
    }

    fn finish(&mut self, error: Option<&str>) {
        for chunk in self.encoder.finish(error) {
            write(&mut self.encoded, &chunk);
        }
    }
}

/// Adds a chunk. Compact JSON has no line breaks.
fn write(encoded: &mut BytesMut, chunk: &Value) {
    encoded.extend_from_slice(b"data: ");
    encoded.extend_from_slice(chunk.to_string().as_bytes());
    encoded.extend_from_slice(b"\n\n");
}
