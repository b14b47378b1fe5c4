//! Blobs in the file: the type and size of each in one table, its bytes in another.

use abide_actors::blobs::{Blob, BlobInfo, Blobs};
use abide_actors::journal::StoreError;
use abide_conversation::{BlobId, Scoped};
use async_trait::async_trait;
use bytes::Bytes;
use redb::{Error, ReadTransaction, ReadableTable, WriteTransaction};

use super::Embedded;
use super::tables;
use super::write::Write;

#[async_trait]
impl Blobs for Embedded {
    async fn put_blob(&self, id: &Scoped<BlobId>, blob: &Blob) -> Result<bool, StoreError> {
        // A blob that is stored already is not written again. If it is deleted right after this
        // check, that is the same as a deletion after this call.
        match self.blob_info(id).await? {
            Some(_) => Ok(false),
            None => self.write(Write::PutBlob { id: id.clone(), blob: blob.clone() }).await,
        }
    }

    async fn blob_info(&self, id: &Scoped<BlobId>) -> Result<Option<BlobInfo>, StoreError> {
        self.read_row(|from| info(from, id.as_str()))
    }

    async fn blob(&self, id: &Scoped<BlobId>) -> Result<Option<Blob>, StoreError> {
        let id = id.clone();
        self.read(move |from| {
            let Some(info) = info(from, id.as_str())? else { return Ok(None) };
            let bytes = from.open_table(tables::BLOBS)?.get(id.as_str())?;
            let bytes = bytes.map(|bytes| Bytes::copy_from_slice(bytes.value()));
            Ok(bytes.map(|bytes| Blob::new(&info.media_type, bytes)))
        })
        .await
    }

    async fn delete_blob(&self, id: &Scoped<BlobId>) -> Result<bool, StoreError> {
        self.write(Write::DeleteBlob { id: id.clone() }).await
    }
}

fn info(from: &ReadTransaction, id: &str) -> Result<Option<BlobInfo>, Error> {
    let row = from.open_table(tables::BLOB_TYPES)?.get(id)?;
    Ok(row.map(|row| {
        let (media_type, size) = row.value();
        BlobInfo { media_type: media_type.to_owned(), size }
    }))
}

/// Stores a blob. Returns whether it is new. Opens the tables here because few transactions need
/// them.
pub(super) fn put(to: &WriteTransaction, id: &str, blob: &Blob) -> Result<bool, Error> {
    let mut types = to.open_table(tables::BLOB_TYPES)?;
    if types.get(id)?.is_some() {
        return Ok(false);
    }
    types.insert(id, (blob.media_type(), blob.bytes().len() as u64))?;
    to.open_table(tables::BLOBS)?.insert(id, &blob.bytes()[..])?;
    Ok(true)
}

/// Deletes a blob. Returns whether it was there.
pub(super) fn delete(from: &WriteTransaction, id: &str) -> Result<bool, Error> {
    from.open_table(tables::BLOBS)?.remove(id)?;
    Ok(from.open_table(tables::BLOB_TYPES)?.remove(id)?.is_some())
}
