//! Pages of all open suspensions, partition after partition. Counting needs no order, and merging
//! all partitions for every page would cost several times as much as reading them.

use abide_actors::journal::InboxEntry;
use abide_conversation::Tenant;
use redis::{Cmd, cmd};

use super::super::super::{ListError, Page, SuspensionCount, paging, sealing};
use super::super::command::keys::{self, Tag};
use super::super::connection::execute::read;
use super::super::rows::pager::Row;
use super::super::{Redis, store};
use crate::partition::{PARTITIONS, Partition};

/// Where the next page begins: at a partition, after a member of it.
type Position = (usize, Option<String>);

impl Redis {
    /// A page of open suspensions. Those that open or close in the meantime may be missing.
    pub(in crate::store::redis) async fn open_suspensions_page(
        &self,
        tenant: &Tenant,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<SuspensionCount>, ListError> {
        let (at, after): Position = paging::decode(cursor)?.unwrap_or_default();
        if at >= PARTITIONS {
            return Err(ListError::Cursor);
        }
        let index = format!("{}open", keys::prefix_of(tenant));
        let query = |partition, command| query(&index, partition, command);
        let partitions: Vec<_> = Partition::all().skip(at).collect();
        let sizes =
            self.query_all(partitions.iter().map(|it| query(*it, "ZCARD")).collect()).await?;
        // Whole partitions as long as they fit, and at least one page of the first.
        let mut queries = Vec::new();
        let mut room = limit.max(1);
        let mut next = at;
        for (partition, size) in partitions.iter().zip(sizes) {
            let size: usize = read("open", size)?;
            if size > room && next > at {
                break;
            }
            room = room.saturating_sub(size);
            next += 1;
            if size > 0 {
                let (tag, mut range) = query(*partition, "ZRANGE");
                let after = after.as_ref().filter(|_| next == at + 1);
                range.arg(after.map_or("-".to_owned(), |after| format!("({after}")));
                range.arg("+").arg("BYLEX").arg("LIMIT").arg(0).arg(limit.max(1));
                queries.push((*partition, (tag, range)));
            }
        }
        let (partitions, queries): (Vec<_>, Vec<_>) = queries.into_iter().unzip();
        let mut found = Vec::new();
        let mut rest: Option<Position> = (next < PARTITIONS).then_some((next, None));
        for (partition, members) in partitions.into_iter().zip(self.query_all(queries).await?) {
            let members: Vec<String> = read("open", members)?;
            let full = members.last().filter(|_| members.len() >= limit.max(1)).cloned();
            found.extend(members.into_iter().map(|member| Row { member, partition }));
            if full.is_some() {
                let at = Partition::all().position(|it| it == partition).unwrap_or_default();
                rest = Some((at, full));
                break;
            }
        }
        let entries = self.query_all(found.iter().map(store::query_entry).collect()).await?;
        let mut items = Vec::with_capacity(entries.len());
        for (row, entry) in found.iter().zip(entries) {
            let json: Option<Vec<u8>> = read("inbox entry", entry)?;
            // A suspension that has closed since its key was read is gone.
            let Some(json) = json else { continue };
            let entry = self.inbox_entry(&row.member, &json).map(Some);
            let Some(InboxEntry { pending, .. }) = sealing::listed(entry)? else { continue };
            items.push(SuspensionCount { kind: pending.kind, since: pending.suspended_at });
        }
        Ok(Page { items, cursor: rest.as_ref().map(paging::encode) })
    }
}

fn query(index: &str, partition: Partition, command: &str) -> (Tag, Cmd) {
    let tag = Tag::Partition(partition);
    let mut command = cmd(command);
    command.arg(tag.key(index));
    (tag, command)
}
