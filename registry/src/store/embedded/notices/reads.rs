//! The reads of webhooks and of what is owed, each from one snapshot.

use std::ops::Bound;

use abide_actors::notices::{Webhook, WebhookKey};
use abide_conversation::{ConversationId, Scoped, Seq, Timestamp};
use redb::{Error, ReadTransaction};

use super::super::super::notices::{
    Attempts, DeadNotice, Delivery, LISTED_PER_QUEUE, NoticeCounts, NoticeHead, NoticeQueue,
    StoredNotice, WebhookList,
};
use super::super::super::sealing::Label;
use super::super::super::{Page, paging};
use super::super::encryption::Snapshot;
use super::super::tables::{self, Nanos, nanos};
use super::{Head, Partition, PartitionSet};

/// How many queues one read looks at.
const MAX_SCANNED_QUEUES: usize = 4_096;

/// Where a conversation stands among those that something is owed by.
type OwedKey = (Timestamp, Scoped<ConversationId>);
/// Where a dead notice stands among those of its webhook.
type DeadKey = (u16, Timestamp, Scoped<ConversationId>, Seq);

/// `None` if the webhooks are still as of the version that is known.
pub(super) fn webhooks(
    from: &Snapshot<'_>,
    known: Option<u64>,
) -> Result<Option<WebhookList>, Error> {
    let version = from.open_table(tables::META)?.get(tables::WEBHOOKS_ROW)?;
    let version = version.map_or(0, |version| version.value());
    if known == Some(version) {
        return Ok(None);
    }
    if version == 0 {
        // A store of an earlier version that had no room for the tables has none, either.
        return Ok(Some(WebhookList { version, webhooks: Vec::new() }));
    }
    let table = from.open_table(tables::WEBHOOKS)?;
    let rows = table.range::<&str>(..)?;
    let webhooks = rows.map(|row| {
        let (key, stored) = row?;
        let json = from.open(Label::webhook(key.value()), stored.value())?;
        tables::parse::<Webhook>("webhook", &json)
    });
    Ok(Some(WebhookList { version, webhooks: webhooks.collect::<Result<_, _>>()? }))
}

pub(super) fn due_webhooks(
    from: &ReadTransaction,
    partitions: &PartitionSet,
    until: Timestamp,
) -> Result<Vec<(Partition, WebhookKey)>, Error> {
    let (counts, due) = (from.open_table(tables::OWED_COUNTS)?, from.open_table(tables::OWED_DUE)?);
    let mut found = Vec::new();
    for row in counts.range::<&str>(..)? {
        let row = row?;
        let name = row.0.value();
        let webhook: WebhookKey = tables::id(name)?;
        let mut here = PartitionSet::from_iter([]);
        for row in due_rows(&due, name, until)?.take(MAX_SCANNED_QUEUES) {
            here = here.iter().chain([Partition::from(&row?.1)]).collect();
        }
        let here = here.iter().filter(|it| partitions.contains(*it));
        found.extend(here.map(|partition| (partition, webhook.clone())));
    }
    Ok(found)
}

type DueTable = redb::ReadOnlyTable<(&'static str, Nanos, &'static str), ()>;

/// The conversations that are due for a webhook, the earliest first.
fn due_rows<'t>(
    due: &'t DueTable,
    webhook: &str,
    until: Timestamp,
) -> Result<impl Iterator<Item = Result<OwedKey, Error>> + use<'t>, Error> {
    let last = Bound::Excluded((webhook, nanos(until).saturating_add(1), ""));
    let rows = due.range((Bound::Included((webhook, i128::MIN, "")), last))?;
    Ok(rows.map(|row| {
        let key = row?.0;
        let (_, at, id) = key.value();
        Ok((tables::timestamp(at)?, tables::id(id)?))
    }))
}

pub(super) fn due_queues(
    from: &ReadTransaction,
    webhook: &WebhookKey,
    partitions: &PartitionSet,
    until: Timestamp,
    limit: usize,
) -> Result<Vec<OwedKey>, Error> {
    let due = from.open_table(tables::OWED_DUE)?;
    let mut counts = vec![0; crate::partition::PARTITIONS];
    let mut found = Vec::new();
    for row in due_rows(&due, webhook.as_str(), until)?.take(MAX_SCANNED_QUEUES) {
        let row = row?;
        let partition = Partition::from(&row.1);
        let count = &mut counts[partition.index()];
        if partitions.contains(partition) && *count < limit {
            *count += 1;
            found.push(row);
        }
    }
    Ok(found)
}

pub(super) fn old_queues(
    from: &ReadTransaction,
    webhook: &WebhookKey,
    partitions: &PartitionSet,
    since: Timestamp,
    limit: usize,
) -> Result<Vec<Scoped<ConversationId>>, Error> {
    let table = from.open_table(tables::OWED_SINCE)?;
    let name = webhook.as_str();
    let mut found = Vec::new();
    for row in table.range((name, i128::MIN, "")..(name, nanos(since), ""))? {
        let id: Scoped<ConversationId> = tables::id(row?.0.value().2)?;
        if found.len() >= limit {
            break;
        }
        if partitions.contains(Partition::from(&id)) {
            found.push(id);
        }
    }
    Ok(found)
}

/// The head of a queue.
pub(super) fn head(
    from: &ReadTransaction,
    queue: &NoticeQueue,
) -> Result<Option<NoticeHead>, Error> {
    let (webhook, id) = (queue.webhook.as_str(), queue.conversation.as_str());
    let head = from.open_table(tables::OWED_HEADS)?.get((webhook, id))?;
    let head: Option<Head> =
        head.map(|json| tables::parse("head of notices", json.value())).transpose()?;
    let Some(Head { seq, due, attempts, .. }) = head else { return Ok(None) };
    let notice = from.open_table(tables::OWED)?.get((webhook, id, seq.get()))?;
    let notice: Option<StoredNotice> =
        notice.map(|json| tables::parse("notice", json.value())).transpose()?;
    Ok(notice.map(|notice| NoticeHead { notice, attempts, due }))
}

/// How much is owed to one webhook, and how much is dead.
pub(super) fn counts(from: &ReadTransaction, webhook: &WebhookKey) -> Result<NoticeCounts, Error> {
    let name = webhook.as_str();
    let owed = from.open_table(tables::OWED_COUNTS)?.get(name)?;
    let oldest = oldest(from, name)?;
    let dead = from.open_table(tables::DEAD_NOTICES)?;
    let dead = dead.range((name, 0, i128::MIN, "", 0)..(name, u16::MAX, i128::MIN, "", 0))?.count();
    let owed = owed.map_or(0, |count| count.value());
    Ok(NoticeCounts { owed, dead: dead as u64, oldest })
}

fn oldest(from: &ReadTransaction, webhook: &str) -> Result<Option<Timestamp>, Error> {
    let table = from.open_table(tables::OWED_SINCE)?;
    let first = table.range((webhook, i128::MIN, "")..(webhook, i128::MAX, ""))?.next();
    first.map(|row| tables::timestamp(row?.0.value().1)).transpose()
}

/// How much is owed to all webhooks.
pub(super) fn owed(from: &ReadTransaction) -> Result<NoticeCounts, Error> {
    let mut all = NoticeCounts::default();
    for row in from.open_table(tables::OWED_COUNTS)?.range::<&str>(..)? {
        let (name, count) = row?;
        all.owed += count.value();
        all.oldest = all.oldest.into_iter().chain(oldest(from, name.value())?).min();
    }
    Ok(all)
}

/// What is owed, by conversation; of each the first few.
pub(super) fn owed_page(
    from: &ReadTransaction,
    webhook: &WebhookKey,
    after: Option<OwedKey>,
    limit: usize,
) -> Result<Page<Delivery>, Error> {
    let table = from.open_table(tables::OWED_SINCE)?;
    let name = webhook.as_str();
    let start = match &after {
        Some((at, id)) => Bound::Excluded((name, nanos(*at), id.as_str())),
        None => Bound::Included((name, i128::MIN, "")),
    };
    let rows = table.range((start, Bound::Excluded((name, i128::MAX, ""))))?.map(|row| {
        let key = row?.0;
        let (_, at, id) = key.value();
        let key: OwedKey = (tables::timestamp(at)?, tables::id(id)?);
        let queue = NoticeQueue { webhook: webhook.clone(), conversation: key.1.clone() };
        Ok::<_, Error>((key, first_of(from, &queue)?))
    });
    let Page { items, cursor } = paging::page(rows, limit, |_: &Vec<Delivery>| true)?;
    Ok(Page { items: items.into_iter().flatten().collect(), cursor })
}

fn first_of(from: &ReadTransaction, queue: &NoticeQueue) -> Result<Vec<Delivery>, Error> {
    let (webhook, id) = (queue.webhook.as_str(), queue.conversation.as_str());
    let head = head(from, queue)?;
    let owed = from.open_table(tables::OWED)?;
    let rows = owed.range((webhook, id, 0)..=(webhook, id, u64::MAX))?.take(LISTED_PER_QUEUE);
    let delivery = |row: Result<(_, redb::AccessGuard<'_, &[u8]>), redb::StorageError>| {
        let notice: StoredNotice = tables::parse("notice", row?.1.value())?;
        let head = head.as_ref().filter(|head| head.notice.seq == notice.seq);
        Ok(Delivery {
            conversation: queue.conversation.clone(),
            attempts: head.map_or_else(Attempts::default, |head| head.attempts.clone()),
            due: head.map(|head| head.due),
            dead_at: None,
            notice,
        })
    };
    rows.map(|row| delivery(row.map(|(key, json)| (key.value().2, json)))).collect()
}

/// What is dead.
pub(super) fn dead_page(
    from: &ReadTransaction,
    webhook: &WebhookKey,
    after: Option<DeadKey>,
    limit: usize,
) -> Result<Page<Delivery>, Error> {
    let table = from.open_table(tables::DEAD_NOTICES)?;
    let name = webhook.as_str();
    let start = match &after {
        Some((partition, at, id, seq)) => {
            Bound::Excluded((name, *partition, nanos(*at), id.as_str(), seq.get()))
        }
        None => Bound::Included((name, 0, i128::MIN, "", 0)),
    };
    let end = Bound::Excluded((name, u16::MAX, i128::MIN, "", 0));
    let rows = table.range((start, end))?.map(|row| {
        let (key, json) = row?;
        let (_, partition, at, id, seq) = key.value();
        let key: DeadKey = (partition, tables::timestamp(at)?, tables::id(id)?, Seq::new(seq));
        let dead: DeadNotice = tables::parse("dead notice", json.value())?;
        Ok::<_, Error>((key, Delivery::from(dead)))
    });
    paging::page(rows, limit, |_| true)
}
