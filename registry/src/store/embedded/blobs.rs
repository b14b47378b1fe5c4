//! Blobs in the file: the type and size of each in one table, its bytes in another.

use std::borrow::Cow;
use std::collections::BTreeMap;

use abide_actors::blobs::{Blob, BlobHold, BlobInfo, Blobs};
use abide_actors::journal::StoreError;
use abide_conversation::{BlobId, Scoped, Tenant};
use async_trait::async_trait;
use bytes::Bytes;
use redb::{Error, ReadTransaction, ReadableTable, ReadableTableMetadata, WriteTransaction};

use super::super::sealing::Label;
use super::Embedded;
use super::blob_names::{self, NameWrite};
use super::encryption::failed;
use super::tables::{self, Nanos, nanos};
use super::write::Write;

#[async_trait]
impl Blobs for Embedded {
    async fn store_blob(
        &self,
        id: &Scoped<BlobId>,
        blob: &Blob,
        hold: Option<&BlobHold>,
    ) -> Result<bool, StoreError> {
        // A blob that is stored already is not written again, and a hold makes sure that it stays.
        // Without one, a deletion right after this check is the same as a deletion after this call.
        let is_stored = match hold {
            Some(hold) => self.hold_blob(id, hold).await?.is_some(),
            None => self.blob_info(id).await?.is_some(),
        };
        if is_stored {
            return Ok(false);
        }
        let sealed = match self.sealer() {
            None => None,
            Some(sealer) => Some(sealer.seal(label(id), Cow::Borrowed(blob.bytes()))?),
        };
        let sealed = sealed.map(Cow::into_owned);
        let hold = hold.map(|hold| (hold.holder.text(), nanos(hold.until)));
        let put = NewBlob { id: id.clone(), blob: blob.clone(), sealed, hold };
        self.write(Write::PutBlob(Box::new(put))).await
    }

    async fn hold_blob(
        &self,
        id: &Scoped<BlobId>,
        hold: &BlobHold,
    ) -> Result<Option<BlobInfo>, StoreError> {
        let (holder, until) = (hold.holder.text(), nanos(hold.until));
        let write = NameWrite::Hold { id: id.clone(), holder, until };
        if self.blob_info(id).await?.is_none() || !self.write(Write::Names(write)).await? {
            return Ok(None);
        }
        self.blob_info(id).await
    }

    async fn blob_info(&self, id: &Scoped<BlobId>) -> Result<Option<BlobInfo>, StoreError> {
        self.read_row(|from| info(from, id.as_str()))
    }

    async fn blob(&self, id: &Scoped<BlobId>) -> Result<Option<Blob>, StoreError> {
        let id = id.clone();
        self.read(move |from| {
            let Some(info) = info(from, id.as_str())? else { return Ok(None) };
            let bytes = from.open_table(tables::BLOBS)?.get(id.as_str())?;
            let Some(bytes) = bytes else { return Ok(None) };
            let bytes = match from.sealer {
                None => Cow::Borrowed(bytes.value()),
                Some(sealer) => sealer.open(label(&id), bytes.value().into()).map_err(failed)?,
            };
            Ok(Some(Blob::new(&info.media_type, Bytes::from(bytes.into_owned()))))
        })
        .await
    }

    async fn delete_blob(&self, id: &Scoped<BlobId>) -> Result<bool, StoreError> {
        self.write(Write::DeleteBlob { id: id.clone() }).await
    }
}

fn label(id: &Scoped<BlobId>) -> Label<'_> {
    Label { kind: "blob", owner: id.as_str(), part: "" }
}

fn info(from: &ReadTransaction, id: &str) -> Result<Option<BlobInfo>, Error> {
    let row = from.open_table(tables::BLOB_TYPES)?.get(id)?;
    Ok(row.map(|row| {
        let (media_type, size) = row.value();
        BlobInfo { media_type: media_type.to_owned(), size }
    }))
}

/// A blob that is to be stored.
pub(super) struct NewBlob {
    id: Scoped<BlobId>,
    blob: Blob,
    /// The bytes as they are stored, if they are sealed.
    sealed: Option<Vec<u8>>,
    /// Who holds it, and until when.
    hold: Option<(String, Nanos)>,
}

/// Whether a blob is stored.
pub(super) fn is_stored(from: &WriteTransaction, id: &Scoped<BlobId>) -> Result<bool, Error> {
    Ok(from.open_table(tables::BLOB_TYPES)?.get(id.as_str())?.is_some())
}

/// Stores a blob. Returns whether it is new. Opens the tables here because few transactions need
/// them.
pub(super) fn put(to: &WriteTransaction, new: &NewBlob) -> Result<bool, Error> {
    let NewBlob { id, blob, sealed, hold } = new;
    if let Some((holder, until)) = hold {
        blob_names::hold(to, id, holder, *until)?;
    }
    let mut types = to.open_table(tables::BLOB_TYPES)?;
    if types.get(id.as_str())?.is_some() {
        return Ok(false);
    }
    let sealed = sealed.as_deref();
    let bytes = blob.bytes().len() as u64;
    types.insert(id.as_str(), (blob.media_type(), bytes))?;
    to.open_table(tables::BLOBS)?.insert(id.as_str(), sealed.unwrap_or(blob.bytes()))?;
    count(to, id, |counted| counted.saturating_add(bytes), |blobs| blobs.saturating_add(1))?;
    Ok(true)
}

/// Deletes a blob, and the holds on it. Returns whether it was there.
pub(super) fn delete(from: &WriteTransaction, id: &Scoped<BlobId>) -> Result<bool, Error> {
    blob_names::forget_holds(from, id)?;
    let mut types = from.open_table(tables::BLOB_TYPES)?;
    from.open_table(tables::BLOBS)?.remove(id.as_str())?;
    let bytes = types.remove(id.as_str())?.map(|row| row.value().1);
    if let Some(bytes) = bytes {
        count(from, id, |counted| counted.saturating_sub(bytes), |blobs| blobs.saturating_sub(1))?;
    }
    Ok(bytes.is_some())
}

/// Changes what is counted of a tenant's blobs, and how many blobs are counted.
fn count(
    to: &WriteTransaction,
    id: &Scoped<BlobId>,
    change: impl FnOnce(u64) -> u64,
    change_number: impl FnOnce(u64) -> u64,
) -> Result<(), Error> {
    let tenant = id.tenant();
    let mut counts = to.open_table(tables::BLOB_BYTES)?;
    let counted = counts.get(tenant.as_str())?.map_or(0, |counted| counted.value());
    counts.insert(tenant.as_str(), change(counted))?;
    let mut meta = to.open_table(tables::META)?;
    let blobs = meta.get(tables::BLOBS_ROW)?.map_or(0, |blobs| blobs.value());
    meta.insert(tables::BLOBS_ROW, change_number(blobs))?;
    Ok(())
}

/// Counts all blobs, unless they are counted: a program of an earlier version changed them without
/// counting.
pub(super) fn count_again(to: &WriteTransaction) -> Result<(), Error> {
    let types = to.open_table(tables::BLOB_TYPES)?;
    let mut meta = to.open_table(tables::META)?;
    let mut counts = to.open_table(tables::BLOB_BYTES)?;
    let counted = meta.get(tables::BLOBS_ROW)?.map_or(0, |counted| counted.value());
    if counted == types.len()? {
        return Ok(());
    }
    let mut bytes: BTreeMap<Tenant, u64> = BTreeMap::new();
    for row in types.iter()? {
        let (id, info) = row?;
        let tenant = tables::id::<BlobId>(id.value())?.tenant();
        *bytes.entry(tenant).or_default() += info.value().1;
    }
    counts.retain(|_, _| false)?;
    for (tenant, bytes) in bytes {
        counts.insert(tenant.as_str(), bytes)?;
    }
    meta.insert(tables::BLOBS_ROW, types.len()?)?;
    Ok(())
}
