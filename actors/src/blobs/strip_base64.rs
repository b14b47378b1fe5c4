//! Takes long base64 out of what providers wrote before that is journalled, and puts it back.

use std::collections::{BTreeMap, HashMap};

use ::base64::Engine;
use ::base64::engine::general_purpose::STANDARD;
use abide_conversation::message::blocks::base64;
use abide_conversation::message::{Message, ProviderMessage};
use abide_conversation::{BlobId, MessageId};
use serde_json::{Value, json};

use super::extract::{DEEPEST, STAYS, kept};
use super::request_budget::{first_shown, worked};
use super::{Blob, Blobs, UNKNOWN};
use crate::journal::StoreError;

/// The field that names a blob in the place of a string, and the one that has what stood there
/// before the base64, if anything did.
const NAMED: &str = "$abide_blob";
const HEAD: &str = "head";

/// How many bytes of blobs go into one request this way. Media of messages take up to 20 MiB, and
/// providers some tens of megabytes of base64.
const MOST_BYTES: u64 = 10 << 20;

/// Keeps what each string of base64 that is longer than 1 KiB stands for as a blob, also one that is
/// a `data:` address, and puts `{"$abide_blob": "blob_…"}` in its place. What a model has sealed,
/// such as its signed thinking, stays: it is the conversation's own, and a blob is kept for good.
///
/// When the store refuses, some of the blobs may be kept, and the value must not be used.
pub async fn abridged(blobs: &dyn Blobs, value: &mut Value) -> Result<(), StoreError> {
    match any(value, DEEPEST, &|value| value.as_str().is_some_and(|text| split(text).is_some())) {
        true => kept(blobs, value, take).await,
        false => Ok(()),
    }
}

/// Whether a blob stands, or seems to, in the place of a string of the value.
pub fn names_any(value: &Value) -> bool {
    any(value, DEEPEST, &|value| value.get(NAMED).is_some())
}

/// Puts back, byte for byte, what [`abridged`] took, into the newest of the messages, as many as
/// fill 10 MiB. Another one's, or one of which a blob is gone, is no longer there as its provider
/// wrote it.
pub async fn restored(
    blobs: &dyn Blobs,
    messages: &[Message],
    verbatim: &mut BTreeMap<MessageId, ProviderMessage>,
) -> Result<(), StoreError> {
    let mut naming: Vec<(&MessageId, Vec<BlobId>, u64)> = Vec::new();
    for id in messages.iter().map(|message| &message.id) {
        let Some(items) = verbatim.get(id).map(|verbatim| &verbatim.items) else { continue };
        let mut named = Vec::new();
        items.iter().for_each(|item| names(item, &mut named));
        if named.is_empty() {
            continue;
        }
        match size(blobs, &named).await? {
            Some(size) => naming.push((id, named.into_iter().flatten().collect(), size)),
            None => drop(verbatim.remove(id)),
        }
    }
    let sizes: Vec<u64> = naming.iter().map(|(_, _, size)| *size).collect();
    let left_out = first_shown(&sizes, MOST_BYTES);
    for (at, (id, named, size)) in naming.into_iter().enumerate() {
        let Some(mut whole) = verbatim.remove(id).filter(|_| at >= left_out) else { continue };
        let mut read = HashMap::new();
        for name in named {
            let Some(blob) = blobs.blob(&name).await? else { break };
            read.insert(name, blob);
        }
        let work = move || {
            whole.items.iter_mut().all(|item| put_back(item, DEEPEST, &read)).then_some(whole)
        };
        if let Some(whole) = worked(size, work).await? {
            verbatim.insert(id.clone(), whole);
        }
    }
    Ok(())
}

/// Of all of these; `None` if one is gone.
async fn size(blobs: &dyn Blobs, named: &[Option<BlobId>]) -> Result<Option<u64>, StoreError> {
    let mut size = 0_u64;
    for id in named {
        let Some(id) = id else { return Ok(None) };
        let Some(info) = blobs.blob_info(id).await? else { return Ok(None) };
        size = size.saturating_add(info.size);
    }
    Ok(Some(size))
}

/// What stands before the base64 of a long string, and that.
fn split(text: &str) -> Option<(&str, &str)> {
    let (head, data) = match text.find(',').filter(|_| text.starts_with("data:")) {
        Some(comma) => text.split_at(comma + 1),
        None => ("", text),
    };
    let is_some = head.is_empty() || head.ends_with(";base64,");
    (data.len() > STAYS && is_some && base64::is_valid(data)).then_some((head, data))
}

/// Whether only its model can read what is in the field.
fn is_sealed(field: &str) -> bool {
    field.ends_with("ignature") || field.starts_with("encrypted")
}

/// Whether a value of which all is looked at has one of a kind in it.
fn any(value: &Value, deep: usize, wanted: &dyn Fn(&Value) -> bool) -> bool {
    let Some(deep) = deep.checked_sub(1) else { return false };
    wanted(value)
        || match value {
            Value::Array(list) => list.iter().any(|value| any(value, deep, wanted)),
            Value::Object(fields) => fields.values().any(|value| any(value, deep, wanted)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
}

fn take(value: &mut Value, deep: usize, found: &mut Vec<Blob>) {
    let Some(deep) = deep.checked_sub(1) else { return };
    match value {
        Value::String(text) => {
            if let Some((name, blob)) = named(text) {
                *value = name;
                found.push(blob);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| take(value, deep, found)),
        // Redacted thinking has its seal where others have bytes.
        Value::Object(fields) if fields.get("type").is_some_and(|it| it == "redacted_thinking") => {
        }
        Value::Object(fields) => {
            let open = fields.iter_mut().filter(|(field, _)| !is_sealed(field));
            open.for_each(|(_, value)| take(value, deep, found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn named(text: &str) -> Option<(Value, Blob)> {
    let (head, data) = split(text)?;
    let blob = Blob::new(UNKNOWN, base64::decode(data)?);
    // Bits that stand for nothing would not come back.
    if STANDARD.encode(blob.bytes()) != data {
        return None;
    }
    let mut name = json!({NAMED: blob.id()});
    if !head.is_empty() {
        name[HEAD] = head.into();
    }
    Some((name, blob))
}

/// The blobs that stand in the place of strings; `None` is one that nothing could be.
fn names(value: &Value, found: &mut Vec<Option<BlobId>>) {
    match (value, value.get(NAMED)) {
        (_, Some(name)) => found.push(name.as_str().and_then(BlobId::parse)),
        (Value::Array(list), None) => list.iter().for_each(|value| names(value, found)),
        (Value::Object(fields), None) => fields.values().for_each(|value| names(value, found)),
        (_, None) => {}
    }
}

/// Whether all of the blobs were there.
fn put_back(value: &mut Value, deep: usize, read: &HashMap<BlobId, Blob>) -> bool {
    let Some(deep) = deep.checked_sub(1) else { return true };
    if let Some(name) = value.get(NAMED) {
        let id = name.as_str().and_then(BlobId::parse);
        let Some(blob) = id.and_then(|id| read.get(&id)) else { return false };
        let head = value[HEAD].as_str().unwrap_or_default();
        *value = format!("{head}{}", STANDARD.encode(blob.bytes())).into();
        return true;
    }
    match value {
        Value::Array(list) => list.iter_mut().all(|value| put_back(value, deep, read)),
        Value::Object(fields) => fields.values_mut().all(|value| put_back(value, deep, read)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}
