//! Blobs as a port: bytes that are kept beside the journals, so that events only name them.

mod abridged;
mod filled;
mod room;
mod taken;

use abide_conversation::BlobId;
use async_trait::async_trait;
use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::journal::StoreError;

pub use abridged::{abridged, names_any, restored};
pub use filled::filled;
pub use taken::stored;

/// The media type of bytes of which nothing is known.
const UNKNOWN: &str = "application/octet-stream";
/// The longest media type: it is journalled with the id, and sent as a header.
const MEDIA_TYPE_BYTES: usize = 255;

/// Bytes and what they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    media_type: String,
    bytes: Bytes,
}

/// What there is to know of a blob without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobInfo {
    pub media_type: String,
    /// In bytes.
    pub size: u64,
}

impl Blob {
    /// Bytes of a media type; one that no header could carry becomes `application/octet-stream`.
    pub fn new(media_type: &str, bytes: impl Into<Bytes>) -> Self {
        let media_type = media_type.trim();
        let visible = media_type.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        let fits = (1..=MEDIA_TYPE_BYTES).contains(&media_type.len()) && visible;
        let media_type = if fits { media_type } else { UNKNOWN };
        Self { media_type: media_type.to_owned(), bytes: bytes.into() }
    }

    /// The SHA-256 of the media type, a line feed and the bytes: the same bytes as another type are
    /// another blob, and nothing can be put under an id but what is there.
    pub fn id(&self) -> BlobId {
        let mut hash = Sha256::new();
        hash.update(&self.media_type);
        hash.update(b"\n");
        hash.update(&self.bytes);
        let digits: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        BlobId::new(format!("blob_{digits}"))
    }

    /// What the bytes are.
    pub fn media_type(&self) -> &str {
        &self.media_type
    }

    /// The bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The same without the bytes.
    pub fn info(&self) -> BlobInfo {
        BlobInfo { media_type: self.media_type.clone(), size: self.bytes.len() as u64 }
    }
}

/// Keeps blobs until an operator deletes them: nothing counts who names them, and they outlive the
/// conversations that do.
#[async_trait]
pub trait Blobs: Send + Sync + 'static {
    /// Keeps a blob under its own id, at the configured durability. Returns whether it is new;
    /// doing it twice is harmless.
    async fn put_blob(&self, id: &BlobId, blob: &Blob) -> Result<bool, StoreError>;

    /// What a blob is; its bytes are not read.
    async fn blob_info(&self, id: &BlobId) -> Result<Option<BlobInfo>, StoreError>;

    /// The blob, whole.
    async fn blob(&self, id: &BlobId) -> Result<Option<Blob>, StoreError>;

    /// Removes a blob, whoever names it. Returns whether it was there.
    async fn delete_blob(&self, id: &BlobId) -> Result<bool, StoreError>;
}

#[cfg(test)]
pub(crate) mod tests;
