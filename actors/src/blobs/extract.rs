//! Moves the bytes of media out of values and into blobs before the values are journalled.

use abide_conversation::message::blocks::{BlockKind, Media, Source, base64};
use serde_json::{Value, json};

use super::{Blob, TenantBlobs};
use crate::journal::StoreError;

/// Base64 up to this length stays in its block: for an icon this is cheaper than a second read.
pub(super) const MAX_INLINE_BASE64_BYTES: usize = 1 << 10;
/// The nesting depth of values from outside.
pub(super) const MAX_DEPTH: usize = 128;

/// Stores the bytes of every media block anywhere in a value as a blob, and refers to it in the
/// block instead. Base64 of at most 1 KiB, and invalid base64, stay.
///
/// If the store fails, some of the blobs may be stored, and the value must not be used.
pub async fn extract_media(blobs: TenantBlobs<'_>, value: &mut Value) -> Result<(), StoreError> {
    if has_extractable(value, MAX_DEPTH) {
        store_extracted(blobs, value, extract_blobs).await
    } else {
        Ok(())
    }
}

/// About how many bytes [`extract_media`] would move out of a value.
pub fn extractable_bytes(value: &Value) -> u64 {
    bytes_within(value, MAX_DEPTH)
}

fn bytes_within(value: &Value, depth: usize) -> u64 {
    let Some(depth) = depth.checked_sub(1) else { return 0 };
    if let Some((_, data)) = extractable_base64(value) {
        return data.len() as u64 / 4 * 3;
    }
    match value {
        Value::Array(list) => list.iter().map(|value| bytes_within(value, depth)).sum(),
        Value::Object(fields) => fields.values().map(|value| bytes_within(value, depth)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Stores the blobs that `take` moves out of a value, where it leaves references.
pub(super) async fn store_extracted(
    blobs: TenantBlobs<'_>,
    value: &mut Value,
    take: fn(&mut Value, usize, &mut Vec<Blob>),
) -> Result<(), StoreError> {
    // Decoding and hashing megabytes must not block other conversations.
    let mut whole = value.take();
    let extracted = tokio::task::spawn_blocking(move || {
        let mut found = Vec::new();
        take(&mut whole, MAX_DEPTH, &mut found);
        (whole, found)
    });
    let (whole, found) =
        extracted.await.map_err(|error| StoreError::Unavailable(error.to_string()))?;
    for blob in found {
        blobs.put(&blob).await?;
    }
    *value = whole;
    Ok(())
}

/// The media type and base64 of a media block, if they should be extracted.
fn extractable_base64(value: &Value) -> Option<(&str, &str)> {
    BlockKind::of(value).filter(|kind| kind.is_media())?;
    match Media::of(value).ok()?.source {
        Source::Base64 { media_type, data } if data.len() > MAX_INLINE_BASE64_BYTES => {
            Some((media_type, data))
        }
        Source::Base64 { .. }
        | Source::Url(_)
        | Source::Blob(_)
        | Source::File(_)
        | Source::Stored { .. } => None,
    }
}

fn has_extractable(value: &Value, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    match value {
        Value::Array(list) => list.iter().any(|value| has_extractable(value, depth)),
        Value::Object(fields) => {
            extractable_base64(value).is_some()
                || fields.values().any(|value| has_extractable(value, depth))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn extract_blobs(value: &mut Value, depth: usize, found: &mut Vec<Blob>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let decoded = extractable_base64(value)
        .and_then(|(media_type, data)| Some(Blob::new(media_type, base64::decode(data)?)));
    if let Some(blob) = decoded {
        replace_with_reference(value, &blob);
        found.push(blob);
        return;
    }
    match value {
        Value::Array(list) => list.iter_mut().for_each(|value| extract_blobs(value, depth, found)),
        Value::Object(fields) => {
            fields.values_mut().for_each(|value| extract_blobs(value, depth, found))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Replaces the bytes by a reference to the blob.
fn replace_with_reference(block: &mut Value, blob: &Blob) {
    let Value::Object(fields) = block else { return };
    // A generated image has the bytes in a field of its own.
    fields.remove("data");
    let (id, info) = (blob.id(), blob.info());
    let source = json!({
        "type": "blob", "blobId": id, "mimeType": info.media_type, "size": info.size,
    });
    fields.insert("source".to_owned(), source);
}
