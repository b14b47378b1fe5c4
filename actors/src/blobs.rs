//! The port for blobs: bytes stored outside the journals, so that events only refer to them.

mod extract;
mod hold;
mod inline;
mod naming;
mod request_budget;
mod strip_base64;

use abide_conversation::{BlobId, ConversationId, Scoped, Timestamp};
use async_trait::async_trait;
use bytes::Bytes;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use crate::journal::StoreError;

pub use crate::named_blobs::named_blobs;
pub use extract::{extract_media, extractable_bytes};
pub use hold::{BlobHold, BlobHolder, MAX_BLOB_HOLDS, UNNAMED_BLOB_TTL};
pub use inline::inline_media;
pub use naming::{NamedBlobs, blobs_of_commit};
pub use strip_base64::{has_placeholder, restore_base64, strip_base64};

/// The media type of unknown bytes.
const UNKNOWN_MEDIA_TYPE: &str = "application/octet-stream";
/// The longest media type; it is journalled with the id, and sent as a header.
const MAX_MEDIA_TYPE_BYTES: usize = 255;

/// Bytes with their media type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    media_type: String,
    bytes: Bytes,
}

/// The properties of a blob without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobInfo {
    pub media_type: String,
    /// In bytes.
    pub size: u64,
}

impl Blob {
    /// A blob of this media type; one that a header cannot carry becomes
    /// `application/octet-stream`.
    pub fn new(media_type: &str, bytes: impl Into<Bytes>) -> Self {
        let media_type = media_type.trim();
        let visible = media_type.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        let fits = (1..=MAX_MEDIA_TYPE_BYTES).contains(&media_type.len()) && visible;
        let media_type = if fits { media_type } else { UNKNOWN_MEDIA_TYPE };
        Self { media_type: media_type.to_owned(), bytes: bytes.into() }
    }

    /// The SHA-256 of the media type, a line feed and the bytes. So the same bytes with another
    /// type are another blob, and an id cannot be taken by other content.
    pub fn id(&self) -> BlobId {
        let mut hash = Sha256::new();
        hash.update(&self.media_type);
        hash.update(b"\n");
        hash.update(&self.bytes);
        BlobId::new(format!("blob_{}", HEXLOWER.encode(&hash.finalize())))
    }

    /// The media type.
    pub fn media_type(&self) -> &str {
        &self.media_type
    }

    /// The bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The properties without the bytes.
    pub fn info(&self) -> BlobInfo {
        BlobInfo { media_type: self.media_type.clone(), size: self.bytes.len() as u64 }
    }
}

/// Stores blobs. A blob goes with the last conversation that names it, or when nobody holds it any
/// longer; before that only if an operator deletes it.
#[async_trait]
pub trait Blobs: Send + Sync + 'static {
    /// Stores a blob under its own id, with the configured durability, and holds it. Returns whether
    /// it is new; storing it twice is harmless, and renews the hold, which never ends earlier than
    /// before. A hold that is [one too many](MAX_BLOB_HOLDS) is that of all others.
    async fn store_blob(
        &self,
        id: &Scoped<BlobId>,
        blob: &Blob,
        hold: Option<&BlobHold>,
    ) -> Result<bool, StoreError>;

    /// Stores a blob that nobody holds: it stays until something that names it goes.
    async fn put_blob(&self, id: &Scoped<BlobId>, blob: &Blob) -> Result<bool, StoreError> {
        self.store_blob(id, blob, None).await
    }

    /// Holds a blob that is stored, so that nothing removes it before the holder has named it. Returns
    /// its properties; `None` if it is not stored.
    async fn hold_blob(
        &self,
        id: &Scoped<BlobId>,
        hold: &BlobHold,
    ) -> Result<Option<BlobInfo>, StoreError>;

    /// The properties of a blob, without reading its bytes.
    async fn blob_info(&self, id: &Scoped<BlobId>) -> Result<Option<BlobInfo>, StoreError>;

    /// Reads the whole blob.
    async fn blob(&self, id: &Scoped<BlobId>) -> Result<Option<Blob>, StoreError>;

    /// Deletes a blob even if something refers to it. Returns whether it existed.
    async fn delete_blob(&self, id: &Scoped<BlobId>) -> Result<bool, StoreError>;
}

/// The blobs of the tenant of a conversation, or of another holder, which holds what is stored.
#[derive(Clone, Copy)]
pub struct TenantBlobs<'a> {
    blobs: &'a dyn Blobs,
    id: &'a Scoped<ConversationId>,
    hold: Option<&'a BlobHold>,
}

impl<'a> TenantBlobs<'a> {
    /// The blobs of the tenant of this conversation, in a store of all, to be read.
    pub fn new(blobs: &'a dyn Blobs, id: &'a Scoped<ConversationId>) -> Self {
        Self { blobs, id, hold: None }
    }

    /// The blobs with a hold on those that are stored.
    #[must_use]
    pub fn holding(self, hold: &'a BlobHold) -> Self {
        Self { hold: Some(hold), ..self }
    }

    async fn put(self, blob: &Blob) -> Result<bool, StoreError> {
        self.blobs.store_blob(&self.id.sibling(&blob.id()), blob, self.hold).await
    }

    async fn info(self, id: &BlobId) -> Result<Option<BlobInfo>, StoreError> {
        self.blobs.blob_info(&self.id.sibling(id)).await
    }

    async fn get(self, id: &BlobId) -> Result<Option<Blob>, StoreError> {
        self.blobs.blob(&self.id.sibling(id)).await
    }
}

impl BlobHold {
    /// The hold of a conversation that is about to name a blob.
    pub fn of_conversation(id: &Scoped<ConversationId>, now: Timestamp) -> Self {
        Self::new(BlobHolder::Conversation(id.local()), now)
    }
}

#[cfg(test)]
pub(crate) mod tests;
