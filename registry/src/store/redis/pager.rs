//! Pages of a listing that is spread over many partitions, in the order of its members.

use abide_actors::journal::StoreError;
use redis::cmd;
use serde::Serialize;

use super::super::Page;
use super::super::paging;
use super::Redis;
use super::execute::read;
use super::keys::Tag;
use crate::partition::Partition;

/// Rows that one page looks at before it is cut short: some hundred milliseconds at most.
const SCAN: usize = 2_000;
/// Rows that are read at once where a filter may drop them.
const BATCH: usize = 256;

/// A row of a listing: the partition that it was found in, and what it is ordered by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) member: String,
    pub(super) partition: Partition,
}

/// One page in the making: asks for the next rows as long as it wants some, and is told what each
/// of them came to.
pub(super) struct Pager<T> {
    index: &'static str,
    partitions: Vec<Partition>,
    limit: usize,
    filtered: bool,
    after: Option<String>,
    items: Vec<T>,
    looked: usize,
    /// Whether there may be rows after those that were given out.
    more: bool,
    full: bool,
}

impl<T> Pager<T> {
    /// Over the sorted sets of this name, whose scores are all the same.
    pub(super) fn new(
        index: &'static str,
        partitions: impl Iterator<Item = Partition>,
        after: Option<String>,
        limit: usize,
    ) -> Self {
        let (partitions, limit) = (partitions.collect::<Vec<_>>(), limit.max(1));
        let more = !partitions.is_empty();
        let (items, looked, filtered, full) = (Vec::new(), 0, false, false);
        Self { index, partitions, limit, filtered, after, items, looked, more, full }
    }

    /// Some of its rows will come to nothing.
    pub(super) fn filtered(mut self, filtered: bool) -> Self {
        self.filtered = filtered;
        self
    }

    /// The next rows; `None` when the page is complete. Each must be given back by [`Pager::take`].
    pub(super) async fn rows(&mut self, redis: &Redis) -> Result<Option<Vec<Row>>, StoreError> {
        if !self.more || self.full || self.looked >= SCAN {
            return Ok(None);
        }
        // One more than the page holds tells whether it is the last.
        let wanted = self.limit - self.items.len() + 1;
        let wanted = if self.filtered { BATCH } else { wanted.min(BATCH) };
        let few = 2 * wanted.div_ceil(self.partitions.len()) + 1;
        let after = self.after.as_ref().map_or("-".to_owned(), |after| format!("({after}"));
        let asked = self.partitions.iter().map(|partition| {
            let tag = Tag::Partition(*partition);
            let mut command = cmd("ZRANGE");
            command.arg(tag.key(self.index)).arg(&after).arg("+").arg("BYLEX");
            command.arg("LIMIT").arg(0).arg(few);
            (tag, command)
        });
        let answers = redis.query_all(asked.collect()).await?;
        let mut found = Vec::with_capacity(answers.len());
        for (partition, answer) in self.partitions.iter().zip(answers) {
            let members: Vec<String> = read(&Tag::Partition(*partition).key(self.index), answer)?;
            found.push((*partition, members));
        }
        let (mut rows, more) = merge(found, few);
        self.more = more || rows.len() > wanted;
        rows.truncate(wanted);
        Ok(Some(rows))
    }

    /// Takes what a row came to; nothing, if it is not asked for or gone.
    pub(super) fn take(&mut self, row: Row, item: Option<T>) {
        self.full |= self.items.len() >= self.limit;
        if self.full {
            return;
        }
        self.items.extend(item);
        self.looked += 1;
        self.after = Some(row.member);
    }

    /// The page; `key` is what its cursor says of the last member that was looked at.
    pub(super) fn page<K: Serialize>(self, key: impl FnOnce(&str) -> Option<K>) -> Page<T> {
        let ended = !self.full && !self.more;
        let last = self.after.filter(|_| !ended).as_deref().and_then(key);
        Page { items: self.items, cursor: last.as_ref().map(paging::encode) }
    }
}

/// The rows in order, as far as they are all known; whether there may be more. Past the last row of
/// a partition that gave as many as were asked for, that partition may have others.
fn merge(found: Vec<(Partition, Vec<String>)>, few: usize) -> (Vec<Row>, bool) {
    let last = |(_, members): &(_, Vec<String>)| {
        (members.len() >= few).then(|| members.last().cloned()).flatten()
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
    fn only_rows_before_which_none_can_be_missing_are_given_out() {
        let members = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
        let mut partitions = Partition::all();
        let mut found = |text| (partitions.next().unwrap(), members(text));
        let some = vec![found("adf"), found("bc"), found("eg"), found("")];
        let shown = |rows: Vec<Row>| rows.into_iter().map(|row| row.member).collect::<String>();
        let (rows, more) = merge(some.clone(), 4);
        assert_eq!((shown(rows).as_str(), more), ("abcdefg", false));
        let (rows, more) = merge(some.clone(), 3);
        assert_eq!((shown(rows).as_str(), more), ("abcdef", true));
        let (rows, more) = merge(some, 2);
        assert_eq!((shown(rows).as_str(), more), ("abc", true));
    }
}
