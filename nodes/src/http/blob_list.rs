//! The blobs that a conversation names.
//!
//! The journal is read, which says where each is named: the store only knows that it may be.

use std::collections::BTreeSet;

use abide_actors::blobs::{BlobInfo, named_blobs};
use abide_conversation::{BlobId, Seq};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::extract::{self, Query};
use super::problem::{Kind, Problem};
use crate::access::Allowed;
use crate::access::permission::Read;

/// How many events are read at once: each may be a megabyte.
const EVENTS_PER_READ: usize = 64;
/// How many events a page reads at most; the next goes on.
const MAX_EVENTS: usize = 2_048;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct BlobQuery {
    /// The conversation whose journal is read.
    #[param(pattern = "^[A-Za-z0-9_.:-]{1,128}$", example = "conv_1")]
    conversation: String,
    /// A seq, such as the `cursor` of the page before: the page begins with the next event.
    #[serde(default)]
    #[param(value_type = u64)]
    after: Seq,
    /// The size of the page.
    #[param(default = 100, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Blobs that a conversation names.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BlobPage {
    /// In the order in which the journal names them. One that is named again later may be on a later
    /// page, too.
    blobs: Vec<NamedBlob>,
    /// Where the next page begins; absent on the last one. A page may be short, or even empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    cursor: Option<Seq>,
}

/// A blob that an event names.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct NamedBlob {
    #[schema(value_type = String, pattern = "^blob_[0-9a-f]{64}$")]
    id: BlobId,
    /// The event.
    #[schema(value_type = u64)]
    seq: Seq,
    /// Absent if the blob was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    /// The size in bytes; absent if the blob was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
}

/// Lists the blobs that a conversation names.
#[utoipa::path(get, path = "/v1/blobs", operation_id = "list_blobs", tag = "blobs",
    params(BlobQuery),
    responses((status = 200, description = "A page of the blobs.", body = BlobPage)))]
pub(super) async fn list(
    allowed: Allowed<Read>,
    State(api): State<Api>,
    Query(query): Query<BlobQuery>,
) -> Result<Json<BlobPage>, Problem> {
    let id = allowed.conversation(&query.conversation)?;
    let limit = extract::limit(query.limit, 100, 1_000)?;
    let mut after = extract::position("after", query.after)?;
    // Whoever may not read the conversation does not learn that it exists.
    api.conversations.summary(&allowed, &*api.store, &id).await?;
    let (mut named, mut known) = (Vec::new(), BTreeSet::new());
    let mut has_more = true;
    for _ in 0..MAX_EVENTS / EVENTS_PER_READ {
        let events = api.store.events(&id, after, EVENTS_PER_READ).await?;
        has_more = !events.is_empty();
        for event in &events {
            if named.len() >= limit {
                break;
            }
            let json = serde_json::to_vec(event);
            let json = json.map_err(|error| Problem::new(Kind::Internal, error.to_string()))?;
            // An event that names more than fit on a page is not cut: it would have no place to go on.
            named.extend(
                named_blobs(&json)
                    .filter(|blob| known.insert(blob.clone()))
                    .map(|it| (it, event.seq)),
            );
            after = event.seq;
        }
        if !has_more || named.len() >= limit {
            break;
        }
    }
    let mut blobs = Vec::with_capacity(named.len());
    for (blob, seq) in named {
        let info = api.store.blob_info(&id.sibling(&blob)).await?;
        let (media_type, size) =
            info.map(|BlobInfo { media_type, size }| (media_type, size)).unzip();
        blobs.push(NamedBlob { id: blob, seq, media_type, size });
    }
    Ok(Json(BlobPage { blobs, cursor: has_more.then_some(after) }))
}
