//! Blobs: bytes that messages and results refer to.

mod upload;

use std::sync::Arc;
use std::time::Duration;

use abide_actors::blobs::{Blob, BlobHold, BlobHolder, BlobInfo};
use abide_conversation::message::blocks::{BlockKind, Media, Source, essence};
use abide_conversation::{BlobId, ConversationId, Scoped};
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
use super::extract::Path;
use super::openapi::BlobPath;
use super::problem::{Kind, Problem};
use crate::access::permission::{ReadBlobs, StoreBlobs};
use crate::access::{Allowed, BodyShare};
use upload::Upload;

/// Each blob that is received or sent is held in memory as a whole.
pub(crate) const MAX_BLOBS_IN_FLIGHT: usize = 16;
/// How long a request waits for a permit.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take to read a blob while it holds a permit: 20 MiB at 0.6 Mbit/s.
const READ_TIMEOUT: Duration = Duration::from_secs(300);
/// The size of the chunks in which a blob is sent.
const CHUNK_BYTES: usize = 64 << 10;
/// The types, in addition to images, that browsers may show in place: none of them runs scripts.
const INLINE_TYPES: [&str; 4] = ["application/pdf", "text/plain", "text/csv", "text/markdown"];

/// Raw bytes.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct Raw(Vec<u8>);

/// A blob that is stored.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Stored {
    /// For a block's `source`: `{"type": "blob", "blobId": …}`.
    #[schema(value_type = String, pattern = "^blob_[0-9a-f]{64}$")]
    id: BlobId,
    media_type: String,
    /// The size in bytes.
    size: u64,
}

/// Stores bytes, to which blocks of messages can refer.
///
/// The body is the bytes, at most 20 MiB, with their media type as `Content-Type`. The id is the
/// SHA-256 of the media type, a line feed and the bytes: a repeat gives the same blob and needs no key.
/// A blob ends with the last conversation that names it. One that nothing names ends 24 hours after its
/// last upload, so that a repeat keeps it for another day. A page (a request with an `Origin`) that
/// sends a type that a form could send, such as `text/plain`, must add an `Idempotency-Key` of any
/// value.
#[utoipa::path(post, path = "/v1/blobs", operation_id = "put_blob", tag = "blobs",
    request_body(content = Raw, content_type = "application/octet-stream", description = "The bytes."),
    responses((status = 201, description = "The blob is new.", body = Stored),
        (status = 200, description = "The blob was already stored.", body = Stored)))]
pub(super) async fn put(
    allowed: Allowed<StoreBlobs>,
    State(api): State<Api>,
    Upload { media_type, bytes, permit }: Upload,
) -> Result<(StatusCode, Json<Stored>), Problem> {
    let blob = Blob::new(&media_type, bytes);
    let hashed = tokio::task::spawn_blocking(move || (blob.id(), blob)).await;
    let (id, blob) = hashed.map_err(|error| Problem::new(Kind::Internal, error.to_string()))?;
    let scoped = allowed.scoped(&id);
    if let Err(refusal) = api.access.admit_blob(&allowed.tenant(), blob.bytes().len() as u64).await
    {
        // One that is stored already takes no room.
        api.store.blob_info(&scoped).await?.ok_or(refusal)?;
    }
    let uploader = BlobHolder::uploader(allowed.principal().as_str());
    let hold = BlobHold::new(uploader, api.clock.now());
    let is_new = api.store.store_blob(&scoped, &blob, Some(&hold)).await?;
    drop(permit);
    let BlobInfo { media_type, size } = blob.info();
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(Stored { id, media_type, size })))
}

/// Reads a blob.
///
/// A blob never changes. Browsers show only images, PDF and plain text in place; anything else is a
/// download, and no script in it runs with this origin.
#[utoipa::path(get, path = "/v1/blobs/{id}", operation_id = "get_blob", tag = "blobs",
    params(BlobPath),
    responses((status = 200, description = "The bytes, with their media type.",
            content_type = "application/octet-stream", body = Raw),
        (status = 304, description = "The client has the blob that `If-None-Match` names.")))]
pub(super) async fn get(
    allowed: Allowed<ReadBlobs>,
    State(api): State<Api>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = parse(&id)?;
    let scoped = allowed.scoped(&id);
    let tag = format!("\"{id}\"");
    let missing = || Problem::not_found("blob");
    if is_cached(&headers, &tag) {
        api.store.blob_info(&scoped).await?.ok_or_else(missing)?;
        return Ok((StatusCode::NOT_MODIFIED, cache_headers(&tag)).into_response());
    }
    let permit = BlobPermit::acquire(&api.blobs_in_flight, allowed.bodies()).await?;
    let blob = api.store.blob(&scoped).await?.ok_or_else(missing)?;
    let media_type = blob.media_type();
    let is_inline = is_inline(&essence(media_type));
    let disposition = if is_inline { "inline" } else { "attachment" };
    let mut response = Response::new(body(blob.bytes().clone(), permit));
    let headers = response.headers_mut();
    headers.extend(
        cache_headers(&tag)
            .into_iter()
            .filter_map(|(name, value)| Some((name, HeaderValue::from_str(&value).ok()?))),
    );
    let unknown = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(media_type).unwrap_or(unknown));
    headers.insert(header::CONTENT_LENGTH, blob.bytes().len().into());
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static(disposition));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Browsers do not show a PDF in a CSP sandbox, and run its scripts in a sandbox of their own.
    if essence(media_type) != "application/pdf" {
        let policy = HeaderValue::from_static("default-src 'none'; sandbox");
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    Ok(response)
}

fn cache_headers(tag: &str) -> [(header::HeaderName, String); 2] {
    // A blob that is deleted may stay in the caches of clients that have read it.
    let immutable = "private, max-age=31536000, immutable".to_owned();
    [(header::ETAG, tag.to_owned()), (header::CACHE_CONTROL, immutable)]
}

/// Whether the client has the blob of this tag already.
fn is_cached(headers: &HeaderMap, tag: &str) -> bool {
    let given = headers.get(header::IF_NONE_MATCH).and_then(|given| given.to_str().ok());
    let matches = |one: &str| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag;
    given.is_some_and(|given| given.split(',').map(str::trim).any(matches))
}

fn is_inline(essence: &str) -> bool {
    // An SVG can have scripts.
    let is_safe_image = essence.starts_with("image/") && essence != "image/svg+xml";
    is_safe_image || INLINE_TYPES.contains(&essence)
}

/// The bytes in chunks; the permit is released when all of them are sent, or time is up.
fn body(bytes: Bytes, permit: BlobPermit) -> Body {
    let chunks = stream::unfold((bytes, permit), |(mut rest, permit)| async move {
        let next = rest.split_to(rest.len().min(CHUNK_BYTES));
        (!next.is_empty()).then_some((Ok::<_, std::io::Error>(next), (rest, permit)))
    });
    Body::from_stream(chunks.take_until(Box::pin(tokio::time::sleep(READ_TIMEOUT))))
}

/// The permission to hold one blob in memory, among those of its tenant and among all.
pub(super) struct BlobPermit {
    _of_tenant: Option<OwnedSemaphorePermit>,
    _of_all: OwnedSemaphorePermit,
}

impl BlobPermit {
    /// Waits for a permit. A tenant that has all of its own waits without holding up the others.
    pub(super) async fn acquire(
        all: &Arc<Semaphore>,
        share: Option<&BodyShare>,
    ) -> Result<Self, Problem> {
        let of_tenant = match share {
            Some(share) => Some(permit(&share.blobs).await.ok_or_else(|| share.exceeded())?),
            None => None,
        };
        let overloaded = || Problem::new(Kind::Overloaded, "too many blobs are in flight");
        let of_all = permit(all).await.ok_or_else(overloaded)?;
        Ok(Self { _of_tenant: of_tenant, _of_all: of_all })
    }
}

async fn permit(permits: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    let acquired = tokio::time::timeout(PERMIT_TIMEOUT, permits.clone().acquire_owned()).await;
    acquired.ok().and_then(Result::ok)
}

/// A blob's id in a path. An id that no blob can have is not found.
pub(crate) fn parse(id: &str) -> Result<BlobId, Problem> {
    BlobId::parse(id).ok_or_else(|| Problem::not_found("blob"))
}

/// Adds media type and size to each block that refers to a blob, which is held until the block is
/// stored. Refuses a blob that does not exist or has a type that the block cannot show.
pub(super) async fn resolve_blobs(
    store: &dyn Store,
    conversation: &Scoped<ConversationId>,
    hold: &BlobHold,
    (field, blocks): (&str, &mut [Value]),
) -> Result<(), Problem> {
    for (index, block) in blocks.iter_mut().enumerate() {
        let Ok(Media { kind, source: Source::Blob(id), .. }) = Media::of(block) else { continue };
        let problem =
            |reason: String| Problem::field(&format!("{field}[{index}].source.blobId"), reason);
        let id = BlobId::new(id);
        let info = store.hold_blob(&conversation.sibling(&id), hold).await?;
        let Some(BlobInfo { media_type, size }) = info else {
            return Err(problem("blob not found".to_owned()));
        };
        let required_prefix = match kind {
            BlockKind::Image | BlockKind::GeneratedImage => "image/",
            BlockKind::Audio => "audio/",
            BlockKind::Video => "video/",
            _ => "",
        };
        if !essence(&media_type).starts_with(required_prefix) {
            let reason = format!("the blob is {media_type}, which this block cannot show");
            return Err(problem(reason));
        }
        block["source"] =
            json!({"type": "blob", "blobId": id, "mimeType": media_type, "size": size});
    }
    Ok(())
}
