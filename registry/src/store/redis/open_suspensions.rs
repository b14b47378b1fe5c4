//! The open suspensions partition after partition: who only counts them needs them in no order, and
//! merging all partitions for every page costs several times what reading them does.

use abide_actors::journal::InboxEntry;
use redis::{Cmd, cmd};

use super::super::{ListError, Page, SuspensionCount, paging};
use super::Redis;
use super::execute::read;
use super::keys::Tag;
use super::pager::Row;
use super::{decode, store};
use crate::partition::{PARTITIONS, Partition};

/// Where the next page begins: at a partition, after a member of its.
type Place = (usize, Option<String>);

impl Redis {
    /// A page of them. What opens or closes meanwhile may be in it or not.
    pub(super) async fn open_suspensions_page(
        &self,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<SuspensionCount>, ListError> {
        let (at, after): Place = paging::decode(cursor)?.unwrap_or_default();
        if at >= PARTITIONS {
            return Err(ListError::Cursor);
        }
        let partitions: Vec<_> = Partition::all().skip(at).collect();
        let sizes = self.query_all(partitions.iter().map(|it| ask(*it, "ZCARD")).collect()).await?;
        // Whole partitions as long as they fit; at least the first, of which one page is read.
        let (mut asked, mut room, mut next) = (Vec::new(), limit.max(1), at);
        for (partition, size) in partitions.iter().zip(sizes) {
            let size: usize = read("open", size)?;
            if size > room && next > at {
                break;
            }
            room = room.saturating_sub(size);
            next += 1;
            if size > 0 {
                let (tag, mut range) = ask(*partition, "ZRANGE");
                let after = after.as_ref().filter(|_| next == at + 1);
                range.arg(after.map_or("-".to_owned(), |after| format!("({after}")));
                range.arg("+").arg("BYLEX").arg("LIMIT").arg(0).arg(limit.max(1));
                asked.push((*partition, (tag, range)));
            }
        }
        let (from, asked): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
        let mut found = Vec::new();
        let mut rest: Option<Place> = (next < PARTITIONS).then_some((next, None));
        for (partition, members) in from.into_iter().zip(self.query_all(asked).await?) {
            let members: Vec<String> = read("open", members)?;
            let full = members.last().filter(|_| members.len() >= limit.max(1)).cloned();
            found.extend(members.into_iter().map(|member| Row { member, partition }));
            if full.is_some() {
                let at = Partition::all().position(|it| it == partition).unwrap_or_default();
                rest = Some((at, full));
                break;
            }
        }
        let entries = self.query_all(found.iter().map(store::ask_entry).collect()).await?;
        let mut items = Vec::with_capacity(entries.len());
        for entry in entries {
            let json: Option<Vec<u8>> = read("inbox entry", entry)?;
            // One that has closed since its key was read is gone.
            let Some(json) = json else { continue };
            let InboxEntry { pending, .. } = decode::parse("inbox entry", &json)?;
            items.push(SuspensionCount { kind: pending.kind, since: pending.suspended_at });
        }
        Ok(Page { items, cursor: rest.as_ref().map(paging::encode) })
    }
}

fn ask(partition: Partition, command: &str) -> (Tag, Cmd) {
    let tag = Tag::Partition(partition);
    let mut command = cmd(command);
    command.arg(tag.key("open"));
    (tag, command)
}
