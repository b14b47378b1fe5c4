//! Who names and who holds each blob, in Redis.
//!
//! The names of a blob are in its own slot, and the blobs of a conversation in that of the
//! conversation. So a commit that names blobs first notes them with the conversation, then with each
//! blob, and only then appends. A deletion moves what the conversation named aside in its own step;
//! then the names are removed, at once, and once more when whoever had not known of it is done.

use std::collections::{BTreeMap, BTreeSet};

use abide_actors::blobs::{BlobHold, BlobHolder};
use abide_actors::identity::Epoch;
use abide_actors::journal::{Claim, StoreError};
use abide_conversation::{BlobId, ConversationId, Scoped, Timestamp};
use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use redis::cmd;

use super::super::super::Lists;
use super::super::super::blob_names::{BlobNames, DroppedNames, Naming, partition_of};
use super::super::Redis;
use super::super::administration::usage::BLOBS;
use super::super::command::keys::{self, Key, Tag};
use super::super::command::script::ScriptCall;
use super::super::connection::execute::read;
use super::super::scripts::{
    DROP_BLOBS, DROPPED_NAMES, END_HOLDS, LOST_NAMES, NAME_BLOBS, REFER_BLOBS,
};
use crate::partition::{Partition, PartitionSet};

/// Blobs that one call of a script is about: some thousands of keys.
const BLOBS_PER_CALL: usize = 500;
/// Partitions whose blobs are written at once.
const MAX_CONCURRENT_CALLS: usize = 16;
/// Deletions with names to drop.
const DROPS: &str = "drops";
/// Conversations that have named blobs.
const NAMERS: &str = "namers";
/// Partitions that are looked at for lost names at once, also if they have none.
pub(in crate::store::redis) const PARTITIONS_PER_LOOK: usize = 16;
/// When blobs are due.
const DUE: &str = "blobs_due";

/// The key of the blobs that a conversation may name, each with the epoch of the last claim that did.
pub(in crate::store::redis) fn named_key(id: &Scoped<ConversationId>) -> Key<'_> {
    Tag::of(id).own("named", id.as_str())
}

/// What stands for a deletion.
pub(in crate::store::redis) fn deletion_name(id: &Scoped<ConversationId>, epoch: Epoch) -> String {
    format!("{epoch}:{id}")
}

/// The keys of the blobs that a deletion has left to drop, given its name, and of all such deletions.
pub(in crate::store::redis) fn dropped_keys(tag: Tag, deletion: &str) -> [Key<'_>; 2] {
    [tag.own("dropped", deletion), tag.common(DROPS)]
}

/// The key of the conversations that have named blobs.
pub(in crate::store::redis) fn namers_key(tag: Tag) -> Key<'static> {
    tag.common(NAMERS)
}

/// The keys of the holds on a blob, and of when blobs are due.
pub(super) fn hold_keys(id: &Scoped<BlobId>) -> [Key<'_>; 2] {
    let tag = Tag::Partition(partition_of(id));
    [tag.own("holds", id.as_str()), tag.common(DUE)]
}

/// The keys of a blob, its names and its holds.
fn keys_of(id: &Scoped<BlobId>) -> [Key<'_>; 3] {
    let key = super::key_of(id);
    [key, key.tag().own("names", id.as_str()), key.tag().own("holds", id.as_str())]
}

/// What is about blobs, a part of a partition at a time.
fn by_partition<T: Clone>(
    items: impl IntoIterator<Item = T>,
    blob_of: impl Fn(&T) -> &Scoped<BlobId>,
) -> Vec<(Partition, Vec<T>)> {
    let mut parts: BTreeMap<Partition, Vec<T>> = BTreeMap::new();
    for item in items {
        parts.entry(partition_of(blob_of(&item))).or_default().push(item);
    }
    let chunks = parts.into_iter().flat_map(|(partition, items)| {
        let chunks: Vec<_> = items.chunks(BLOBS_PER_CALL).map(<[_]>::to_vec).collect();
        chunks.into_iter().map(move |chunk| (partition, chunk))
    });
    chunks.collect()
}

impl Redis {
    /// Notes what a commit names that is about to be appended.
    pub(in crate::store::redis) async fn name_before_commit(
        &self,
        id: &Scoped<ConversationId>,
        held: &Claim,
        namings: &[Naming],
    ) -> Result<(), StoreError> {
        if namings.is_empty() {
            return Ok(());
        }
        if self.name_by_script(id, Some(held), namings).await? {
            Ok(())
        } else {
            metrics::counter!("abide_fenced_writes_total").increment(1);
            Err(StoreError::Fenced)
        }
    }

    /// Returns whether the conversation is there, or the claim is the present one.
    async fn name_by_script(
        &self,
        id: &Scoped<ConversationId>,
        held: Option<&Claim>,
        namings: &[Naming],
    ) -> Result<bool, StoreError> {
        let tag = Tag::of(id);
        let keys = [tag.own("c", id.as_str()), named_key(id), tag.common(DROPS), namers_key(tag)];
        let call = ScriptCall::new(&NAME_BLOBS, tag, keys);
        let call = match held {
            Some(held) => call.held(held),
            None => call.arg("").arg("").arg(""),
        };
        let mut call = call.arg(id.as_str());
        for naming in namings {
            call = call.arg(naming.blob.local().as_str());
        }
        let Some(epoch) = self.call_durably::<Option<String>>(call).await? else {
            return Ok(false);
        };
        let parts = by_partition(namings.iter().cloned(), |naming| &naming.blob).into_iter();
        let calls = parts.map(|part| self.refer_part(id, &epoch, part));
        stream::iter(calls).buffer_unordered(MAX_CONCURRENT_CALLS).try_collect::<Vec<_>>().await?;
        Ok(true)
    }

    async fn refer_part(
        &self,
        id: &Scoped<ConversationId>,
        epoch: &str,
        (partition, namings): (Partition, Vec<Naming>),
    ) -> Result<u64, StoreError> {
        let tag = Tag::Partition(partition);
        let blobs = namings.iter().flat_map(|naming| keys_of(&naming.blob));
        let keys: Vec<_> = [tag.common(DUE)].into_iter().chain(blobs).collect();
        let mut call = ScriptCall::new(&REFER_BLOBS, tag, keys).arg(id.as_str()).arg(epoch);
        for Naming { blob, ended } in &namings {
            call = call.arg(blob.as_str()).arg(ended.len());
            for BlobHold { holder, until } in ended {
                call = call.arg(holder.text()).arg(keys::score(*until));
            }
        }
        self.call_durably(call).await
    }

    /// Removes the names of a conversation that was deleted just now. What fails is done later.
    pub(in crate::store::redis) async fn drop_names_at_once(
        &self,
        id: &Scoped<ConversationId>,
        epoch: Epoch,
    ) {
        let dropped = DroppedNames { id: id.clone(), epoch };
        // Whatever is kept meanwhile is looked at as soon as anybody looks.
        if let Err(error) = self.drop_names(&dropped, false, Timestamp::UNIX_EPOCH).await {
            tracing::warn!(conversation = %id, %error, "blobs of a deletion not dropped yet");
        }
    }

    /// Notes of the conversations after this one, in a partition, whose names are lost that they are to
    /// be dropped. Returns the last of those it looked at, and how many these were.
    async fn note_lost_names(
        &self,
        partition: Partition,
        after: &str,
        limit: usize,
    ) -> Result<(Option<String>, usize), StoreError> {
        let tag = Tag::Partition(partition);
        let first = if after.is_empty() { "-".to_owned() } else { format!("({after}") };
        let mut command = cmd("ZRANGE");
        command.arg(namers_key(tag).into_string()).arg(first).arg("+").arg("BYLEX");
        command.arg("LIMIT").arg(0).arg(limit);
        let namers: Vec<String> = self.query(tag, command).await?;
        if namers.is_empty() {
            return Ok((None, 0));
        }
        let own = namers.iter().flat_map(|id| [tag.own("c", id), tag.own("named", id)]);
        let keys: Vec<_> = [namers_key(tag), tag.common(DROPS)].into_iter().chain(own).collect();
        let mut call = ScriptCall::new(&LOST_NAMES, tag, keys);
        for id in &namers {
            call = call.arg(id);
        }
        let lost: u64 = self.call_durably(call).await?;
        if lost > 0 {
            tracing::info!(lost, "names of blobs found whose conversations are not there");
        }
        Ok((namers.last().cloned(), namers.len()))
    }

    /// Whether all names of blobs are known.
    async fn has_blob_names(&self) -> Result<bool, StoreError> {
        Ok(self.rebuild().await?.is_some_and(|rebuild| rebuild.has_blob_names))
    }

    async fn drop_part(
        &self,
        DroppedNames { id, epoch }: &DroppedNames,
        (partition, blobs): (Partition, Vec<Scoped<BlobId>>),
        (now, is_known): (Timestamp, bool),
    ) -> Result<u64, StoreError> {
        let tag = Tag::Partition(partition);
        let common = [tag.common(DUE), tag.listing(id.prefix(), BLOBS)];
        let keys: Vec<_> = common.into_iter().chain(blobs.iter().flat_map(keys_of)).collect();
        let mut call = ScriptCall::new(&DROP_BLOBS, tag, keys)
            .arg(id.as_str())
            .arg(epoch.get())
            .arg(keys::score(now))
            .arg(if is_known { "1" } else { "" });
        for blob in &blobs {
            call = call.arg(blob.as_str());
        }
        self.call_durably(call).await
    }
}

#[async_trait]
impl BlobNames for Redis {
    async fn named_blobs(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<BTreeSet<BlobId>, StoreError> {
        let key = named_key(id);
        let mut command = cmd("ZRANGE");
        command.arg(key.into_string()).arg(0).arg(-1);
        let named: Vec<String> = self.query(key.tag(), command).await?;
        Ok(named.into_iter().map(BlobId::new).collect())
    }

    async fn name_blobs(
        &self,
        id: &Scoped<ConversationId>,
        blobs: &BTreeSet<BlobId>,
    ) -> Result<(), StoreError> {
        if blobs.is_empty() {
            return Ok(());
        }
        self.name_by_script(id, None, &Naming::unsent(id, blobs)).await.map(drop)
    }

    async fn due_blobs(
        &self,
        partitions: &PartitionSet,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Scoped<BlobId>>, StoreError> {
        let until =
            if until == Timestamp::MAX { "+inf".to_owned() } else { keys::score_until(until) };
        let mut due = self.read_due(DUE, partitions, &until, limit).await?;
        due.sort_by(|(id, at), (other, later)| (at, id).cmp(&(later, other)));
        let parsed = |id: &str| Scoped::parse(id).map_err(|error| unreadable(&error));
        due.iter().map(|(id, _)| parsed(id)).collect()
    }

    async fn blob_holds(&self, id: &Scoped<BlobId>) -> Result<Vec<BlobHold>, StoreError> {
        let [key, _] = hold_keys(id);
        let mut command = cmd("ZRANGE");
        command.arg(key.into_string()).arg(0).arg(-1).arg("WITHSCORES");
        let holds: Vec<(String, f64)> = self.query(key.tag(), command).await?;
        let holds = holds.iter().filter_map(|(holder, until)| {
            Some(BlobHold { holder: BlobHolder::parse(holder)?, until: keys::time(*until) })
        });
        Ok(holds.collect())
    }

    async fn end_holds(
        &self,
        id: &Scoped<BlobId>,
        released: Option<&BlobHolder>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        if !self.has_blob_names().await? {
            return Ok(false);
        }
        let ([blob, names, holds], nonce) = (keys_of(id), self.nonce());
        let tag = blob.tag();
        let counted = tag.listing(id.prefix(), BLOBS);
        let keys = [tag.common(DUE), counted, blob, names, holds, tag.own("done", &nonce)];
        let released = released.map(BlobHolder::text).unwrap_or_default();
        let call = ScriptCall::new(&END_HOLDS, tag, keys);
        self.call_durably(call.arg(id.as_str()).arg(keys::score_until(now)).arg(released)).await
    }

    async fn dropped_names(
        &self,
        partitions: &PartitionSet,
        limit: usize,
    ) -> Result<Vec<DroppedNames>, StoreError> {
        let queries = partitions.iter().map(|partition| {
            let tag = Tag::Partition(partition);
            let mut command = cmd("ZRANGE");
            command.arg(tag.key(DROPS)).arg(0).arg(limit.saturating_sub(1));
            (tag, command)
        });
        let mut dropped = Vec::new();
        for answer in self.query_all(queries.collect()).await? {
            let names: Vec<String> = read(DROPS, answer)?;
            dropped.extend(names.iter().filter_map(|name| parse_deletion(name)));
        }
        Ok(dropped)
    }

    async fn drop_names(
        &self,
        dropped: &DroppedNames,
        last: bool,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let DroppedNames { id, epoch } = dropped;
        let (tag, deletion) = (Tag::of(id), deletion_name(id, *epoch));
        let [left, drops] = dropped_keys(tag, &deletion);
        let keys = [tag.own("c", id.as_str()), named_key(id), left];
        let call = ScriptCall::new(&DROPPED_NAMES, tag, keys).arg(if last { "1" } else { "" });
        let named: Option<Vec<(String, u64)>> = self.call_durably(call).await?;
        let Some(named) = named else { return Ok(()) };
        if !named.is_empty() {
            let is_known = self.has_blob_names().await?;
            let last_epoch = named.iter().map(|(_, epoch)| Epoch::new(*epoch)).max();
            let epoch = last_epoch.unwrap_or(*epoch).max(*epoch);
            let names = DroppedNames { id: id.clone(), epoch };
            let blobs = named.iter().map(|(blob, _)| id.sibling(&BlobId::new(blob.as_str())));
            let parts = by_partition(blobs, |blob| blob).into_iter();
            let parts = parts.map(|part| self.drop_part(&names, part, (now, is_known)));
            let parts = stream::iter(parts).buffer_unordered(MAX_CONCURRENT_CALLS);
            parts.try_collect::<Vec<_>>().await?;
        }
        if last {
            let mut forget = cmd("UNLINK");
            forget.arg(left.into_string());
            self.query::<u64>(tag, forget).await?;
            let mut forget = cmd("ZREM");
            forget.arg(drops.into_string()).arg(&deletion);
            self.query::<u64>(tag, forget).await?;
        }
        Ok(())
    }

    async fn drop_lost_names(
        &self,
        partitions: &PartitionSet,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Option<String>, StoreError> {
        let (first, after) = cursor.and_then(|cursor| cursor.split_once(':')).unwrap_or_default();
        let first: usize = first.parse().unwrap_or_default();
        let left = partitions.iter().filter(|partition| partition.index() >= first);
        let mut looked_at = 0;
        for (number, partition) in left.enumerate() {
            let index = partition.index();
            if number == PARTITIONS_PER_LOOK {
                return Ok(Some(format!("{index}:")));
            }
            let after = if index == first { after } else { "" };
            let room = limit.saturating_sub(looked_at);
            let (last, count) = self.note_lost_names(partition, after, room).await?;
            looked_at += count;
            if looked_at >= limit {
                return Ok(Some(format!("{index}:{}", last.unwrap_or_default())));
            }
        }
        Ok(None)
    }
}

fn parse_deletion(name: &str) -> Option<DroppedNames> {
    let (epoch, id) = name.split_once(':')?;
    Some(DroppedNames { id: Scoped::parse(id).ok()?, epoch: Epoch::new(epoch.parse().ok()?) })
}

fn unreadable(error: &impl ToString) -> StoreError {
    StoreError::Unavailable(error.to_string())
}
