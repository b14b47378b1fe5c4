//! Who names and who holds each blob, in the file.

use std::collections::BTreeSet;

use abide_actors::blobs::{BlobHold, BlobHolder};
use abide_actors::journal::StoreError;
use abide_conversation::{BlobId, ConversationId, Scoped, Timestamp};
use async_trait::async_trait;
use redb::{Error, ReadTransaction, ReadableTable, TableDefinition, WriteTransaction};

use super::super::blob_names::{BlobNames, Naming, holder_to_write, partition_of};
use super::tables::{self, Nanos, nanos, timestamp};
use super::write::Write;
use super::{Embedded, blobs, listing};
use crate::partition::PartitionSet;

/// Conversation, blob that it names.
const NAMED: TableDefinition<(&str, &str), ()> = TableDefinition::new("named_blobs");
/// Blob, conversation that names it.
const NAMES: TableDefinition<(&str, &str), ()> = TableDefinition::new("blob_names");
/// Blob, holder → when the hold ends.
const HOLDS: TableDefinition<(&str, &str), Nanos> = TableDefinition::new("blob_holds");
/// When the first hold on a blob ends, blob.
const DUE: TableDefinition<(Nanos, &str), ()> = TableDefinition::new("blobs_due");
/// Follows every text that a row of a pair may have as its second part.
const LAST: &str = "\u{10ffff}";

/// A write of names or holds that is no commit.
pub(super) enum NameWrite {
    /// A conversation names blobs, if it is there.
    Name { id: Scoped<ConversationId>, namings: Vec<Naming> },
    /// The names of a conversation are dropped, unless it is there.
    Drop { id: Scoped<ConversationId> },
    /// A holder keeps a blob until then, if it is there.
    Hold { id: Scoped<BlobId>, holder: String, until: Nanos },
    /// The holds that have run out by then end, and that of a holder.
    End { id: Scoped<BlobId>, released: Option<String>, now: Nanos },
}

/// Creates the tables, so that reading never meets a missing one.
pub(super) fn create(to: &WriteTransaction) -> Result<(), Error> {
    to.open_table(NAMED)?;
    to.open_table(NAMES)?;
    to.open_table(HOLDS)?;
    to.open_table(DUE)?;
    Ok(())
}

/// Notes that a conversation names blobs, and ends the holds that were for this.
pub(super) fn name(
    to: &WriteTransaction,
    id: &Scoped<ConversationId>,
    namings: &[Naming],
) -> Result<(), Error> {
    if namings.is_empty() {
        return Ok(());
    }
    let (mut named, mut names) = (to.open_table(NAMED)?, to.open_table(NAMES)?);
    for naming in namings {
        let blob = &naming.blob;
        named.insert((id.as_str(), blob.as_str()), ())?;
        if blobs::is_stored(to, blob)? {
            names.insert((blob.as_str(), id.as_str()), ())?;
            let ends = |holder: &str, until| {
                timestamp(until).is_ok_and(|until| naming.ends(holder, until))
            };
            end_holds(to, blob, ends)?;
        }
    }
    Ok(())
}

/// Removes the names of a deleted conversation, and the blobs that have no other.
pub(super) fn drop_names(
    from: &WriteTransaction,
    id: &Scoped<ConversationId>,
) -> Result<(), Error> {
    let mut named = from.open_table(NAMED)?;
    let rows = named.range((id.as_str(), "")..=(id.as_str(), LAST))?;
    let blobs: Vec<String> =
        rows.map(|row| Ok(row?.0.value().1.to_owned())).collect::<Result<_, Error>>()?;
    if blobs.is_empty() {
        return Ok(());
    }
    named.retain_in((id.as_str(), "")..=(id.as_str(), LAST), |_, ()| false)?;
    for blob in blobs {
        from.open_table(NAMES)?.remove((blob.as_str(), id.as_str()))?;
        let blob = tables::id(&blob)?;
        if !remove_unused(from, &blob)? && is_unused(from, &blob)? {
            // It goes when it is known that no journal names it.
            hold(from, &blob, "", Nanos::MIN)?;
        }
    }
    Ok(())
}

/// Ends all holds on a blob that was deleted. Its names stay: they count again if it is stored again.
pub(super) fn forget_holds(to: &WriteTransaction, id: &Scoped<BlobId>) -> Result<(), Error> {
    end_holds(to, id, |_, _| true)
}

/// Holds a blob, not shorter than before.
pub(super) fn hold(
    to: &WriteTransaction,
    id: &Scoped<BlobId>,
    holder: &str,
    until: Nanos,
) -> Result<(), Error> {
    let before = first_end(to, id)?;
    let mut holds = to.open_table(HOLDS)?;
    let has_one = holds.get((id.as_str(), holder))?.is_some();
    let count = holds.range((id.as_str(), "")..=(id.as_str(), LAST))?.count();
    let holder = holder_to_write(holder, has_one, count);
    let earlier = holds.get((id.as_str(), &*holder))?.map(|until| until.value());
    holds.insert((id.as_str(), &*holder), earlier.map_or(until, |earlier| earlier.max(until)))?;
    drop(holds);
    set_due(to, id, before)
}

/// Applies a write.
pub(super) fn apply(to: &WriteTransaction, write: &NameWrite, exists: bool) -> Result<bool, Error> {
    match write {
        NameWrite::Name { id, namings } => {
            if exists {
                name(to, id, namings)?;
            }
            Ok(exists)
        }
        NameWrite::Drop { id } => {
            if !exists {
                drop_names(to, id)?;
            }
            Ok(!exists)
        }
        NameWrite::Hold { id, holder, until } => {
            let is_stored = blobs::is_stored(to, id)?;
            if is_stored {
                hold(to, id, holder, *until)?;
            }
            Ok(is_stored)
        }
        NameWrite::End { id, released, now } => {
            if !listing::has_blob_names(to)? {
                return Ok(false);
            }
            let released = released.as_deref();
            end_holds(to, id, |holder, until| until <= *now || released == Some(holder))?;
            remove_unused(to, id)
        }
    }
}

/// Ends these holds on a blob.
fn end_holds(
    to: &WriteTransaction,
    id: &Scoped<BlobId>,
    ends: impl Fn(&str, Nanos) -> bool,
) -> Result<(), Error> {
    let before = first_end(to, id)?;
    if before.is_none() {
        return Ok(());
    }
    let holds = (id.as_str(), "")..=(id.as_str(), LAST);
    to.open_table(HOLDS)?.retain_in(holds, |(_, holder), until| !ends(holder, until))?;
    set_due(to, id, before)
}

/// When the first hold on a blob ends; `None` if nobody holds it.
fn first_end(to: &WriteTransaction, id: &Scoped<BlobId>) -> Result<Option<Nanos>, Error> {
    let holds = to.open_table(HOLDS)?;
    let mut first = None;
    for row in holds.range((id.as_str(), "")..=(id.as_str(), LAST))? {
        let until = row?.1.value();
        first = Some(first.map_or(until, |first: Nanos| first.min(until)));
    }
    Ok(first)
}

/// Moves a blob to where its first hold ends, given where it was.
fn set_due(to: &WriteTransaction, id: &Scoped<BlobId>, before: Option<Nanos>) -> Result<(), Error> {
    let after = first_end(to, id)?;
    if before != after {
        let mut due = to.open_table(DUE)?;
        if let Some(before) = before {
            due.remove((before, id.as_str()))?;
        }
        if let Some(after) = after {
            due.insert((after, id.as_str()), ())?;
        }
    }
    Ok(())
}

fn is_unused(from: &WriteTransaction, id: &Scoped<BlobId>) -> Result<bool, Error> {
    let names = from.open_table(NAMES)?;
    let name = names.range((id.as_str(), "")..=(id.as_str(), LAST))?.next().transpose()?;
    Ok(name.is_none() && first_end(from, id)?.is_none() && blobs::is_stored(from, id)?)
}

/// Removes a blob that nothing names or holds, once all names are known. Returns whether it did.
fn remove_unused(from: &WriteTransaction, id: &Scoped<BlobId>) -> Result<bool, Error> {
    if listing::has_blob_names(from)? && is_unused(from, id)? {
        blobs::delete(from, id)
    } else {
        Ok(false)
    }
}

/// The next conversations that have names, from the one after this on: the last of them unless the end
/// was reached, and those that are not there.
fn lost_after(
    from: &ReadTransaction,
    after: &str,
    limit: usize,
) -> Result<(Option<String>, Vec<Scoped<ConversationId>>), Error> {
    let named = from.open_table(NAMED)?;
    let (mut after, mut lost) = (after.to_owned(), Vec::new());
    for _ in 0..limit {
        let next = named.range((after.as_str(), LAST)..)?.next().transpose()?;
        let Some((key, _)) = next else { return Ok((None, lost)) };
        after = key.value().0.to_owned();
        let id: Scoped<ConversationId> = tables::id(&after)?;
        let heads = tables::HEADS.open(from, &id.tenant())?;
        let is_there = match heads {
            Some(heads) => heads.get(id.as_str())?.is_some(),
            None => false,
        };
        if !is_there {
            lost.push(id);
        }
    }
    Ok((Some(after), lost))
}

fn due(
    from: &ReadTransaction,
    partitions: &PartitionSet,
    until: Nanos,
    limit: usize,
) -> Result<Vec<Scoped<BlobId>>, Error> {
    let mut due = Vec::new();
    for row in from.open_table(DUE)?.range(..=(until, LAST))? {
        let id = tables::id(row?.0.value().1)?;
        if partitions.contains(partition_of(&id)) {
            due.push(id);
        }
        if due.len() >= limit {
            break;
        }
    }
    Ok(due)
}

#[async_trait]
impl BlobNames for Embedded {
    async fn named_blobs(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<BTreeSet<BlobId>, StoreError> {
        self.read_row(|from| {
            let rows = from.open_table(NAMED)?;
            let rows = rows.range((id.as_str(), "")..=(id.as_str(), LAST))?;
            rows.map(|row| Ok(tables::id::<BlobId>(row?.0.value().1)?.local())).collect()
        })
    }

    async fn name_blobs(
        &self,
        id: &Scoped<ConversationId>,
        blobs: &BTreeSet<BlobId>,
    ) -> Result<(), StoreError> {
        let namings = Naming::unsent(id, blobs);
        self.write(Write::Names(NameWrite::Name { id: id.clone(), namings })).await.map(drop)
    }

    async fn due_blobs(
        &self,
        partitions: &PartitionSet,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Scoped<BlobId>>, StoreError> {
        self.read_row(|from| due(from, partitions, nanos(until), limit))
    }

    async fn blob_holds(&self, id: &Scoped<BlobId>) -> Result<Vec<BlobHold>, StoreError> {
        self.read_row(|from| {
            let mut holds = Vec::new();
            let table = from.open_table(HOLDS)?;
            for row in table.range((id.as_str(), "")..=(id.as_str(), LAST))? {
                let (key, until) = row?;
                if let Some(holder) = BlobHolder::parse(key.value().1) {
                    holds.push(BlobHold { holder, until: timestamp(until.value())? });
                }
            }
            Ok(holds)
        })
    }

    async fn end_holds(
        &self,
        id: &Scoped<BlobId>,
        released: Option<&BlobHolder>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let (released, now) = (released.map(BlobHolder::text), nanos(now));
        self.write(Write::Names(NameWrite::End { id: id.clone(), released, now })).await
    }

    async fn drop_lost_names(
        &self,
        _: &PartitionSet,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Option<String>, StoreError> {
        let after = cursor.unwrap_or_default();
        let (cursor, lost) = self.read_row(|from| lost_after(from, after, limit))?;
        for id in lost {
            self.write(Write::Names(NameWrite::Drop { id })).await?;
        }
        Ok(cursor)
    }
}
