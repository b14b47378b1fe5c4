//! Blobs in Redis: one key each, in the partition of its id; and beside them, who names and who holds
//! each.

pub(super) mod names;

use std::borrow::Cow;

use abide_actors::blobs::{Blob, BlobHold, BlobInfo, Blobs};
use abide_actors::journal::StoreError;
use abide_conversation::{BlobId, Scoped};
use async_trait::async_trait;
use bytes::Bytes;
use redis::{Cmd, cmd};

use self::names::hold_keys;
use super::super::sealing::Label;
use super::Redis;
use super::administration::usage::BLOBS;
use super::command::keys::{self, Key, Tag};
use super::command::script::{Script, ScriptCall};
use super::scripts::{BLOB, HOLD_BLOB, REMOVE_BLOB};
use crate::partition::Partition;

#[async_trait]
impl Blobs for Redis {
    async fn store_blob(
        &self,
        id: &Scoped<BlobId>,
        blob: &Blob,
        hold: Option<&BlobHold>,
    ) -> Result<bool, StoreError> {
        let call = self.blob_call(&BLOB, id, &self.nonce()).arg(blob.media_type());
        let label = Label { kind: "blob", owner: id.as_str(), part: "" };
        let sealed = self.seal(label, Cow::Borrowed(blob.bytes()))?;
        let call = call.arg(blob.bytes().len()).arg(&*sealed).arg(id.as_str());
        let call = match hold {
            Some(hold) => call.arg(hold.holder.text()).arg(keys::score(hold.until)),
            None => call.arg("").arg(""),
        };
        self.call_large(call).await
    }

    async fn hold_blob(
        &self,
        id: &Scoped<BlobId>,
        hold: &BlobHold,
    ) -> Result<Option<BlobInfo>, StoreError> {
        let key = key_of(id);
        let [holds, due] = hold_keys(id);
        let call = ScriptCall::new(&HOLD_BLOB, key.tag(), [key, holds, due]);
        let call = call.arg(id.as_str()).arg(hold.holder.text()).arg(keys::score(hold.until));
        let found: Option<(String, u64)> = self.call_durably(call).await?;
        Ok(found.map(|(media_type, size)| BlobInfo { media_type, size }))
    }

    async fn blob_info(&self, id: &Scoped<BlobId>) -> Result<Option<BlobInfo>, StoreError> {
        let (tag, command) = query(id, ["type", "size"]);
        let row: (Option<String>, Option<u64>) = self.query(tag, command).await?;
        Ok(match row {
            (Some(media_type), Some(size)) => Some(BlobInfo { media_type, size }),
            _ => None,
        })
    }

    async fn blob(&self, id: &Scoped<BlobId>) -> Result<Option<Blob>, StoreError> {
        let (tag, command) = query(id, ["type", "bytes"]);
        let row: (Option<String>, Option<Bytes>) = self.query_large(tag, command).await?;
        let (Some(media_type), Some(bytes)) = row else { return Ok(None) };
        let label = Label { kind: "blob", owner: id.as_str(), part: "" };
        let opened = match self.open_value(label, Cow::Borrowed(&bytes))? {
            Cow::Owned(opened) => Some(Bytes::from(opened)),
            Cow::Borrowed(_) => None,
        };
        Ok(Some(Blob::new(&media_type, opened.unwrap_or(bytes))))
    }

    async fn delete_blob(&self, id: &Scoped<BlobId>) -> Result<bool, StoreError> {
        self.call_large(self.blob_call(&REMOVE_BLOB, id, &self.nonce()).arg(id.as_str())).await
    }
}

impl Redis {
    /// A call that stores or removes a blob.
    fn blob_call(&self, script: &'static Script, id: &Scoped<BlobId>, nonce: &str) -> ScriptCall {
        let key = key_of(id);
        let tag = key.tag();
        let [holds, due] = hold_keys(id);
        let counted = tag.listing(id.prefix(), BLOBS);
        ScriptCall::new(script, tag, [key, tag.own("done", nonce), counted, holds, due])
    }
}

/// The key of a blob.
pub(super) fn key_of(id: &Scoped<BlobId>) -> Key<'_> {
    Tag::Partition(Partition::of(id.as_str())).own("b", id.as_str())
}

fn query(id: &Scoped<BlobId>, fields: [&str; 2]) -> (Tag, Cmd) {
    let key = key_of(id);
    let mut command = cmd("HMGET");
    command.arg(key.into_string()).arg(&fields);
    (key.tag(), command)
}
