//! Takes the bytes of media out of values before they are journalled.

use abide_conversation::message::blocks::{BlockKind, Media, Source, base64};
use serde_json::{Value, json};

use super::{Blob, Blobs};
use crate::journal::StoreError;

/// Base64 of this length may stay in its block: an icon is cheaper there than a second read.
pub(super) const STAYS: usize = 1 << 10;
/// As deep as values from outside are.
pub(super) const DEEPEST: usize = 128;

/// Keeps the bytes of every block of media, wherever it stands in a value, as a blob, and names
/// that in the block instead. Base64 of at most 1 KiB stays, as does what is none.
///
/// When the store refuses, some of the blobs may be kept, and the value must not be used.
pub async fn stored(blobs: &dyn Blobs, value: &mut Value) -> Result<(), StoreError> {
    match has_bytes(value, DEEPEST) {
        true => kept(blobs, value, take).await,
        false => Ok(()),
    }
}

/// Keeps the blobs that `take` finds in a value, whose places it leaves named.
pub(super) async fn kept(
    blobs: &dyn Blobs,
    value: &mut Value,
    take: fn(&mut Value, usize, &mut Vec<Blob>),
) -> Result<(), StoreError> {
    // Megabytes are decoded and hashed: that must not hold up other conversations.
    let mut whole = value.take();
    let taken = tokio::task::spawn_blocking(move || {
        let mut found = Vec::new();
        take(&mut whole, DEEPEST, &mut found);
        let found: Vec<_> = found.into_iter().map(|blob| (blob.id(), blob)).collect();
        (whole, found)
    });
    let (whole, found) = taken.await.map_err(|error| StoreError::Unavailable(error.to_string()))?;
    for (id, blob) in found {
        blobs.put_blob(&id, &blob).await?;
    }
    *value = whole;
    Ok(())
}

/// A block's own base64, if that is to be taken out.
fn bytes(value: &Value) -> Option<(&str, &str)> {
    BlockKind::of(value).filter(|kind| kind.is_media())?;
    match Media::of(value).ok()?.source {
        Source::Base64 { media_type, data } if data.len() > STAYS => Some((media_type, data)),
        Source::Base64 { .. }
        | Source::Url(_)
        | Source::Blob(_)
        | Source::File(_)
        | Source::Stored { .. } => None,
    }
}

fn has_bytes(value: &Value, deep: usize) -> bool {
    let Some(deep) = deep.checked_sub(1) else { return false };
    match value {
        Value::Array(list) => list.iter().any(|value| has_bytes(value, deep)),
        Value::Object(fields) => {
            bytes(value).is_some() || fields.values().any(|value| has_bytes(value, deep))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn take(value: &mut Value, deep: usize, found: &mut Vec<Blob>) {
    let Some(deep) = deep.checked_sub(1) else { return };
    let decoded = bytes(value)
        .and_then(|(media_type, data)| Some(Blob::new(media_type, base64::decode(data)?)));
    if let Some(blob) = decoded {
        name(value, &blob);
        found.push(blob);
        return;
    }
    match value {
        Value::Array(list) => list.iter_mut().for_each(|value| take(value, deep, found)),
        Value::Object(fields) => fields.values_mut().for_each(|value| take(value, deep, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Puts the name of the blob where its bytes were.
fn name(block: &mut Value, blob: &Blob) {
    let Value::Object(fields) = block else { return };
    // A generated image has them beside its other fields.
    fields.remove("data");
    let (id, info) = (blob.id(), blob.info());
    let source = json!({
        "type": "blob", "blobId": id, "mimeType": info.media_type, "size": info.size,
    });
    fields.insert("source".to_owned(), source);
}
