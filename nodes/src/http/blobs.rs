//! Blobs: bytes that messages and results name.

mod upload;

use std::sync::Arc;
use std::time::Duration;

use abide_actors::blobs::{Blob, BlobInfo};
use abide_conversation::BlobId;
use abide_conversation::message::blocks::{BlockKind, Media, Source, essence};
use abide_registry::store::Store;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use utoipa::ToSchema;

use super::Api;
use super::openapi::BlobPath;
use super::parse::Path;
use super::problem::{Kind, Problem};
use upload::Upload;

/// How many blobs may be on their way in or out: each is held in memory, whole.
pub(crate) const AT_ONCE: usize = 16;
/// How long a request waits for its turn.
const TURN: Duration = Duration::from_secs(10);
/// How long a client may take to read a blob, and holds its place: 20 MiB at 0.6 Mbit/s.
const READ: Duration = Duration::from_secs(300);
/// So much of a blob is handed over at once.
const CHUNK: usize = 64 << 10;
/// What browsers may show in place, besides images: none of it runs scripts.
const SHOWN: [&str; 4] = ["application/pdf", "text/plain", "text/csv", "text/markdown"];

/// Bytes as they are.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct Raw(Vec<u8>);

/// A blob that is kept.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Stored {
    /// For a block's `source`: `{"type": "blob", "blobId": …}`.
    #[schema(value_type = String, pattern = "^blob_[0-9a-f]{64}$")]
    id: BlobId,
    media_type: String,
    /// In bytes.
    size: u64,
}

/// Keeps bytes, for blocks of messages to name.
///
/// The body is the bytes, at most 20 MiB; `Content-Type` says what they are. The id is the SHA-256 of
/// the media type, a line feed and the bytes: the same again is the same blob, so a repeat is
/// harmless and needs no key. A blob stays until an operator deletes it, also when the conversations
/// that name it are gone. From a page (with an `Origin`), bytes of a type that a form could send,
/// such as `text/plain`, need an `Idempotency-Key` with them, whose value does not matter.
#[utoipa::path(post, path = "/v1/blobs", operation_id = "put_blob", tag = "blobs",
    request_body(content = Raw, content_type = "*/*", description = "The bytes."),
    responses((status = 201, description = "It is new.", body = Stored),
        (status = 200, description = "It was there.", body = Stored)))]
pub(super) async fn put(
    State(api): State<Api>,
    Upload { media_type, bytes, place }: Upload,
) -> Result<(StatusCode, Json<Stored>), Problem> {
    let blob = Blob::new(&media_type, bytes);
    let named = tokio::task::spawn_blocking(move || (blob.id(), blob)).await;
    let (id, blob) = named.map_err(|error| Problem::new(Kind::Internal, error.to_string()))?;
    let new = api.store.put_blob(&id, &blob).await?;
    drop(place);
    let BlobInfo { media_type, size } = blob.info();
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(Stored { id, media_type, size })))
}

/// Reads a blob.
///
/// It never changes. Only images, PDF and plain text are shown in place; anything else is a download,
/// and nothing of it runs here.
#[utoipa::path(get, path = "/v1/blobs/{id}", operation_id = "get_blob", tag = "blobs",
    params(BlobPath),
    responses((status = 200, description = "The bytes, as their own media type.",
            content_type = "*/*", body = Raw),
        (status = 304, description = "It is the one that `If-None-Match` names.")))]
pub(super) async fn get(
    State(api): State<Api>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = parse(&id)?;
    let tag = format!("\"{id}\"");
    let missing = || Problem::not_found("such blob");
    if names(&headers, &tag) {
        api.store.blob_info(&id).await?.ok_or_else(missing)?;
        return Ok((StatusCode::NOT_MODIFIED, cached(&tag)).into_response());
    }
    let place = place(&api.blobs).await?;
    let blob = api.store.blob(&id).await?.ok_or_else(missing)?;
    let kind = blob.media_type();
    let shown = is_shown(&essence(kind));
    let disposition = if shown { "inline" } else { "attachment" };
    let mut response = Response::new(body(blob.bytes().clone(), place));
    let headers = response.headers_mut();
    headers.extend(
        cached(&tag)
            .into_iter()
            .filter_map(|(name, value)| Some((name, HeaderValue::from_str(&value).ok()?))),
    );
    let unknown = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(kind).unwrap_or(unknown));
    headers.insert(header::CONTENT_LENGTH, blob.bytes().len().into());
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static(disposition));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Browsers show no PDF in a sandbox, and run nothing of one outside of their own.
    if essence(kind) != "application/pdf" {
        let policy = HeaderValue::from_static("default-src 'none'; sandbox");
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    Ok(response)
}

fn cached(tag: &str) -> [(header::HeaderName, String); 2] {
    // What an operator deleted may stay with those who have read it.
    let always = "private, max-age=31536000, immutable".to_owned();
    [(header::ETAG, tag.to_owned()), (header::CACHE_CONTROL, always)]
}

/// Whether the client has it already.
fn names(headers: &HeaderMap, tag: &str) -> bool {
    let given = headers.get(header::IF_NONE_MATCH).and_then(|given| given.to_str().ok());
    let is_it = |one: &str| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag;
    given.is_some_and(|given| given.split(',').map(str::trim).any(is_it))
}

fn is_shown(essence: &str) -> bool {
    // An SVG is a document with scripts.
    let image = essence.starts_with("image/") && essence != "image/svg+xml";
    image || SHOWN.contains(&essence)
}

/// The bytes, piece by piece; the place is given back when they were read, or time is up.
fn body(bytes: Bytes, place: OwnedSemaphorePermit) -> Body {
    let chunks = stream::unfold((bytes, place), |(mut rest, place)| async move {
        let next = rest.split_to(rest.len().min(CHUNK));
        (!next.is_empty()).then_some((Ok::<_, std::io::Error>(next), (rest, place)))
    });
    Body::from_stream(chunks.take_until(Box::pin(tokio::time::sleep(READ))))
}

async fn place(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Problem> {
    match tokio::time::timeout(TURN, places.clone().acquire_owned()).await {
        Ok(Ok(place)) => Ok(place),
        Ok(Err(_)) | Err(_) => Err(Problem::new(Kind::Overloaded, "too many blobs are under way")),
    }
}

/// A blob's id in a path. One that cannot exist does not.
pub(crate) fn parse(id: &str) -> Result<BlobId, Problem> {
    BlobId::parse(id).ok_or_else(|| Problem::not_found("such blob"))
}

/// Lets a message's blocks name only blobs that are there and are what the block says, and says in
/// each what its blob is.
pub(super) async fn checked(store: &dyn Store, content: &mut [Value]) -> Result<(), Problem> {
    for (at, block) in content.iter_mut().enumerate() {
        let Ok(Media { kind, source: Source::Blob(id), .. }) = Media::of(block) else { continue };
        let wrong = |why: String| Problem::field(&format!("content[{at}].source.blobId"), why);
        let id = BlobId::new(id);
        let info = store.blob_info(&id).await?;
        let Some(BlobInfo { media_type, size }) = info else {
            return Err(wrong("there is no such blob".to_owned()));
        };
        let of = match kind {
            BlockKind::Image | BlockKind::GeneratedImage => "image/",
            BlockKind::Audio => "audio/",
            BlockKind::Video => "video/",
            _ => "",
        };
        if !essence(&media_type).starts_with(of) {
            return Err(wrong(format!("the blob is {media_type}, which this block cannot show")));
        }
        block["source"] =
            json!({"type": "blob", "blobId": id, "mimeType": media_type, "size": size});
    }
    Ok(())
}
