//! Pages of a listing that is spread over many partitions, sorted by member.

use abide_actors::journal::StoreError;
use redis::cmd;
use serde::Serialize;

use super::super::super::{Page, paging};
use super::super::Redis;
use super::super::command::keys::Tag;
use super::super::connection::execute::read;
use crate::partition::Partition;

/// How many rows one page scans before it ends early: some hundred milliseconds at most.
const MAX_SCANNED_ROWS: usize = 2_000;
/// How many rows are read at once if a filter may drop them.
const FILTERED_BATCH: usize = 256;

/// A row of a listing: the member by which it is sorted, and its partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct Row {
    pub(in crate::store::redis) member: String,
    pub(in crate::store::redis) partition: Partition,
}

/// Builds one page: reads the next rows as long as the page has room, and takes the item of each
/// row.
pub(in crate::store::redis) struct Pager<T> {
    index: String,
    partitions: Vec<Partition>,
    limit: usize,
    filtered: bool,
    after: Option<String>,
    items: Vec<T>,
    scanned: usize,
    /// Whether there may be rows after those that were returned.
    has_more: bool,
    is_full: bool,
}

impl<T> Pager<T> {
    /// A pager over the sorted sets of this name, whose scores are all equal.
    pub(in crate::store::redis) fn new(
        index: String,
        partitions: impl Iterator<Item = Partition>,
        after: Option<String>,
        limit: usize,
    ) -> Self {
        let partitions: Vec<_> = partitions.collect();
        let has_more = !partitions.is_empty();
        Self {
            index,
            partitions,
            limit: limit.max(1),
            filtered: false,
            after,
            items: Vec::new(),
            scanned: 0,
            has_more,
            is_full: false,
        }
    }

    /// Whether a filter may drop some of the rows.
    pub(in crate::store::redis) fn filtered(mut self, filtered: bool) -> Self {
        self.filtered = filtered;
        self
    }

    /// The next rows; `None` when the page is complete. Each must be passed to [`Pager::take`].
    pub(in crate::store::redis) async fn rows(
        &mut self,
        redis: &Redis,
    ) -> Result<Option<Vec<Row>>, StoreError> {
        if !self.has_more || self.is_full || self.scanned >= MAX_SCANNED_ROWS {
            return Ok(None);
        }
        // One row more than the page holds shows whether the page is the last.
        let wanted = self.limit - self.items.len() + 1;
        let wanted = if self.filtered { FILTERED_BATCH } else { wanted.min(FILTERED_BATCH) };
        let per_partition = 2 * wanted.div_ceil(self.partitions.len()) + 1;
        let after = self.after.as_ref().map_or("-".to_owned(), |after| format!("({after}"));
        let queries = self.partitions.iter().map(|partition| {
            let tag = Tag::Partition(*partition);
            let mut command = cmd("ZRANGE");
            command.arg(tag.key(&self.index)).arg(&after).arg("+").arg("BYLEX");
            command.arg("LIMIT").arg(0).arg(per_partition);
            (tag, command)
        });
        let answers = redis.query_all(queries.collect()).await?;
        let mut found = Vec::with_capacity(answers.len());
        for (partition, answer) in self.partitions.iter().zip(answers) {
            let members: Vec<String> = read(&Tag::Partition(*partition).key(&self.index), answer)?;
            found.push((*partition, members));
        }
        let (mut rows, more) = merge(found, per_partition);
        self.has_more = more || rows.len() > wanted;
        rows.truncate(wanted);
        Ok(Some(rows))
    }

    /// Takes the item of a row; `None` if the filter dropped it or it is gone.
    pub(in crate::store::redis) fn take(&mut self, row: Row, item: Option<T>) {
        self.is_full |= self.items.len() >= self.limit;
        if self.is_full {
            return;
        }
        self.items.extend(item);
        self.scanned += 1;
        self.after = Some(row.member);
    }

    /// The page; `key` turns the last scanned member into the key of its cursor.
    pub(in crate::store::redis) fn page<K: Serialize>(
        self,
        key: impl FnOnce(&str) -> Option<K>,
    ) -> Page<T> {
        let ended = !self.is_full && !self.has_more;
        let last = self.after.filter(|_| !ended).as_deref().and_then(key);
        Page { items: self.items, cursor: last.as_ref().map(paging::encode) }
    }
}

/// Merges the rows in order, up to the first place where a row that was not read may belong, and
/// returns whether there may be more. A partition that returned `limit` rows may have others after
/// its last one.
fn merge(found: Vec<(Partition, Vec<String>)>, limit: usize) -> (Vec<Row>, bool) {
    let last = |(_, members): &(_, Vec<String>)| {
        (members.len() >= limit).then(|| members.last().cloned()).flatten()
    };
    let known = found.iter().filter_map(last).min();
    let rows = found.into_iter().flat_map(|(partition, members)| {
        members.into_iter().map(move |member| Row { member, partition })
    });
    let is_known = |row: &Row| known.as_ref().is_none_or(|known| row.member <= *known);
    let mut rows: Vec<_> = rows.filter(is_known).collect();
    rows.sort_by(|one, other| one.member.cmp(&other.member));
    (rows, known.is_some())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_rows_before_which_none_can_be_missing_are_returned() {
        let members = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
        let mut partitions = Partition::all();
        let mut found = |text| (partitions.next().unwrap(), members(text));
        let some = vec![found("adf"), found("bc"), found("eg"), found("")];
        let joined = |rows: Vec<Row>| rows.into_iter().map(|row| row.member).collect::<String>();
        let (rows, more) = merge(some.clone(), 4);
        assert_eq!((joined(rows).as_str(), more), ("abcdefg", false));
        let (rows, more) = merge(some.clone(), 3);
        assert_eq!((joined(rows).as_str(), more), ("abcdef", true));
        let (rows, more) = merge(some, 2);
        assert_eq!((joined(rows).as_str(), more), ("abc", true));
    }
}
