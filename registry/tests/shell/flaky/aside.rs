//! What such a store keeps beside the journals.

use abide_actors::audit::{AuditLog, Entry};
use abide_actors::blobs::{Blob, BlobInfo, Blobs};
use abide_actors::journal::Refusal;
use abide_conversation::{BlobId, ConversationId, Timestamp};
use async_trait::async_trait;

use super::Flaky;

#[async_trait]
impl Blobs for Flaky {
    async fn put_blob(&self, id: &BlobId, blob: &Blob) -> Result<bool, Refusal> {
        self.has_room()?.put_blob(id, blob).await
    }

    async fn blob_info(&self, id: &BlobId) -> Result<Option<BlobInfo>, Refusal> {
        self.up()?.blob_info(id).await
    }

    async fn blob(&self, id: &BlobId) -> Result<Option<Blob>, Refusal> {
        self.up()?.blob(id).await
    }

    async fn delete_blob(&self, id: &BlobId) -> Result<bool, Refusal> {
        self.up()?.delete_blob(id).await
    }
}

#[async_trait]
impl AuditLog for Flaky {
    async fn keep_entry(
        &self,
        id: &ConversationId,
        entry: &Entry,
        expires_at: Timestamp,
    ) -> Result<(), Refusal> {
        self.has_room()?.keep_entry(id, entry, expires_at).await
    }

    async fn entries(
        &self,
        id: &ConversationId,
        before: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<Entry>, Refusal> {
        self.up()?.entries(id, before, limit, now).await
    }
}
