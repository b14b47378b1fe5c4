//! Puts the bytes of blobs back into messages, right before a model reads them.

use std::collections::HashMap;

use abide_conversation::BlobId;
use abide_conversation::message::blocks::{Media, Source, is_block};
use abide_conversation::message::{Message, text_block};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Blob, Blobs};
use crate::journal::Refusal;

/// How many bytes of blobs go into one request: the largest blob, and about what providers take.
const MOST_BYTES: usize = 20 << 20;
/// And how many blobs: each is a read of the store.
const MOST: usize = 100;

const GONE: &str = "no longer stored";
const LEFT_OUT: &str = "left out, since later ones fill the request";
const BROKEN: &str = "cannot be shown";

/// The same messages with the bytes of the blobs that they name, the newest first and as many as
/// fit: 20 MiB. Any other is told as text, such as `[image: no longer stored]`.
pub async fn filled(
    blobs: &dyn Blobs,
    mut messages: Vec<Message>,
) -> Result<Vec<Message>, Refusal> {
    let mut read: HashMap<BlobId, Option<Blob>> = HashMap::new();
    let (mut bytes, mut full) = (0, false);
    let blocks = messages.iter_mut().rev().flat_map(|message| message.content.iter_mut().rev());
    for block in blocks {
        let Some(id) = named(block) else { continue };
        if !full && !read.contains_key(&id) {
            let blob = blobs.blob(&id).await?;
            read.insert(id.clone(), blob);
        }
        *block = match read.get(&id) {
            Some(None) => told(block, GONE),
            Some(Some(blob)) if !full && bytes + blob.bytes().len() <= MOST_BYTES => {
                bytes += blob.bytes().len();
                shown(block, blob)
            }
            Some(Some(_)) | None => {
                full = true;
                told(block, LEFT_OUT)
            }
        };
        full = full || read.len() >= MOST;
    }
    Ok(messages)
}

fn named(block: &Value) -> Option<BlobId> {
    match Media::of(block).ok()?.source {
        Source::Blob(id) => Some(BlobId::new(id)),
        Source::Base64 { .. } | Source::Url(_) | Source::File(_) | Source::Stored { .. } => None,
    }
}

fn told(block: &Value, why: &str) -> Value {
    text_block(format!("[{}: {why}]", block["type"].as_str().unwrap_or("media")))
}

fn shown(block: &Value, blob: &Blob) -> Value {
    let (media_type, data) = (blob.media_type(), STANDARD.encode(blob.bytes()));
    // Its shape is judged without its megabytes.
    match is_block(&with(block, media_type, "AAAA".to_owned())) {
        true => with(block, media_type, data),
        false => told(block, BROKEN),
    }
}

fn with(block: &Value, media_type: &str, data: String) -> Value {
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
