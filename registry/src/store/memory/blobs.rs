//! Blobs in memory.

use abide_actors::blobs::{Blob, BlobInfo, Blobs};
use abide_actors::journal::StoreError;
use abide_conversation::{BlobId, Scoped};
use async_trait::async_trait;

use super::Memory;

#[async_trait]
impl Blobs for Memory {
    async fn put_blob(&self, id: &Scoped<BlobId>, blob: &Blob) -> Result<bool, StoreError> {
        Ok(self.tables().blobs.insert(id.clone(), blob.clone()).is_none())
    }

    async fn blob_info(&self, id: &Scoped<BlobId>) -> Result<Option<BlobInfo>, StoreError> {
        Ok(self.tables().blobs.get(id).map(Blob::info))
    }

    async fn blob(&self, id: &Scoped<BlobId>) -> Result<Option<Blob>, StoreError> {
        Ok(self.tables().blobs.get(id).cloned())
    }

    async fn delete_blob(&self, id: &Scoped<BlobId>) -> Result<bool, StoreError> {
        Ok(self.tables().blobs.remove(id).is_some())
    }
}
