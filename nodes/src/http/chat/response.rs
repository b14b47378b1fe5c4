//! The response to a chat page: a stream of chunks as server-sent events.

use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use bytes::BytesMut;

use crate::http::event_stream::write_data;
use crate::http::turn_body::{TurnBody, TurnEncoder};
use crate::http::turn_stream::{PlacedItem, TurnStream};
use crate::protocols::ai_sdk::encoder::Encoder;

/// The version of the stream's format. Clients do not check it.
const FORMAT: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-vercel-ai-ui-message-stream"), HeaderValue::from_static("v1"));

/// The response that tells a turn.
pub(super) fn respond(stream: TurnStream, encoder: Encoder) -> Response {
    let mut encoded = BytesMut::new();
    write_data(&encoder.begin(), &mut encoded);
    let mut response = TurnBody::new(stream, ChunkEvents(encoder), encoded).into_response();
    let (name, version) = FORMAT;
    response.headers_mut().insert(name, version);
    response
}

/// The chunks as server-sent events.
struct ChunkEvents(Encoder);

impl TurnEncoder for ChunkEvents {
    fn item(&mut self, item: &PlacedItem, encoded: &mut BytesMut) {
        self.0.item(&item.item).iter().for_each(|chunk| write_data(chunk, encoded));
    }

    fn is_over(&self) -> bool {
        self.0.is_over()
    }

    fn finish(&mut self, broken: Option<&str>, encoded: &mut BytesMut) {
        self.0.finish(broken).iter().for_each(|chunk| write_data(chunk, encoded));
    }

    fn end(&mut self, encoded: &mut BytesMut) {
        encoded.extend_from_slice(b"data: [DONE]\n\n");
    }
}
