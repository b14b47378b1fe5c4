//! What a flaky store owes to webhooks.

use abide_actors::journal::StoreError;
use abide_actors::notices::WebhookKey;
use abide_conversation::{ConversationId, Scoped, Seq, Timestamp};
use abide_registry::partition::{Partition, PartitionSet};
use abide_registry::store::{
    Delivery, DeliveryState, ListError, NoticeCounts, NoticeHead, NoticeQueue, Outbox, Page,
    Settlement, WebhookChange, WebhookList,
};
use async_trait::async_trait;

use super::FlakyStore;

#[async_trait]
impl Outbox for FlakyStore {
    async fn webhooks(&self, known: Option<u64>) -> Result<Option<WebhookList>, StoreError> {
        self.reachable()?.webhooks(known).await
    }

    async fn change_webhooks(&self, change: &WebhookChange) -> Result<bool, StoreError> {
        self.reachable()?.change_webhooks(change).await
    }

    async fn due_webhooks(
        &self,
        partitions: &PartitionSet,
        until: Timestamp,
    ) -> Result<Vec<(Partition, WebhookKey)>, StoreError> {
        self.reachable()?.due_webhooks(partitions, until).await
    }

    async fn due_queues(
        &self,
        webhook: &WebhookKey,
        partitions: &[Partition],
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, Scoped<ConversationId>)>, StoreError> {
        self.reachable()?.due_queues(webhook, partitions, until, limit).await
    }

    async fn old_queues(
        &self,
        webhook: &WebhookKey,
        partitions: &PartitionSet,
        since: Timestamp,
        limit: usize,
    ) -> Result<Vec<Scoped<ConversationId>>, StoreError> {
        self.reachable()?.old_queues(webhook, partitions, since, limit).await
    }

    async fn notice_head(&self, queue: &NoticeQueue) -> Result<Option<NoticeHead>, StoreError> {
        self.reachable()?.notice_head(queue).await
    }

    async fn settle_notice(
        &self,
        queue: &NoticeQueue,
        head: &NoticeHead,
        settlement: &Settlement,
    ) -> Result<Option<NoticeHead>, StoreError> {
        self.reachable()?.settle_notice(queue, head, settlement).await
    }

    async fn drop_notices(
        &self,
        webhook: &WebhookKey,
        partition: Partition,
    ) -> Result<bool, StoreError> {
        self.reachable()?.drop_notices(webhook, partition).await
    }

    async fn notice_counts(&self, webhook: &WebhookKey) -> Result<NoticeCounts, StoreError> {
        self.reachable()?.notice_counts(webhook).await
    }

    async fn owed_in(&self, partitions: &PartitionSet) -> Result<NoticeCounts, StoreError> {
        self.reachable()?.owed_in(partitions).await
    }

    async fn deliveries(
        &self,
        webhook: &WebhookKey,
        state: DeliveryState,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<Delivery>, ListError> {
        self.reachable()?.deliveries(webhook, state, cursor, limit).await
    }

    async fn redeliver(
        &self,
        queue: &NoticeQueue,
        seq: Seq,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.reachable()?.redeliver(queue, seq, now).await
    }
}
