//! The webhooks, and what is owed to them, in memory.

use std::collections::{BTreeMap, VecDeque};

use abide_actors::journal::StoreError;
use abide_actors::notices::{OwedNotice, Webhook, WebhookKey};
use abide_conversation::{ConversationId, Scoped, Seq, Timestamp};
use async_trait::async_trait;

use super::super::notices::{
    Attempts, DeadNotice, Delivery, DeliveryState, LISTED_PER_QUEUE, MAX_DEAD_PER_PARTITION,
    NoticeCounts, NoticeHead, NoticeQueue, Outbox, Settlement, StoredNotice, WebhookChange,
    WebhookEdit, WebhookList,
};
use super::super::{ListError, Page, paging};
use super::Memory;
use crate::partition::{Partition, PartitionSet};

/// The webhooks, the queues, and what is dead.
#[derive(Debug, Default)]
pub(super) struct Notices {
    version: u64,
    pub(super) webhooks: BTreeMap<WebhookKey, Webhook>,
    queues: BTreeMap<NoticeQueue, Queue>,
    /// By webhook, partition, time of death, conversation, and seq.
    dead: BTreeMap<DeadKey, DeadNotice>,
}

type DeadKey = (WebhookKey, Partition, Timestamp, Scoped<ConversationId>, Seq);

/// A queue that is not empty.
#[derive(Debug)]
struct Queue {
    notices: VecDeque<StoredNotice>,
    attempts: Attempts,
    due: Timestamp,
}

impl Queue {
    fn head(&self) -> Option<NoticeHead> {
        let notice = self.notices.front()?.clone();
        Some(NoticeHead { notice, attempts: self.attempts.clone(), due: self.due })
    }

    fn since(&self) -> Timestamp {
        self.notices.front().map_or(Timestamp::MAX, |head| head.since)
    }
}

fn partition_of(queue: &NoticeQueue) -> Partition {
    Partition::from(&queue.conversation)
}

impl Notices {
    /// Adds what a conversation owes.
    pub(super) fn owe(&mut self, id: &Scoped<ConversationId>, owed: &[OwedNotice]) {
        for notice in owed {
            let queue = NoticeQueue { webhook: notice.webhook.clone(), conversation: id.clone() };
            let queue = self.queues.entry(queue).or_insert_with(|| Queue {
                notices: VecDeque::new(),
                attempts: Attempts::default(),
                due: notice.at,
            });
            queue.notices.push_back(StoredNotice::from(notice));
        }
    }

    fn of(&self, webhook: &WebhookKey) -> impl Iterator<Item = (&NoticeQueue, &Queue)> {
        self.queues.iter().filter(move |(queue, _)| queue.webhook == *webhook)
    }

    /// Ends the head of a queue, whose next notice is due at this time.
    fn pop(&mut self, queue: &NoticeQueue, at: Timestamp) -> Option<NoticeHead> {
        let found = self.queues.get_mut(queue)?;
        found.notices.pop_front();
        found.attempts = Attempts::default();
        found.due = at;
        let head = found.head();
        if head.is_none() {
            self.queues.remove(queue);
        }
        head
    }

    fn bury(&mut self, queue: &NoticeQueue, dead: DeadNotice) {
        let (webhook, partition) = (queue.webhook.clone(), partition_of(queue));
        let seq = dead.notice.seq;
        let key = (webhook.clone(), partition, dead.dead_at, queue.conversation.clone(), seq);
        self.dead.insert(key, dead);
        let is_there = |key: &&DeadKey| (&key.0, key.1) == (&webhook, partition);
        let keys: Vec<DeadKey> = self.dead.keys().filter(is_there).cloned().collect();
        for oldest in keys.iter().take(keys.len().saturating_sub(MAX_DEAD_PER_PARTITION)) {
            self.dead.remove(oldest);
        }
    }
}

#[async_trait]
impl Outbox for Memory {
    async fn webhooks(&self, known: Option<u64>) -> Result<Option<WebhookList>, StoreError> {
        let notices = &self.tables().notices;
        let version = notices.version;
        let list =
            || WebhookList { version, webhooks: notices.webhooks.values().cloned().collect() };
        Ok((known != Some(version)).then(list))
    }

    async fn change_webhooks(&self, change: &WebhookChange) -> Result<bool, StoreError> {
        Ok(self.tables().notices.change(change))
    }

    async fn due_webhooks(
        &self,
        partitions: &PartitionSet,
        until: Timestamp,
    ) -> Result<Vec<(Partition, WebhookKey)>, StoreError> {
        let tables = self.tables();
        let due = tables.notices.queues.iter().filter(|(_, queue)| queue.due <= until);
        let found = due.map(|(queue, _)| (partition_of(queue), queue.webhook.clone()));
        let mut found: Vec<_> = found.filter(|(it, _)| partitions.contains(*it)).collect();
        found.sort();
        found.dedup();
        Ok(found)
    }

    async fn due_queues(
        &self,
        webhook: &WebhookKey,
        partitions: &[Partition],
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, Scoped<ConversationId>)>, StoreError> {
        let tables = self.tables();
        let mut all = Vec::new();
        for partition in partitions {
            let here = tables
                .notices
                .of(webhook)
                .filter(|(queue, it)| partition_of(queue) == *partition && it.due <= until);
            let mut due: Vec<_> =
                here.map(|(queue, it)| (it.due, queue.conversation.clone())).collect();
            due.sort();
            due.truncate(limit);
            all.extend(due);
        }
        Ok(all)
    }

    async fn old_queues(
        &self,
        webhook: &WebhookKey,
        partitions: &PartitionSet,
        since: Timestamp,
        limit: usize,
    ) -> Result<Vec<Scoped<ConversationId>>, StoreError> {
        let tables = self.tables();
        let old = tables
            .notices
            .of(webhook)
            .filter(|(queue, it)| it.since() < since && partitions.contains(partition_of(queue)));
        Ok(old.take(limit).map(|(queue, _)| queue.conversation.clone()).collect())
    }

    async fn notice_head(&self, queue: &NoticeQueue) -> Result<Option<NoticeHead>, StoreError> {
        Ok(self.tables().notices.queues.get(queue).and_then(Queue::head))
    }

    async fn settle_notice(
        &self,
        queue: &NoticeQueue,
        head: &NoticeHead,
        settlement: &Settlement,
    ) -> Result<Option<NoticeHead>, StoreError> {
        let notices = &mut self.tables().notices;
        let seq = head.notice.seq;
        let Some(found) = notices.queues.get_mut(queue) else { return Ok(None) };
        if found.notices.front().is_none_or(|front| front.seq != seq) {
            return Ok(None);
        }
        match settlement {
            Settlement::Delivered { at } => Ok(notices.pop(queue, *at)),
            Settlement::Retry { due, attempts } => {
                (found.due, found.attempts) = (*due, attempts.clone());
                Ok(None)
            }
            Settlement::Dead { at, attempts } => {
                let (conversation, notice) = (queue.conversation.clone(), head.notice.clone());
                let (attempts, dead_at) = (attempts.clone(), *at);
                notices.bury(queue, DeadNotice { conversation, notice, attempts, dead_at });
                Ok(notices.pop(queue, *at))
            }
        }
    }

    async fn drop_notices(
        &self,
        webhook: &WebhookKey,
        partition: Partition,
    ) -> Result<bool, StoreError> {
        let notices = &mut self.tables().notices;
        let is_here =
            |queue: &NoticeQueue| queue.webhook == *webhook && partition_of(queue) == partition;
        notices.queues.retain(|queue, _| !is_here(queue));
        notices.dead.retain(|key, _| (&key.0, key.1) != (webhook, partition));
        Ok(false)
    }

    async fn notice_counts(&self, webhook: &WebhookKey) -> Result<NoticeCounts, StoreError> {
        let tables = self.tables();
        let mut counts = NoticeCounts::default();
        for (_, queue) in tables.notices.of(webhook) {
            add(&mut counts, queue);
        }
        counts.dead = tables.notices.dead.keys().filter(|key| key.0 == *webhook).count() as u64;
        Ok(counts)
    }

    async fn owed_in(&self, partitions: &PartitionSet) -> Result<NoticeCounts, StoreError> {
        let tables = self.tables();
        let mut counts = NoticeCounts::default();
        for (queue, it) in &tables.notices.queues {
            if partitions.contains(partition_of(queue)) {
                add(&mut counts, it);
            }
        }
        Ok(counts)
    }

    async fn deliveries(
        &self,
        webhook: &WebhookKey,
        state: DeliveryState,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<Delivery>, ListError> {
        let tables = self.tables();
        let after: Option<(Timestamp, Scoped<ConversationId>, Seq)> = paging::decode(cursor)?;
        let mut rows: Vec<((Timestamp, Scoped<ConversationId>, Seq), Vec<Delivery>)> = match state {
            DeliveryState::Owed => tables.notices.of(webhook).map(owed_row).collect(),
            DeliveryState::Dead => {
                let dead = tables.notices.dead.iter().filter(|(key, _)| key.0 == *webhook);
                let row = |(key, dead): (&DeadKey, &DeadNotice)| {
                    ((key.2, key.3.clone(), key.4), vec![Delivery::from(dead.clone())])
                };
                dead.map(row).collect()
            }
        };
        rows.sort_by(|(key, _), (other, _)| key.cmp(other));
        let rows =
            rows.into_iter().filter(|(key, _)| Some(key) > after.as_ref()).map(Ok::<_, ListError>);
        let Page { items, cursor } = paging::page(rows, limit, |_| true)?;
        Ok(Page { items: items.into_iter().flatten().collect(), cursor })
    }

    async fn redeliver(
        &self,
        queue: &NoticeQueue,
        seq: Seq,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let notices = &mut self.tables().notices;
        let is_it =
            |key: &&DeadKey| (&key.0, &key.3, key.4) == (&queue.webhook, &queue.conversation, seq);
        let Some(key) = notices.dead.keys().find(is_it).cloned() else { return Ok(false) };
        let Some(dead) = notices.dead.remove(&key) else { return Ok(false) };
        let found = notices.queues.entry(queue.clone()).or_insert_with(|| Queue {
            notices: VecDeque::new(),
            attempts: Attempts::default(),
            due: now,
        });
        found.notices.push_front(StoredNotice { since: now, ..dead.notice });
        (found.attempts, found.due) = (Attempts::default(), now);
        Ok(true)
    }
}

impl Notices {
    /// Whether the list of webhooks has this version.
    pub(super) fn is_version(&self, version: u64) -> bool {
        version == self.version
    }

    /// Changes webhooks, if their list has the version that the change is for.
    pub(super) fn change(&mut self, change: &WebhookChange) -> bool {
        if !self.is_version(change.version) {
            return false;
        }
        for edit in &change.changes {
            match edit {
                WebhookEdit::Put(webhook) => {
                    self.webhooks.insert(webhook.key(), (**webhook).clone());
                }
                WebhookEdit::Remove(key) => {
                    self.webhooks.remove(key);
                }
            }
        }
        self.version += 1;
        true
    }
}

fn add(counts: &mut NoticeCounts, queue: &Queue) {
    counts.owed += queue.notices.len() as u64;
    let oldest = counts.oldest.map_or(queue.since(), |oldest| oldest.min(queue.since()));
    counts.oldest = Some(oldest);
}

/// The first notices of a queue, and where they stand in a listing.
fn owed_row(
    (queue, it): (&NoticeQueue, &Queue),
) -> ((Timestamp, Scoped<ConversationId>, Seq), Vec<Delivery>) {
    let delivery = |(index, notice): (usize, &StoredNotice)| Delivery {
        conversation: queue.conversation.clone(),
        notice: notice.clone(),
        attempts: if index == 0 { it.attempts.clone() } else { Attempts::default() },
        due: (index == 0).then_some(it.due),
        dead_at: None,
    };
    let deliveries = it.notices.iter().take(LISTED_PER_QUEUE).enumerate().map(delivery).collect();
    ((it.since(), queue.conversation.clone(), Seq::ZERO), deliveries)
}
