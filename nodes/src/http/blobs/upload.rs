//! Reads the bytes of a blob, whole and in time.

use std::time::Duration;

use abide_conversation::message::blocks::essence;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use super::place;
use crate::http::Api;
use crate::http::problem::{Kind, Problem};

/// The largest blob: what providers take in one request.
const LARGEST: usize = 20 << 20;
/// How long a client may take to send it: 20 MiB at 1.4 Mbit/s. It holds a place meanwhile.
const SENT_WITHIN: Duration = Duration::from_secs(120);
/// The longest media type.
const MEDIA_TYPE_BYTES: usize = 255;

/// A body that was read, and its place among those.
pub(in crate::http) struct Upload {
    pub(super) media_type: String,
    pub(super) bytes: Bytes,
    pub(super) place: OwnedSemaphorePermit,
}

impl FromRequest<Api> for Upload {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let media_type = media_type(request.headers())?;
        let announced = request.headers().get(header::CONTENT_LENGTH);
        let announced = announced.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        if announced.is_some_and(|announced| announced > LARGEST) {
            return Err(too_large());
        }
        let place = place(&api.blobs).await?;
        let read = axum::body::to_bytes(request.into_body(), LARGEST);
        let bytes = tokio::time::timeout(SENT_WITHIN, read).await;
        let bytes = bytes.map_err(|_| Problem::unreadable("the body took too long to come"))?;
        let bytes = bytes.map_err(|error| match crate::http::extract::is_too_long(&error) {
            true => too_large(),
            false => Problem::unreadable("the body could not be read"),
        })?;
        match bytes.is_empty() {
            true => Err(Problem::field("body", "is empty")),
            false => Ok(Self { media_type, bytes, place }),
        }
    }
}

fn too_large() -> Problem {
    let detail = format!("the body is larger than {LARGEST} bytes");
    Problem::new(Kind::PayloadTooLarge, detail)
}

fn media_type(headers: &HeaderMap) -> Result<String, Problem> {
    let wrong = |why: &str| Problem::field("Content-Type", why);
    let given = headers.get(header::CONTENT_TYPE).ok_or_else(|| wrong("is missing"))?;
    let given = given.to_str().unwrap_or_default().trim();
    let essence = essence(given);
    let token = |part: &str| {
        let legal = |c: char| c.is_ascii_alphanumeric() || "!#$&-^_.+".contains(c);
        !part.is_empty() && part.chars().all(legal)
    };
    let whole = essence.split_once('/').is_some_and(|(kind, sub)| token(kind) && token(sub));
    match whole && given.len() <= MEDIA_TYPE_BYTES {
        true => Ok(given.to_owned()),
        false => Err(wrong("must be a media type, TYPE/SUBTYPE, of at most 255 bytes")),
    }
}
