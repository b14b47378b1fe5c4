//! Changes of schedules together with the holds on the blobs that their messages name.
//!
//! A hold is that of one put. It is written before the schedule, and released by whoever has removed or
//! replaced what that put wrote, or by the put itself if it wrote nothing. So no order of steps takes
//! the blobs of a schedule that is there, and none leaves those of one that is not.

use abide_actors::blobs::BlobHolder;
use abide_actors::journal::StoreError;
use abide_conversation::{BlobId, ScheduleName, Scoped, Timestamp};

use crate::schedules::Schedule;
use crate::store::{BlobNames, Schedules};

/// Writes a schedule over the one that was read, or removes that one, as
/// [`Schedules::replace_schedule`] does, and releases the blobs of the put that counts no more. The
/// holds of `next` are there already.
pub async fn replace<S: Schedules + BlobNames + ?Sized>(
    store: &S,
    name: &Scoped<ScheduleName>,
    before: Option<&Schedule>,
    next: Option<&Schedule>,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let known = before.map(|before| before.version);
    if !store.replace_schedule(name, known, next).await? {
        return Ok(false);
    }
    if let Some(before) = before
        && next.is_none_or(|next| next.blob_holder() != before.blob_holder())
    {
        release(store, name, &before.blob_holder(), before.named_blobs(), now).await;
    }
    Ok(true)
}

/// Ends the holds of a put that wrote nothing, or that counts no more. Those that cannot be ended run
/// out.
pub async fn release<S: BlobNames + ?Sized>(
    store: &S,
    name: &Scoped<ScheduleName>,
    holder: &BlobHolder,
    blobs: impl IntoIterator<Item = BlobId>,
    now: Timestamp,
) {
    for blob in blobs {
        if let Err(error) = store.end_holds(&name.sibling(&blob), Some(holder), now).await {
            tracing::debug!(schedule = %name, %error, "blobs of a schedule not released");
            return;
        }
    }
}

/// Whether the holder is a put of a schedule that is there and whose messages name the blob.
pub(crate) async fn is_kept<S: Schedules + ?Sized>(
    store: &S,
    blob: &Scoped<BlobId>,
    holder: &BlobHolder,
) -> Result<bool, StoreError> {
    let BlobHolder::Schedule { name, .. } = holder else { return Ok(false) };
    match store.schedule(&blob.sibling(name)).await {
        Ok(schedule) => Ok(schedule.is_some_and(|it| it.keeps(holder, &blob.local()))),
        // It may name the blob, and must not hold up what others hold.
        Err(StoreError::Unreadable(_)) => Ok(true),
        Err(error) => Err(error),
    }
}
