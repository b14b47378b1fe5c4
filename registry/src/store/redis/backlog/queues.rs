//! The calls that wait in queues, in Redis: a sorted set for each partition and tenant, whose scores
//! are all equal, so that its members are sorted by their bytes.

use std::collections::{BTreeMap, BTreeSet};

use abide_actors::journal::StoreError;
use abide_conversation::ids::{CallId, QueueName};
use abide_conversation::state::QueueEntry;
use abide_conversation::{Attempt, ConversationId, Scoped, Tenant, Timestamp};
use async_trait::async_trait;
use redis::{Cmd, cmd};

use super::super::super::queues::{MAX_QUEUES, QueueDepth, QueueHeads, QueueIndex};
use super::super::Redis;
use super::super::command::keys::{self, Tag};
use super::super::connection::execute::read;
use crate::partition::{PARTITIONS, Partition};

/// The name of the sorted sets.
pub(in crate::store::redis) const QUEUES: &str = "queues";
/// Makes all times positive, and of the same length.
const OFFSET_MICROS: i128 = 400_000_000_000_000_000;
const TIME_DIGITS: usize = 18;

/// The entry of a call as a member, whose bytes sort by queue, tool and time.
pub(in crate::store::redis) fn member(id: &Scoped<ConversationId>, entry: &QueueEntry) -> String {
    let QueueEntry { queue, tool, since, call, attempt } = entry;
    let at = since.as_nanosecond().div_euclid(1_000) + OFFSET_MICROS;
    format!("{queue}\0{tool}\0{at:0TIME_DIGITS$}\0{id}\0{call}\0{attempt}")
}

/// The call that a member stands for.
fn entry_of(member: &str) -> Option<(Scoped<ConversationId>, QueueEntry)> {
    let parts: Vec<&str> = member.split('\0').collect();
    let [queue, tool, at, id, call, attempt] = parts[..] else { return None };
    let micros = at.parse::<i128>().ok()?.checked_sub(OFFSET_MICROS)?;
    let entry = QueueEntry {
        queue: QueueName::new(queue),
        tool: tool.to_owned(),
        since: Timestamp::from_nanosecond(micros.checked_mul(1_000)?).ok()?,
        call: CallId::new(call),
        attempt: Attempt::new(attempt.parse().ok()?),
    };
    Some((Scoped::parse(id).ok()?, entry))
}

/// The bounds of the members of a tool.
fn bounds(queue: &str, tool: &str) -> (String, String) {
    (format!("[{queue}\0{tool}\0"), format!("({queue}\0{tool}\x01"))
}

#[async_trait]
impl QueueIndex for Redis {
    async fn queue_heads(
        &self,
        tenant: &Tenant,
        queue: &QueueName,
        tool: &str,
        limit: usize,
    ) -> Result<QueueHeads, StoreError> {
        let of_each = (limit / PARTITIONS).max(4);
        let (first, last) = bounds(queue.as_str(), tool);
        let found =
            self.ranges(tenant, Partition::all(), |_| (first.clone(), last.clone()), of_each);
        let mut heads = QueueHeads::default();
        for (_, members) in found.await? {
            heads.has_more |= members.len() >= of_each;
            heads.calls.extend(members.iter().filter_map(|member| entry_of(member)));
        }
        Ok(heads)
    }

    /// Goes from tool to tool in each partition, so that it costs what there are of them, however
    /// many calls wait.
    async fn queue_depths(
        &self,
        tenant: &Tenant,
        queue: Option<&QueueName>,
    ) -> Result<Vec<QueueDepth>, StoreError> {
        let (start, end) = match queue {
            Some(queue) => (format!("[{queue}\0"), format!("({queue}\x01")),
            None => ("-".to_owned(), "+".to_owned()),
        };
        let mut places: BTreeMap<Partition, String> =
            Partition::all().map(|partition| (partition, start.clone())).collect();
        let mut oldest: BTreeMap<(String, String), Timestamp> = BTreeMap::new();
        let mut found: BTreeSet<(Partition, String, String)> = BTreeSet::new();
        while !places.is_empty() && oldest.len() < MAX_QUEUES {
            let partitions: Vec<Partition> = places.keys().copied().collect();
            let from = |partition: Partition| (places[&partition].clone(), end.clone());
            let heads = self.ranges(tenant, partitions.into_iter(), from, 1).await?;
            for (partition, members) in heads {
                let Some((_, entry)) = members.first().and_then(|member| entry_of(member)) else {
                    places.remove(&partition);
                    continue;
                };
                let (queue, tool) = (entry.queue.as_str().to_owned(), entry.tool);
                places.insert(partition, format!("({queue}\0{tool}\x01"));
                let first = oldest.entry((queue.clone(), tool.clone())).or_insert(entry.since);
                *first = (*first).min(entry.since);
                found.insert((partition, queue, tool));
            }
        }
        let prefix = keys::prefix_of(tenant);
        let queries = found.iter().map(|(partition, queue, tool)| {
            let tag = Tag::Partition(*partition);
            let (first, last) = bounds(queue, tool);
            let mut command = cmd("ZLEXCOUNT");
            command.arg(tag.listing(&prefix, QUEUES).into_string()).arg(first).arg(last);
            (tag, command)
        });
        let mut depths: BTreeMap<(String, String), u64> = BTreeMap::new();
        let counts = self.query_all(queries.collect()).await?;
        for ((_, queue, tool), count) in found.into_iter().zip(counts) {
            *depths.entry((queue, tool)).or_default() += read::<u64>("queue", count)?;
        }
        let depths = depths.into_iter().map(|((queue, tool), depth)| QueueDepth {
            oldest: oldest.get(&(queue.clone(), tool.clone())).copied(),
            queue: QueueName::new(queue),
            tool,
            depth,
        });
        Ok(depths.collect())
    }
}

impl Redis {
    /// The first members of each of these partitions between two bounds.
    async fn ranges(
        &self,
        tenant: &Tenant,
        partitions: impl Iterator<Item = Partition>,
        bounds: impl Fn(Partition) -> (String, String),
        limit: usize,
    ) -> Result<Vec<(Partition, Vec<String>)>, StoreError> {
        let prefix = keys::prefix_of(tenant);
        let partitions: Vec<Partition> = partitions.collect();
        let query = |partition: &Partition| -> (Tag, Cmd) {
            let tag = Tag::Partition(*partition);
            let (first, last) = bounds(*partition);
            let mut command = cmd("ZRANGE");
            command.arg(tag.listing(&prefix, QUEUES).into_string()).arg(first).arg(last);
            command.arg("BYLEX").arg("LIMIT").arg(0).arg(limit);
            (tag, command)
        };
        let answers = self.query_all(partitions.iter().map(query).collect()).await?;
        let pairs = partitions.into_iter().zip(answers);
        pairs.map(|(partition, answer)| Ok((partition, read("queue", answer)?))).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn members_sort_by_queue_tool_and_time_and_are_read_back() {
        let entry = |queue: &str, tool: &str, second: i64, attempt: u32| {
            let entry = QueueEntry {
                queue: QueueName::new(queue),
                tool: tool.to_owned(),
                since: Timestamp::from_second(second).unwrap(),
                call: CallId::new("call_1"),
                attempt: Attempt::new(attempt),
            };
            (Scoped::<ConversationId>::parse("acme/c").unwrap(), entry)
        };
        let entries = [
            entry("a", "t", -1, 1),
            entry("a", "t", 9, 1),
            entry("a", "t", 10, 3),
            entry("a", "t-x", 1, 1),
            entry("a-b", "t", 1, 1),
        ];
        let members: Vec<String> = entries.iter().map(|(id, entry)| member(id, entry)).collect();
        assert!(members.is_sorted());
        let read: Vec<_> = members.iter().map(|member| entry_of(member).unwrap()).collect();
        assert_eq!(read, entries);
        assert_eq!(entry_of("a\0b"), None);
    }
}
