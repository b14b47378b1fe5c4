//! What the deliveries of this node find out about receivers, stored seldom.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use abide_actors::journal::StoreError;
use abide_actors::notices::{Webhook, WebhookHealth, WebhookKey};
use abide_conversation::Timestamp;
use tokio::time::Instant;

use super::schedule::before;
use super::webhook_catalog::WebhookCatalog;
use crate::store::WebhookEdit;

/// How often the health of one webhook is stored: a receiver that fails now and then must not cost
/// a write each time.
const WRITE_INTERVAL: Duration = Duration::from_secs(5);
/// How often the last error of a receiver that keeps failing is stored.
const ERROR_INTERVAL: Duration = Duration::from_secs(60);

/// The health of webhooks, on its way into the store.
#[derive(Debug, Default)]
pub struct HealthNotes(Mutex<Notes>);

#[derive(Debug, Default)]
struct Notes {
    written_at: HashMap<WebhookKey, Instant>,
    /// Webhooks whose receivers answered last, and of which the store says that they fail.
    recovered: HashSet<WebhookKey>,
}

impl Notes {
    /// Whether the health of a webhook may be stored now; it counts as stored from now on.
    fn may_write(&mut self, key: &WebhookKey) -> bool {
        let now = Instant::now();
        self.written_at.retain(|_, at| now < *at + WRITE_INTERVAL);
        let may = !self.written_at.contains_key(key);
        if may {
            self.written_at.insert(key.clone(), now);
        }
        may
    }
}

impl HealthNotes {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note that an attempt failed.
    pub(super) async fn failed(
        &self,
        catalog: &WebhookCatalog,
        webhook: &Webhook,
        error: &str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let key = webhook.key();
        self.notes().recovered.remove(&key);
        let is_new = |webhook: &Webhook| {
            let last = webhook.health.last_error_at;
            webhook.health.failing_since.is_none()
                || last.is_none_or(|at| at <= before(now, ERROR_INTERVAL))
        };
        if !is_new(webhook) || !self.notes().may_write(&key) {
            return Ok(());
        }
        tracing::warn!(webhook = %key, error, "webhook failed");
        let failed = |webhook: &Webhook| {
            is_new(webhook).then(|| {
                with_health(webhook, |health| {
                    health.failing_since.get_or_insert(now);
                    (health.last_error, health.last_error_at) = (Some(error.to_owned()), Some(now));
                })
            })
        };
        catalog.edit(&key, failed).await.map(drop)
    }

    /// Takes note that an attempt succeeded.
    pub(super) async fn succeeded(
        &self,
        catalog: &WebhookCatalog,
        webhook: &Webhook,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if webhook.health.failing_since.is_none() {
            return Ok(());
        }
        let key = webhook.key();
        // What waits for a failing receiver follows at once.
        if webhook.is_failing(now) || self.notes().may_write(&key) {
            self.notes().recovered.remove(&key);
            return catalog.edit(&key, recovered).await.map(drop);
        }
        self.notes().recovered.insert(key);
        Ok(())
    }

    /// Stores which receivers have recovered.
    pub(super) async fn flush(&self, catalog: &WebhookCatalog) -> Result<(), StoreError> {
        let keys = std::mem::take(&mut self.notes().recovered);
        for key in keys {
            catalog.edit(&key, recovered).await?;
        }
        Ok(())
    }
}

fn recovered(webhook: &Webhook) -> Option<WebhookEdit> {
    webhook.health.failing_since?;
    Some(with_health(webhook, |health| {
        (health.failing_since, health.next_probe_at) = (None, None);
    }))
}

pub(super) fn with_health(
    webhook: &Webhook,
    change: impl FnOnce(&mut WebhookHealth),
) -> WebhookEdit {
    let mut webhook = webhook.clone();
    change(&mut webhook.health);
    WebhookEdit::Put(Box::new(webhook))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::super::webhook_catalog::tests::webhook;
    use super::*;
    use crate::store::memory::Memory;
    use crate::store::{Outbox, WebhookChange};

    #[tokio::test(start_paused = true)]
    async fn a_receiver_that_fails_now_and_then_costs_few_writes_and_ends_as_sound() {
        let store = Arc::new(Memory::default());
        let put = WebhookEdit::Put(Box::new(webhook("ops")));
        store.change_webhooks(&WebhookChange { version: 0, changes: vec![put] }).await.unwrap();
        let catalog = WebhookCatalog::new(store.clone());
        catalog.refresh(Duration::ZERO).await.unwrap();
        let (notes, key) = (HealthNotes::default(), webhook("ops").key());
        let now = Timestamp::UNIX_EPOCH;
        for _ in 0..1_000 {
            let known = catalog.get(&key).unwrap();
            notes.failed(&catalog, &known, "500", now).await.unwrap();
            let known = catalog.get(&key).unwrap();
            notes.succeeded(&catalog, &known, now).await.unwrap();
        }
        let version = store.webhooks(None).await.unwrap().unwrap().version;
        assert_eq!(version, 2, "one write for a thousand failures");
        assert!(catalog.get(&key).unwrap().health.failing_since.is_some());
        notes.flush(&catalog).await.unwrap();
        assert!(catalog.get(&key).unwrap().health.failing_since.is_none());
        assert_eq!(catalog.get(&key).unwrap().health.last_error.as_deref(), Some("500"));
    }
}
