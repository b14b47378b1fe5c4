//! The webhooks and what is owed to them, as a port (`reference/webhooks.md`).
//!
//! What a conversation owes to a webhook is a queue, in the order of its events. Only the head of a
//! queue is ever sent. A commit adds to the queues of its conversation; everything else goes through
//! [`Outbox`].

use abide_actors::journal::StoreError;
use abide_actors::notices::{OwedNotice, Webhook, WebhookKey};
use abide_conversation::{ConversationId, Scoped, Seq, Timestamp};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{ListError, Page};
use crate::partition::{Partition, PartitionSet};

/// How many dead notices of one webhook a partition keeps; the oldest are dropped.
pub const MAX_DEAD_PER_PARTITION: usize = 100;

/// All webhooks of all tenants, as of a version that every change raises.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WebhookList {
    pub version: u64,
    pub webhooks: Vec<Webhook>,
}

/// A change of the webhooks that applies to one version of their list.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookChange {
    /// The version that the list must have.
    pub version: u64,
    pub changes: Vec<WebhookEdit>,
}

/// The change of one webhook.
#[derive(Clone, Debug, PartialEq)]
pub enum WebhookEdit {
    Put(Box<Webhook>),
    Remove(WebhookKey),
}

impl WebhookEdit {
    /// The key of the webhook.
    pub fn key(&self) -> WebhookKey {
        match self {
            Self::Put(webhook) => webhook.key(),
            Self::Remove(key) => key.clone(),
        }
    }
}

/// What one conversation owes to one webhook.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NoticeQueue {
    pub webhook: WebhookKey,
    pub conversation: Scoped<ConversationId>,
}

/// A notice as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredNotice {
    pub seq: Seq,
    /// The `type` of the notice.
    #[serde(rename = "type")]
    pub kind: String,
    /// The time of the event.
    pub at: Timestamp,
    /// Since when it is owed: the time of the event, or of its redelivery.
    pub since: Timestamp,
    /// The JSON that is sent.
    pub body: String,
}

impl From<&OwedNotice> for StoredNotice {
    fn from(owed: &OwedNotice) -> Self {
        Self {
            seq: owed.seq,
            kind: owed.kind.as_str().to_owned(),
            at: owed.at,
            since: owed.at,
            body: owed.body.to_string(),
        }
    }
}

/// The attempts at the head of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    pub count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// The head of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeHead {
    pub notice: StoredNotice,
    pub attempts: Attempts,
    /// When the next attempt is due.
    pub due: Timestamp,
}

/// What became of the head of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The next notice is due at this time.
    Delivered { at: Timestamp },
    /// The head stays, and is due again at this time.
    Retry { due: Timestamp, attempts: Attempts },
    /// Nobody tries it any more. The next notice is due at this time.
    Dead { at: Timestamp, attempts: Attempts },
}

/// Something that is owed, or dead, as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub conversation: Scoped<ConversationId>,
    pub notice: StoredNotice,
    /// The attempts at the head of a queue, and at a dead notice; none at any other.
    pub attempts: Attempts,
    /// Heads of queues only: when the next attempt is due.
    pub due: Option<Timestamp>,
    /// Dead notices only: since when.
    pub dead_at: Option<Timestamp>,
}

/// A dead notice as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DeadNotice {
    pub(super) conversation: Scoped<ConversationId>,
    pub(super) notice: StoredNotice,
    pub(super) attempts: Attempts,
    pub(super) dead_at: Timestamp,
}

impl From<DeadNotice> for Delivery {
    fn from(dead: DeadNotice) -> Self {
        let DeadNotice { conversation, notice, attempts, dead_at } = dead;
        Self { conversation, notice, attempts, due: None, dead_at: Some(dead_at) }
    }
}

/// How much is owed to a webhook, and how much is dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoticeCounts {
    pub owed: u64,
    pub dead: u64,
    /// Since when the oldest is owed.
    pub oldest: Option<Timestamp>,
}

/// How many of the first notices of one conversation a listing shows.
pub const LISTED_PER_QUEUE: usize = 20;

/// Which notices are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// By conversation, those first to which the oldest is owed; of each the
    /// [first few](LISTED_PER_QUEUE).
    Owed,
    Dead,
}

/// The webhooks of a cluster, and what is owed to them.
///
/// What the commits owe is as durable as the commits. Everything that this reads is a view. A change
/// may be repeated without harm.
#[async_trait]
pub trait Outbox: Send + Sync + 'static {
    /// All webhooks of all tenants, unordered; `None` if they are still as of this version. A change
    /// that was answered is seen.
    async fn webhooks(&self, known: Option<u64>) -> Result<Option<WebhookList>, StoreError>;

    /// Changes webhooks. Returns whether it did: nothing is written if the list has another version.
    async fn change_webhooks(&self, change: &WebhookChange) -> Result<bool, StoreError>;

    /// The webhooks that a queue of these partitions is due for by `until`, with the partition.
    async fn due_webhooks(
        &self,
        partitions: &PartitionSet,
        until: Timestamp,
    ) -> Result<Vec<(Partition, WebhookKey)>, StoreError>;

    /// The queues of a webhook in these partitions that are due by `until`: at most `limit` of each
    /// partition, the earliest of each.
    async fn due_queues(
        &self,
        webhook: &WebhookKey,
        partitions: &[Partition],
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, Scoped<ConversationId>)>, StoreError>;

    /// The queues of a webhook in these partitions whose head is owed since before `since`: at most
    /// `limit` of each partition.
    async fn old_queues(
        &self,
        webhook: &WebhookKey,
        partitions: &PartitionSet,
        since: Timestamp,
        limit: usize,
    ) -> Result<Vec<Scoped<ConversationId>>, StoreError>;

    /// The head of a queue; `None` if nothing is owed.
    async fn notice_head(&self, queue: &NoticeQueue) -> Result<Option<NoticeHead>, StoreError>;

    /// Notes what became of the head of a queue, if that is still the notice of this event. Returns
    /// the head after that, if the notice is gone by this call and another is there.
    async fn settle_notice(
        &self,
        queue: &NoticeQueue,
        head: &NoticeHead,
        settlement: &Settlement,
    ) -> Result<Option<NoticeHead>, StoreError>;

    /// Drops some of what is owed to a webhook, and all that is dead. Returns whether more is owed.
    async fn drop_notices(
        &self,
        webhook: &WebhookKey,
        partition: Partition,
    ) -> Result<bool, StoreError>;

    /// How much is owed to a webhook, and how much is dead.
    async fn notice_counts(&self, webhook: &WebhookKey) -> Result<NoticeCounts, StoreError>;

    /// How much is owed in these partitions to all webhooks.
    async fn owed_in(&self, partitions: &PartitionSet) -> Result<NoticeCounts, StoreError>;

    /// What is owed to a webhook, or dead.
    async fn deliveries(
        &self,
        webhook: &WebhookKey,
        state: DeliveryState,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<Delivery>, ListError>;

    /// Makes a dead notice the next of its queue, owed since `now`. Returns whether it was there.
    async fn redeliver(
        &self,
        queue: &NoticeQueue,
        seq: Seq,
        now: Timestamp,
    ) -> Result<bool, StoreError>;
}
