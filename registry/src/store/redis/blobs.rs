//! Blobs in Redis: one key each, in the partition of its id.

use std::borrow::Cow;

use abide_actors::blobs::{Blob, BlobInfo, Blobs};
use abide_actors::journal::StoreError;
use abide_conversation::{BlobId, Scoped};
use async_trait::async_trait;
use bytes::Bytes;
use redis::{Cmd, cmd};

use super::super::sealing::Label;
use super::Redis;
use super::keys::{Key, Tag};
use crate::partition::Partition;

#[async_trait]
impl Blobs for Redis {
    async fn put_blob(&self, id: &Scoped<BlobId>, blob: &Blob) -> Result<bool, StoreError> {
        self.blob_by_script(id, Some(blob)).await
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
        self.blob_by_script(id, None).await
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
