//! Puts the bytes of blobs back into messages before a model request.

use std::collections::HashMap;

use abide_conversation::BlobId;
use abide_conversation::message::blocks::{BlockKind, Media, Source, is_block};
use abide_conversation::message::{Message, text_block};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::request_budget::{first_included, run_sized};
use super::{Blob, TenantBlobs};
use crate::journal::StoreError;

/// Bytes of blobs in one request: the size of the largest blob, and about what providers accept.
const MAX_REQUEST_BYTES: u64 = 20 << 20;

const NO_LONGER_STORED: &str = "no longer stored";
const LEFT_OUT_OF_REQUEST: &str = "left out, since later ones fill the request";
const CANNOT_BE_SHOWN: &str = "cannot be shown";

/// Inlines the blobs that the messages refer to: all of them up to 20 MiB and 100 blobs, and beyond
/// that the newest that fill half of this. The selection then stays the same until 10 MiB more have
/// been added, so that until then the prompt only grows. The other blobs become text, such as
/// `[image: no longer stored]`.
pub async fn inline_media(
    blobs: TenantBlobs<'_>,
    mut messages: Vec<Message>,
) -> Result<Vec<Message>, StoreError> {
    let blocks = messages.iter().flat_map(|message| &message.content);
    let ids: Vec<BlobId> = blocks.filter_map(referenced_blob).collect();
    let mut stored_sizes: HashMap<&BlobId, Option<u64>> = HashMap::new();
    for id in &ids {
        if !stored_sizes.contains_key(id) {
            stored_sizes.insert(id, blobs.info(id).await?.map(|info| info.size));
        }
    }
    let sizes: Vec<u64> = ids.iter().map(|id| stored_sizes[id].unwrap_or(0)).collect();
    let first = first_included(&sizes, MAX_REQUEST_BYTES);
    let mut read: HashMap<BlobId, Blob> = HashMap::new();
    for id in &ids[first..] {
        if !read.contains_key(id)
            && let Some(blob) = blobs.get(id).await?
        {
            read.insert(id.clone(), blob);
        }
    }
    let missing: Vec<bool> = ids.iter().map(|id| stored_sizes[id].is_none()).collect();
    let fill = move || {
        let blocks = messages.iter_mut().flat_map(|message| &mut message.content);
        let blocks = blocks.filter_map(|block| referenced_blob(block).map(|id| (block, id)));
        for (at, (block, id)) in blocks.enumerate() {
            *block = match read.get(&id).filter(|_| at >= first) {
                Some(blob) => with_bytes(block, blob),
                None if missing[at] || at >= first => placeholder(block, NO_LONGER_STORED),
                None => placeholder(block, LEFT_OUT_OF_REQUEST),
            };
        }
        messages
    };
    run_sized(sizes[first..].iter().sum(), fill).await
}

fn referenced_blob(block: &Value) -> Option<BlobId> {
    BlockKind::of(block).filter(|kind| kind.is_media())?;
    match Media::of(block).ok()?.source {
        Source::Blob(id) => Some(BlobId::new(id)),
        Source::Base64 { .. } | Source::Url(_) | Source::File(_) | Source::Stored { .. } => None,
    }
}

fn placeholder(block: &Value, why: &str) -> Value {
    text_block(format!("[{}: {why}]", block["type"].as_str().unwrap_or("media")))
}

fn with_bytes(block: &Value, blob: &Blob) -> Value {
    let (media_type, data) = (blob.media_type(), STANDARD.encode(blob.bytes()));
    // The block's shape is checked without its megabytes.
    if is_block(&with_source(block, media_type, "AAAA".to_owned())) {
        with_source(block, media_type, data)
    } else {
        placeholder(block, CANNOT_BE_SHOWN)
    }
}

fn with_source(block: &Value, media_type: &str, data: String) -> Value {
    let mut block = block.clone();
    if block["type"] == "generated_image" {
        block["data"] = data.into();
        block["mimeType"] = media_type.into();
        if let Value::Object(fields) = &mut block {
            fields.remove("source");
        }
    } else {
        block["source"] = json!({"type": "base64", "mimeType": media_type, "data": data});
    }
    block
}
