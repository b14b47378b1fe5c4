//! Replaces long base64 in provider messages by blobs before they are journalled, and restores it.

use std::collections::{BTreeMap, HashMap};

use ::base64::Engine;
use ::base64::engine::general_purpose::STANDARD;
use abide_conversation::message::blocks::base64;
use abide_conversation::message::{Message, ProviderMessage};
use abide_conversation::{BlobId, MessageId};
use serde_json::{Value, json};

use super::extract::{MAX_DEPTH, MAX_INLINE_BASE64_BYTES, store_extracted};
use super::request_budget::{first_included, run_sized};
use super::{Blob, TenantBlobs, UNKNOWN_MEDIA_TYPE};
use crate::journal::StoreError;

/// The field with the blob's id in a placeholder, and the field with the text before the base64, if
/// there was any.
const BLOB_FIELD: &str = "$abide_blob";
const HEAD_FIELD: &str = "head";

/// Bytes of restored blobs in one request. Media of messages take up to 20 MiB in addition, and
/// providers accept some tens of megabytes of base64.
const MAX_REQUEST_BYTES: u64 = 10 << 20;

/// Stores each string of base64 longer than 1 KiB as a blob, also in a `data:` URL, and replaces it
/// by `{"$abide_blob": "blob_…"}`. Text that a model has sealed, such as its signed thinking,
/// stays: it belongs to the conversation, while others may name the same blob.
///
/// If the store fails, some of the blobs may be stored, and the value must not be used.
pub async fn strip_base64(blobs: TenantBlobs<'_>, value: &mut Value) -> Result<(), StoreError> {
    if any_value(value, MAX_DEPTH, &|value| {
        value.as_str().is_some_and(|text| split_base64(text).is_some())
    }) {
        store_extracted(blobs, value, strip_blobs).await
    } else {
        Ok(())
    }
}

/// Whether the value contains a placeholder, or something that looks like one.
pub fn has_placeholder(value: &Value) -> bool {
    any_value(value, MAX_DEPTH, &|value| value.get(BLOB_FIELD).is_some())
}

/// Restores, byte for byte, what [`strip_base64`] replaced, in the newest messages whose blobs
/// together have at most 10 MiB. Any other provider message with placeholders, or one with a
/// missing blob, is removed from `verbatim`.
pub async fn restore_base64(
    blobs: TenantBlobs<'_>,
    messages: &[Message],
    verbatim: &mut BTreeMap<MessageId, ProviderMessage>,
) -> Result<(), StoreError> {
    let mut with_blobs: Vec<(&MessageId, Vec<BlobId>, u64)> = Vec::new();
    for id in messages.iter().map(|message| &message.id) {
        let Some(items) = verbatim.get(id).map(|verbatim| &verbatim.items) else { continue };
        let mut ids = Vec::new();
        items.iter().for_each(|item| collect_placeholders(item, &mut ids));
        if ids.is_empty() {
            continue;
        }
        match total_size(blobs, &ids).await? {
            Some(size) => with_blobs.push((id, ids.into_iter().flatten().collect(), size)),
            None => drop(verbatim.remove(id)),
        }
    }
    let sizes: Vec<u64> = with_blobs.iter().map(|(_, _, size)| *size).collect();
    let first = first_included(&sizes, MAX_REQUEST_BYTES);
    for (at, (id, blob_ids, size)) in with_blobs.into_iter().enumerate() {
        let Some(mut message) = verbatim.remove(id).filter(|_| at >= first) else { continue };
        let mut read = HashMap::new();
        for blob_id in blob_ids {
            let Some(blob) = blobs.get(&blob_id).await? else { break };
            read.insert(blob_id, blob);
        }
        let work = move || {
            message
                .items
                .iter_mut()
                .all(|item| restore_value(item, MAX_DEPTH, &read))
                .then_some(message)
        };
        if let Some(message) = run_sized(size, work).await? {
            verbatim.insert(id.clone(), message);
        }
    }
    Ok(())
}

/// The size of all these blobs; `None` if one no longer exists.
async fn total_size(
    blobs: TenantBlobs<'_>,
    ids: &[Option<BlobId>],
) -> Result<Option<u64>, StoreError> {
    let mut size = 0_u64;
    for id in ids {
        let Some(id) = id else { return Ok(None) };
        let Some(info) = blobs.info(id).await? else { return Ok(None) };
        size = size.saturating_add(info.size);
    }
    Ok(Some(size))
}

/// Splits a long string into the text before its base64, and the base64.
fn split_base64(text: &str) -> Option<(&str, &str)> {
    let (head, data) = match text.find(',').filter(|_| text.starts_with("data:")) {
        Some(comma) => text.split_at(comma + 1),
        None => ("", text),
    };
    let has_base64_head = head.is_empty() || head.ends_with(";base64,");
    (data.len() > MAX_INLINE_BASE64_BYTES && has_base64_head && base64::is_valid(data))
        .then_some((head, data))
}

/// Whether only the model can read the field's content.
fn is_sealed(field: &str) -> bool {
    field.ends_with("ignature") || field.starts_with("encrypted")
}

/// Whether the predicate is true for the value or anything inside it.
fn any_value(value: &Value, depth: usize, predicate: &dyn Fn(&Value) -> bool) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    predicate(value)
        || match value {
            Value::Array(list) => list.iter().any(|value| any_value(value, depth, predicate)),
            Value::Object(fields) => {
                fields.values().any(|value| any_value(value, depth, predicate))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
}

fn strip_blobs(value: &mut Value, depth: usize, found: &mut Vec<Blob>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match value {
        Value::String(text) => {
            if let Some((name, blob)) = make_placeholder(text) {
                *value = name;
                found.push(blob);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| strip_blobs(value, depth, found)),
        // Redacted thinking has its sealed text in the field where other blocks have bytes.
        Value::Object(fields) if fields.get("type").is_some_and(|it| it == "redacted_thinking") => {
        }
        Value::Object(fields) => {
            let open = fields.iter_mut().filter(|(field, _)| !is_sealed(field));
            open.for_each(|(_, value)| strip_blobs(value, depth, found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn make_placeholder(text: &str) -> Option<(Value, Blob)> {
    let (head, data) = split_base64(text)?;
    let blob = Blob::new(UNKNOWN_MEDIA_TYPE, base64::decode(data)?);
    // Base64 with non-zero padding bits could not be restored exactly.
    if STANDARD.encode(blob.bytes()) != data {
        return None;
    }
    let mut name = json!({BLOB_FIELD: blob.id()});
    if !head.is_empty() {
        name[HEAD_FIELD] = head.into();
    }
    Some((name, blob))
}

/// Collects the blobs of all placeholders; `None` stands for an invalid id.
fn collect_placeholders(value: &Value, found: &mut Vec<Option<BlobId>>) {
    match (value, value.get(BLOB_FIELD)) {
        (_, Some(name)) => found.push(name.as_str().and_then(BlobId::parse)),
        (Value::Array(list), None) => {
            list.iter().for_each(|value| collect_placeholders(value, found))
        }
        (Value::Object(fields), None) => {
            fields.values().for_each(|value| collect_placeholders(value, found))
        }
        (_, None) => {}
    }
}

/// Replaces placeholders by their base64; false if a blob is missing.
fn restore_value(value: &mut Value, depth: usize, read: &HashMap<BlobId, Blob>) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return true };
    if let Some(name) = value.get(BLOB_FIELD) {
        let id = name.as_str().and_then(BlobId::parse);
        let Some(blob) = id.and_then(|id| read.get(&id)) else { return false };
        let head = value[HEAD_FIELD].as_str().unwrap_or_default();
        *value = format!("{head}{}", STANDARD.encode(blob.bytes())).into();
        return true;
    }
    match value {
        Value::Array(list) => list.iter_mut().all(|value| restore_value(value, depth, read)),
        Value::Object(fields) => fields.values_mut().all(|value| restore_value(value, depth, read)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}
