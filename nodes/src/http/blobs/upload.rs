//! Receives the bytes of a blob, within limits of size and time.

use std::time::Duration;

use abide_conversation::message::blocks::essence;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use bytes::Bytes;

use super::BlobPermit;
use crate::access::BodyShare;
use crate::http::Api;
use crate::http::extract::is_over_limit;
use crate::problem::{Kind, Problem};

/// The largest blob; providers accept about as much in one request.
const MAX_BLOB_BYTES: usize = 20 << 20;
/// How long a client may take to send a blob while it holds a permit: 20 MiB at 1.4 Mbit/s.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest media type.
const MAX_MEDIA_TYPE_BYTES: usize = 255;

/// A blob that was received, with its permit.
pub(in crate::http) struct Upload {
    pub(super) media_type: String,
    pub(super) bytes: Bytes,
    pub(super) permit: BlobPermit,
}

impl FromRequest<Api> for Upload {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let media_type = media_type(request.headers())?;
        let announced = request.headers().get(header::CONTENT_LENGTH);
        let announced = announced.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        if announced.is_some_and(|announced| announced > MAX_BLOB_BYTES) {
            return Err(too_large());
        }
        let share = request.extensions().get::<BodyShare>().cloned();
        let permit = BlobPermit::acquire(&api.blobs_in_flight, share.as_ref()).await?;
        let read = axum::body::to_bytes(request.into_body(), MAX_BLOB_BYTES);
        let bytes = tokio::time::timeout(UPLOAD_TIMEOUT, read).await;
        let bytes = bytes.map_err(|_| Problem::unreadable("the body did not arrive in time"))?;
        let bytes = bytes.map_err(|error| {
            if is_over_limit(&error) {
                too_large()
            } else {
                Problem::unreadable("the body could not be read")
            }
        })?;
        if bytes.is_empty() {
            return Err(Problem::field("body", "is empty"));
        }
        Ok(Self { media_type, bytes, permit })
    }
}

fn too_large() -> Problem {
    let detail = format!("the body is larger than {MAX_BLOB_BYTES} bytes");
    Problem::new(Kind::PayloadTooLarge, detail)
}

fn media_type(headers: &HeaderMap) -> Result<String, Problem> {
    let problem = |reason: &str| Problem::field("Content-Type", reason);
    let given = headers.get(header::CONTENT_TYPE).ok_or_else(|| problem("is missing"))?;
    let given = given.to_str().unwrap_or_default().trim();
    let essence = essence(given);
    let is_token = |part: &str| {
        let is_legal = |c: char| c.is_ascii_alphanumeric() || "!#$&-^_.+".contains(c);
        !part.is_empty() && part.chars().all(is_legal)
    };
    let is_valid =
        essence.split_once('/').is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype));
    if is_valid && given.len() <= MAX_MEDIA_TYPE_BYTES {
        Ok(given.to_owned())
    } else {
        Err(problem("must be a media type, TYPE/SUBTYPE, of at most 255 bytes"))
    }
}
