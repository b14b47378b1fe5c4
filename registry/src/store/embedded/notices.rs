//! The webhooks, and what is owed to them, in the file.

mod changes;
mod reads;

use abide_actors::journal::StoreError;
use abide_actors::notices::{OwedNotice, WebhookKey};
use abide_conversation::{ConversationId, Scoped, Seq, Timestamp};
use async_trait::async_trait;
use redb::{Error, ReadableTable, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::super::notices::{
    Attempts, DeadNotice, Delivery, DeliveryState, MAX_DEAD_PER_PARTITION, NoticeCounts,
    NoticeHead, NoticeQueue, Outbox, Settlement, StoredNotice, WebhookChange, WebhookList,
};
use super::super::{ListError, Page, paging};
use super::Embedded;
use super::tables::{self, nanos};
use super::write::Write;
use crate::partition::{Partition, PartitionSet};
use changes::EncodedWebhooks;

/// How many queues one write drops.
const MAX_DROPPED_QUEUES: usize = 256;

/// A change of the webhooks or of what is owed.
#[allow(clippy::large_enum_variant, reason = "one exists at a time, and is taken apart at once")]
pub(super) enum NoticeWrite {
    Change(EncodedWebhooks),
    Settle { queue: NoticeQueue, head: NoticeHead, settlement: Settlement },
    Drop { webhook: WebhookKey, partition: Partition },
    Redeliver { queue: NoticeQueue, seq: Seq, now: Timestamp },
}

/// The head of a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Head {
    seq: Seq,
    since: Timestamp,
    due: Timestamp,
    #[serde(default)]
    attempts: Attempts,
}

/// Creates the tables.
pub(super) fn create(transaction: &WriteTransaction) -> Result<(), Error> {
    transaction.open_table(tables::WEBHOOKS)?;
    transaction.open_table(tables::OWED)?;
    transaction.open_table(tables::OWED_HEADS)?;
    transaction.open_table(tables::OWED_DUE)?;
    transaction.open_table(tables::OWED_SINCE)?;
    transaction.open_table(tables::OWED_COUNTS)?;
    transaction.open_table(tables::DEAD_NOTICES)?;
    Ok(())
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(value).map_err(|error| Error::Corrupted(format!("notice: {error}")))
}

fn index_of(partition: Partition) -> u16 {
    u16::try_from(partition.index()).unwrap_or(u16::MAX)
}

/// Adds what a conversation owes.
pub(super) fn owe(
    transaction: &WriteTransaction,
    id: &Scoped<ConversationId>,
    owed: &[OwedNotice],
) -> Result<(), Error> {
    for notice in owed {
        let queue = NoticeQueue { webhook: notice.webhook.clone(), conversation: id.clone() };
        push(transaction, &queue, &StoredNotice::from(notice))?;
        if head_of(transaction, &queue)?.is_none() {
            lead(transaction, &queue, notice.at)?;
        }
    }
    Ok(())
}

fn push(
    transaction: &WriteTransaction,
    NoticeQueue { webhook, conversation }: &NoticeQueue,
    notice: &StoredNotice,
) -> Result<(), Error> {
    let json = encode(notice)?;
    let key = (webhook.as_str(), conversation.as_str(), notice.seq.get());
    let old = transaction.open_table(tables::OWED)?.insert(key, json.as_slice())?.is_some();
    count(transaction, webhook, if old { 0 } else { 1 })
}

/// Adds to the number of what is owed to a webhook.
fn count(transaction: &WriteTransaction, webhook: &WebhookKey, more: i64) -> Result<(), Error> {
    let mut counts = transaction.open_table(tables::OWED_COUNTS)?;
    let before = counts.get(webhook.as_str())?.map_or(0, |count| count.value());
    match before.saturating_add_signed(more) {
        0 => counts.remove(webhook.as_str()).map(drop)?,
        after => counts.insert(webhook.as_str(), after).map(drop)?,
    }
    Ok(())
}

fn head_of(transaction: &WriteTransaction, queue: &NoticeQueue) -> Result<Option<Head>, Error> {
    let heads = transaction.open_table(tables::OWED_HEADS)?;
    let json = heads.get((queue.webhook.as_str(), queue.conversation.as_str()))?;
    json.map(|json| tables::parse("head of notices", json.value())).transpose()
}

/// Replaces the head of a queue, and its place in the indexes.
fn set_head(
    transaction: &WriteTransaction,
    queue: &NoticeQueue,
    head: Option<&Head>,
) -> Result<(), Error> {
    let (webhook, id) = (queue.webhook.as_str(), queue.conversation.as_str());
    let mut due = transaction.open_table(tables::OWED_DUE)?;
    let mut since = transaction.open_table(tables::OWED_SINCE)?;
    if let Some(old) = head_of(transaction, queue)? {
        due.remove((webhook, nanos(old.due), id))?;
        since.remove((webhook, nanos(old.since), id))?;
    }
    let mut heads = transaction.open_table(tables::OWED_HEADS)?;
    match head {
        Some(head) => {
            heads.insert((webhook, id), encode(head)?.as_slice())?;
            due.insert((webhook, nanos(head.due), id), ())?;
            since.insert((webhook, nanos(head.since), id), ())?;
        }
        None => {
            heads.remove((webhook, id))?;
        }
    }
    Ok(())
}

/// Makes the first notice of a queue its head, due at this time.
fn lead(transaction: &WriteTransaction, queue: &NoticeQueue, due: Timestamp) -> Result<(), Error> {
    let (webhook, id) = (queue.webhook.as_str(), queue.conversation.as_str());
    let first = {
        let owed = transaction.open_table(tables::OWED)?;
        let first = owed.range((webhook, id, 0)..=(webhook, id, u64::MAX))?.next().transpose()?;
        first.map(|(_, json)| tables::parse::<StoredNotice>("notice", json.value())).transpose()?
    };
    let head = first.map(|StoredNotice { seq, since, .. }| {
        let attempts = Attempts::default();
        Head { seq, since, due, attempts }
    });
    set_head(transaction, queue, head.as_ref())
}

/// Removes the notice at the head of a queue.
fn pop(
    transaction: &WriteTransaction,
    queue: &NoticeQueue,
    seq: Seq,
    at: Timestamp,
) -> Result<(), Error> {
    let key = (queue.webhook.as_str(), queue.conversation.as_str(), seq.get());
    transaction.open_table(tables::OWED)?.remove(key)?;
    count(transaction, &queue.webhook, -1)?;
    lead(transaction, queue, at)
}

fn bury(
    transaction: &WriteTransaction,
    queue: &NoticeQueue,
    dead: &DeadNotice,
) -> Result<(), Error> {
    let (webhook, id) = (queue.webhook.as_str(), queue.conversation.as_str());
    let partition = index_of(Partition::from(&queue.conversation));
    let mut table = transaction.open_table(tables::DEAD_NOTICES)?;
    let key = (webhook, partition, nanos(dead.dead_at), id, dead.notice.seq.get());
    table.insert(key, encode(dead)?.as_slice())?;
    let first = (webhook, partition, i128::MIN, "", 0);
    let next = (webhook, partition + 1, i128::MIN, "", 0);
    let surplus = table.range(first..next)?.count().saturating_sub(MAX_DEAD_PER_PARTITION);
    let mut left = surplus;
    table.retain_in(first..next, |_, _| {
        let stays = left == 0;
        left = left.saturating_sub(1);
        stays
    })?;
    Ok(())
}

impl NoticeWrite {
    /// Whether the list of webhooks has the version that the change is for.
    pub(super) fn has_target(&self, transaction: &WriteTransaction) -> Result<bool, Error> {
        match self {
            Self::Change(change) => change.has_target(transaction),
            Self::Settle { .. } | Self::Drop { .. } | Self::Redeliver { .. } => Ok(true),
        }
    }

    /// Returns whether it changed something.
    pub(super) fn apply(&self, transaction: &WriteTransaction) -> Result<bool, Error> {
        match self {
            Self::Change(change) => change.apply(transaction),
            Self::Settle { queue, head, settlement } => {
                settle(transaction, queue, head, settlement)
            }
            Self::Drop { webhook, partition } => drop_some(transaction, webhook, *partition),
            Self::Redeliver { queue, seq, now } => redeliver(transaction, queue, *seq, *now),
        }
    }
}

fn settle(
    transaction: &WriteTransaction,
    queue: &NoticeQueue,
    head: &NoticeHead,
    settlement: &Settlement,
) -> Result<bool, Error> {
    let seq = head.notice.seq;
    let Some(present) = head_of(transaction, queue)?.filter(|it| it.seq == seq) else {
        return Ok(false);
    };
    match settlement {
        Settlement::Delivered { at } => pop(transaction, queue, seq, *at)?,
        Settlement::Retry { due, attempts } => {
            let head = Head { due: *due, attempts: attempts.clone(), ..present };
            set_head(transaction, queue, Some(&head))?;
        }
        Settlement::Dead { at, attempts } => {
            let (conversation, notice) = (queue.conversation.clone(), head.notice.clone());
            let (attempts, dead_at) = (attempts.clone(), *at);
            let dead = DeadNotice { conversation, notice, attempts, dead_at };
            bury(transaction, queue, &dead)?;
            pop(transaction, queue, seq, *at)?;
        }
    }
    Ok(true)
}

/// Drops some queues of a webhook in a partition, and what is dead there. Returns whether there are
/// more.
fn drop_some(
    transaction: &WriteTransaction,
    webhook: &WebhookKey,
    partition: Partition,
) -> Result<bool, Error> {
    let name = webhook.as_str();
    let mut found = Vec::new();
    {
        let heads = transaction.open_table(tables::OWED_HEADS)?;
        for row in heads.range((name, "")..)? {
            let row = row?;
            let (owner, id) = row.0.value();
            if owner != name || found.len() > MAX_DROPPED_QUEUES {
                break;
            }
            let conversation: Scoped<ConversationId> = tables::id(id)?;
            if Partition::from(&conversation) == partition {
                found.push(NoticeQueue { webhook: webhook.clone(), conversation });
            }
        }
    }
    let has_more = found.len() > MAX_DROPPED_QUEUES;
    for queue in found.iter().take(MAX_DROPPED_QUEUES) {
        let id = queue.conversation.as_str();
        let mut dropped = 0_i64;
        let mut owed = transaction.open_table(tables::OWED)?;
        owed.retain_in((name, id, 0)..=(name, id, u64::MAX), |_, _| {
            dropped += 1;
            false
        })?;
        drop(owed);
        count(transaction, webhook, -dropped)?;
        set_head(transaction, queue, None)?;
    }
    let index = index_of(partition);
    let (first, next) = ((name, index, i128::MIN, "", 0), (name, index + 1, i128::MIN, "", 0));
    transaction.open_table(tables::DEAD_NOTICES)?.retain_in(first..next, |_, _| false)?;
    Ok(has_more)
}

fn redeliver(
    transaction: &WriteTransaction,
    queue: &NoticeQueue,
    seq: Seq,
    now: Timestamp,
) -> Result<bool, Error> {
    let (webhook, id) = (queue.webhook.as_str(), queue.conversation.as_str());
    let partition = index_of(Partition::from(&queue.conversation));
    let mut table = transaction.open_table(tables::DEAD_NOTICES)?;
    let (first, next) =
        ((webhook, partition, i128::MIN, "", 0), (webhook, partition + 1, i128::MIN, "", 0));
    let mut found = None;
    for row in table.range(first..next)? {
        let (key, json) = row?;
        let (_, _, at, conversation, number) = key.value();
        if (conversation, number) == (id, seq.get()) {
            found = Some((at, tables::parse::<DeadNotice>("dead notice", json.value())?));
            break;
        }
    }
    let Some((at, dead)) = found else { return Ok(false) };
    table.remove((webhook, partition, at, id, seq.get()))?;
    drop(table);
    push(transaction, queue, &StoredNotice { since: now, ..dead.notice })?;
    lead(transaction, queue, now)?;
    Ok(true)
}

impl Embedded {
    fn opened_notice(
        &self,
        conversation: &Scoped<ConversationId>,
        stored: StoredNotice,
    ) -> Result<StoredNotice, StoreError> {
        match self.sealer() {
            Some(sealer) => sealer.open_notice(conversation.as_str(), stored),
            None => Ok(stored),
        }
    }

    /// The head as it is stored once it is dead.
    fn sealed_head(
        &self,
        conversation: &Scoped<ConversationId>,
        head: &NoticeHead,
    ) -> Result<NoticeHead, StoreError> {
        let mut head = head.clone();
        if let Some(sealer) = self.sealer() {
            head.notice = sealer.seal_notice(conversation.as_str(), head.notice)?;
        }
        Ok(head)
    }
}

#[async_trait]
impl Outbox for Embedded {
    async fn webhooks(&self, known: Option<u64>) -> Result<Option<WebhookList>, StoreError> {
        self.read_row(|from| reads::webhooks(from, known))
    }

    async fn change_webhooks(&self, change: &WebhookChange) -> Result<bool, StoreError> {
        self.write(Write::Notice(NoticeWrite::Change(self.encoded_webhooks(change)?))).await
    }

    async fn due_webhooks(
        &self,
        partitions: &PartitionSet,
        until: Timestamp,
    ) -> Result<Vec<(Partition, WebhookKey)>, StoreError> {
        let partitions = partitions.clone();
        self.read_row(|from| reads::due_webhooks(from, &partitions, until))
    }

    async fn due_queues(
        &self,
        webhook: &WebhookKey,
        partitions: &[Partition],
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, Scoped<ConversationId>)>, StoreError> {
        let (webhook, partitions) = (webhook.clone(), partitions.iter().copied().collect());
        self.read(move |from| reads::due_queues(from, &webhook, &partitions, until, limit)).await
    }

    async fn old_queues(
        &self,
        webhook: &WebhookKey,
        partitions: &PartitionSet,
        since: Timestamp,
        limit: usize,
    ) -> Result<Vec<Scoped<ConversationId>>, StoreError> {
        let (webhook, partitions) = (webhook.clone(), partitions.clone());
        self.read(move |from| reads::old_queues(from, &webhook, &partitions, since, limit)).await
    }

    async fn notice_head(&self, queue: &NoticeQueue) -> Result<Option<NoticeHead>, StoreError> {
        let head = self.read_row(|from| reads::head(from, queue))?;
        let open = |head: NoticeHead| {
            let notice = self.opened_notice(&queue.conversation, head.notice)?;
            Ok(NoticeHead { notice, ..head })
        };
        head.map(open).transpose()
    }

    async fn settle_notice(
        &self,
        queue: &NoticeQueue,
        head: &NoticeHead,
        settlement: &Settlement,
    ) -> Result<Option<NoticeHead>, StoreError> {
        let settle = NoticeWrite::Settle {
            queue: queue.clone(),
            head: self.sealed_head(&queue.conversation, head)?,
            settlement: settlement.clone(),
        };
        let is_gone = !matches!(settlement, Settlement::Retry { .. });
        if self.write(Write::Notice(settle)).await? && is_gone {
            self.notice_head(queue).await
        } else {
            Ok(None)
        }
    }

    async fn drop_notices(
        &self,
        webhook: &WebhookKey,
        partition: Partition,
    ) -> Result<bool, StoreError> {
        let webhook = webhook.clone();
        self.write(Write::Notice(NoticeWrite::Drop { webhook, partition })).await
    }

    async fn notice_counts(&self, webhook: &WebhookKey) -> Result<NoticeCounts, StoreError> {
        let webhook = webhook.clone();
        self.read(move |from| reads::counts(from, &webhook)).await
    }

    async fn owed_in(&self, _: &PartitionSet) -> Result<NoticeCounts, StoreError> {
        // The one process that has the file looks after all partitions.
        self.read(|from| reads::owed(from)).await
    }

    async fn deliveries(
        &self,
        webhook: &WebhookKey,
        state: DeliveryState,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<Delivery>, ListError> {
        let webhook = webhook.clone();
        let Page { items, cursor } = match state {
            DeliveryState::Owed => {
                let after = paging::decode(cursor)?;
                self.read(move |from| reads::owed_page(from, &webhook, after, limit)).await?
            }
            DeliveryState::Dead => {
                let after = paging::decode(cursor)?;
                self.read(move |from| reads::dead_page(from, &webhook, after, limit)).await?
            }
        };
        let open = |delivery: Delivery| {
            let notice = self.opened_notice(&delivery.conversation, delivery.notice)?;
            Ok(Delivery { notice, ..delivery })
        };
        let items = items.into_iter().map(open).collect::<Result<_, StoreError>>()?;
        Ok(Page { items, cursor })
    }

    async fn redeliver(
        &self,
        queue: &NoticeQueue,
        seq: Seq,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let queue = queue.clone();
        self.write(Write::Notice(NoticeWrite::Redeliver { queue, seq, now })).await
    }
}
