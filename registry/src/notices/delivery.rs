//! Delivers what one conversation owes to one webhook, one notice after another.

use std::sync::Arc;
use std::time::Duration;

use abide_actors::journal::StoreError;
use abide_actors::notices::{NoticeKind, Webhook, WebhookHealth, WebhookKey};
use abide_actors::webhooks::{Sending, Sent};
use abide_conversation::Timestamp;
use serde_json::Value;

use super::CourierDeps;
use super::health::with_health;
use super::schedule::{after, before, last_attempt_after, next_attempt};
use crate::store::{Attempts, NoticeHead, NoticeQueue, Settlement, StoredNotice, WebhookEdit};

/// How many notices of one conversation are sent in a row, before others have their turn.
const MAX_IN_A_ROW: usize = 16;
/// How often a failing receiver is tried.
const PROBE_INTERVAL: Duration = Duration::from_secs(3_600);
/// How many notices of a failing receiver are ended in one go.
const MAX_EXPIRED: usize = 64;

/// What became of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing is due.
    Idle,
    /// The receiver took what there was, or the beginning of it.
    Delivered { has_more: bool },
    /// The receiver, or the store, failed.
    Failed,
    /// The receiver is failing, and is tried later.
    Held,
}

impl CourierDeps {
    /// Delivers what is due of a queue.
    pub(super) async fn deliver(&self, queue: &NoticeQueue) -> Outcome {
        match self.deliver_queue(queue).await {
            Ok(outcome) => outcome,
            Err(error) => {
                tracing::warn!(conversation = %queue.conversation, %error, "notice not settled");
                Outcome::Failed
            }
        }
    }

    async fn deliver_queue(&self, queue: &NoticeQueue) -> Result<Outcome, StoreError> {
        let mut head = self.store.notice_head(queue).await?;
        let mut is_first = true;
        for _ in 0..MAX_IN_A_ROW {
            let now = self.clock.now();
            let Some(due) = head.filter(|head| head.due <= now) else {
                return Ok(if is_first { Outcome::Idle } else { delivered(false) });
            };
            let Some(webhook) = self.catalog.get(&queue.webhook).filter(|it| it.is_active()) else {
                return Ok(Outcome::Idle);
            };
            if webhook.is_failing(now) && !self.take_probe(&webhook, now).await? {
                return Ok(Outcome::Held);
            }
            match self.attempt(&webhook, queue, &due).await {
                Sent::Delivered => {
                    self.note_success(&webhook, &due.notice).await?;
                    let settled = Settlement::Delivered { at: due.due };
                    head = self.store.settle_notice(queue, &due, &settled).await?;
                    is_first = false;
                }
                Sent::Gone => {
                    self.end(&webhook).await?;
                    return Ok(Outcome::Failed);
                }
                Sent::Failed(error) => {
                    self.note_failure(&webhook, &error).await?;
                    self.settle_failure(queue, &due, error).await?;
                    return Ok(Outcome::Failed);
                }
            }
        }
        Ok(delivered(head.is_some()))
    }

    async fn attempt(&self, webhook: &Webhook, queue: &NoticeQueue, head: &NoticeHead) -> Sent {
        let notice = &head.notice;
        let id = format!("{}:{}:{}", queue.conversation.local(), notice.seq, webhook.name);
        let links = match &self.links {
            Some(links) if is_answerable(webhook, notice) => {
                links.links(webhook, queue, notice).await
            }
            Some(_) | None => None,
        };
        let body = match links {
            Some(links) => with_links(&notice.body, links),
            None => notice.body.clone(),
        };
        let sent = self.sender.send(Sending { webhook, id: &id, body }).await;
        let outcome = match &sent {
            Sent::Delivered => "delivered",
            Sent::Gone => "gone",
            Sent::Failed(_) => "failed",
        };
        metrics::counter!("abide_notice_attempts_total", "outcome" => outcome).increment(1);
        sent
    }

    async fn settle_failure(
        &self,
        queue: &NoticeQueue,
        head: &NoticeHead,
        error: String,
    ) -> Result<(), StoreError> {
        let now = self.clock.now();
        let attempts = Attempts {
            count: head.attempts.count.saturating_add(1),
            last_at: Some(now),
            last_error: Some(error),
        };
        let settlement = match next_attempt(head.notice.since, now) {
            Some(due) => Settlement::Retry { due, attempts },
            None => {
                count_dead(queue, head);
                Settlement::Dead { at: now, attempts }
            }
        };
        self.store.settle_notice(queue, head, &settlement).await.map(drop)
    }

    /// Whether a failing receiver may be tried now. Then no other node tries it for an hour.
    async fn take_probe(&self, webhook: &Webhook, now: Timestamp) -> Result<bool, StoreError> {
        let is_due = |webhook: &Webhook| {
            webhook.is_failing(now) && webhook.health.next_probe_at.is_none_or(|at| at <= now)
        };
        if !is_due(webhook) {
            return Ok(false);
        }
        let next_probe_at = Some(after(now, PROBE_INTERVAL));
        let probing = |webhook: &Webhook| {
            is_due(webhook)
                .then(|| with_health(webhook, |health| health.next_probe_at = next_probe_at))
        };
        self.catalog.edit(&webhook.key(), probing).await
    }

    async fn note_success(
        &self,
        webhook: &Webhook,
        notice: &StoredNotice,
    ) -> Result<(), StoreError> {
        let lag = self.clock.now().duration_since(notice.since).as_secs_f64().max(0.0);
        metrics::histogram!("abide_notice_delivery_seconds").record(lag);
        self.health.succeeded(&self.catalog, webhook, self.clock.now()).await
    }

    async fn note_failure(&self, webhook: &Webhook, error: &str) -> Result<(), StoreError> {
        self.health.failed(&self.catalog, webhook, error, self.clock.now()).await
    }

    /// Ends a webhook whose receiver wants no more.
    async fn end(&self, webhook: &Webhook) -> Result<(), StoreError> {
        let now = self.clock.now();
        tracing::warn!(webhook = %webhook.key(), "webhook ended: its receiver is gone");
        let ended = |webhook: &Webhook| {
            let ended_at = Some(now);
            let last_error = Some("the receiver answered 410".to_owned());
            let health =
                WebhookHealth { last_error, last_error_at: ended_at, ..webhook.health.clone() };
            let ended = || Webhook { ended_at, health, ..webhook.clone() };
            webhook.is_active().then(|| WebhookEdit::Put(Box::new(ended())))
        };
        self.catalog.edit(&webhook.key(), ended).await.map(drop)
    }

    /// Ends notices of a failing receiver that are owed for longer than anybody tries.
    pub(super) async fn expire(&self, webhook: &WebhookKey) -> Result<(), StoreError> {
        let now = self.clock.now();
        let partitions = self.cluster.view().partitions.clone();
        let since = before(now, last_attempt_after());
        loop {
            let old = self.store.old_queues(webhook, &partitions, since, MAX_EXPIRED).await?;
            if old.is_empty() {
                return Ok(());
            }
            for conversation in old {
                let queue = NoticeQueue { webhook: webhook.clone(), conversation };
                let mut head = self.store.notice_head(&queue).await?;
                while let Some(old) = head.take().filter(|head| head.notice.since < since) {
                    let attempts = match &old.attempts.last_error {
                        Some(_) => old.attempts.clone(),
                        None => Attempts {
                            last_error: Some("the receiver has failed for days".to_owned()),
                            ..old.attempts.clone()
                        },
                    };
                    count_dead(&queue, &old);
                    let dead = Settlement::Dead { at: now, attempts };
                    head = self.store.settle_notice(&queue, &old, &dead).await?;
                }
            }
        }
    }
}

fn delivered(has_more: bool) -> Outcome {
    Outcome::Delivered { has_more }
}

fn count_dead(queue: &NoticeQueue, head: &NoticeHead) {
    metrics::counter!("abide_notices_dead_total").increment(1);
    let NoticeQueue { webhook, conversation } = queue;
    tracing::warn!(%webhook, %conversation, seq = %head.notice.seq, "notice dead");
}

fn is_answerable(webhook: &Webhook, notice: &StoredNotice) -> bool {
    webhook.links.is_some() && notice.kind == NoticeKind::CallSuspended.as_str()
}

fn with_links(body: &str, links: Value) -> String {
    let Ok(mut body) = serde_json::from_str::<Value>(body) else { return body.to_owned() };
    if let Some(data) = body.get_mut("data").and_then(Value::as_object_mut) {
        data.insert("links".to_owned(), links);
    }
    body.to_string()
}

/// The deliveries share one set of what they work with.
pub(super) type SharedDeps = Arc<CourierDeps>;

#[cfg(test)]
mod tests;
