//! The webhooks of a cluster, as this node knows them.
//!
//! A commit must know whether something is owed without reading the store. So each node reads the
//! version of the list twice a second, and what it knows holds for [`MAX_AGE`]: a commit that finds
//! it older reads the list itself. Who changes a webhook waits for that long before answering, if
//! there are other nodes. Whatever happens after the answer is owed by every node.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use abide_actors::journal::StoreError;
use abide_actors::notices::{Webhook, WebhookKey, WebhookSet};
use abide_actors::webhooks::Webhooks;
use abide_conversation::{ConversationId, Scoped, Tenant};
use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::store::{Store, WebhookChange, WebhookEdit, WebhookList};

/// How often the version of the list is read.
pub const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How old what this node knows may be when a commit asks.
pub const MAX_AGE: Duration = Duration::from_millis(1_500);
/// How often a change is tried anew because another one came first.
const MAX_EDITS: usize = 16;

/// The webhooks, by tenant and by key.
pub struct WebhookCatalog {
    store: Arc<dyn Store>,
    known: RwLock<Known>,
    is_empty: AtomicBool,
    versions: watch::Sender<u64>,
    /// Held by the one task that reads the store.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    version: Option<u64>,
    /// When the read began that found it.
    read_at: Option<Instant>,
    by_tenant: HashMap<Tenant, WebhookSet>,
    by_key: HashMap<WebhookKey, Arc<Webhook>>,
}

impl WebhookCatalog {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            known: RwLock::default(),
            is_empty: AtomicBool::new(true),
            versions: watch::Sender::new(0),
            reading: tokio::sync::Mutex::default(),
        }
    }

    /// Runs until it is dropped.
    pub async fn follow(self: Arc<Self>) {
        let mut was_away = false;
        loop {
            let is_away = self.refresh(POLL_INTERVAL / 2).await.is_err();
            if is_away && !was_away {
                tracing::warn!("webhooks cannot be read");
            }
            was_away = is_away;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Sees every version that this node reads.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.versions.subscribe()
    }

    /// Whether there are no webhooks at all, not even such that are being removed.
    pub fn is_empty(&self) -> bool {
        self.is_empty.load(Ordering::Acquire)
    }

    /// The webhook of this key.
    pub fn get(&self, key: &WebhookKey) -> Option<Arc<Webhook>> {
        self.present().by_key.get(key).cloned()
    }

    /// All webhooks, also those that are being removed.
    pub fn all(&self) -> Vec<Arc<Webhook>> {
        self.present().by_key.values().cloned().collect()
    }

    /// Reads the list, unless that was done so recently.
    pub async fn refresh(&self, max_age: Duration) -> Result<(), StoreError> {
        let asked_at = Instant::now();
        let _reading = self.reading.lock().await;
        // Another task may have read it since this one asked.
        let is_young = |at: Instant| at > asked_at || at.elapsed() < max_age;
        if self.present().read_at.is_some_and(is_young) {
            return Ok(());
        }
        let read_at = Instant::now();
        let known = self.present().version;
        let list = self.store.webhooks(known).await?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.read_at = Some(read_at);
        let Some(WebhookList { version, webhooks }) = list else { return Ok(()) };
        known.version = Some(version);
        self.is_empty.store(webhooks.is_empty(), Ordering::Release);
        (known.by_tenant, known.by_key) = indexed(webhooks);
        drop(known);
        self.versions.send_replace(version);
        Ok(())
    }

    /// The present list, and its version.
    pub async fn list(&self) -> Result<WebhookList, StoreError> {
        Ok(self.store.webhooks(None).await?.unwrap_or_default())
    }

    /// Changes one webhook as `edit` says, unless that returns `None`. Returns whether it was changed.
    pub async fn edit(
        &self,
        key: &WebhookKey,
        edit: impl Fn(&Webhook) -> Option<WebhookEdit>,
    ) -> Result<bool, StoreError> {
        for _ in 0..MAX_EDITS {
            let WebhookList { version, webhooks } = self.list().await?;
            let found = webhooks.iter().find(|webhook| webhook.key() == *key);
            let Some(edit) = found.and_then(&edit) else { return Ok(false) };
            let change = WebhookChange { version, changes: vec![edit] };
            if self.store.change_webhooks(&change).await? {
                self.refresh(Duration::ZERO).await?;
                return Ok(true);
            }
        }
        Err(StoreError::Unavailable("too many webhooks change at once".to_owned()))
    }

    fn present(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn of_tenant(&self, id: &Scoped<ConversationId>) -> WebhookSet {
        if self.is_empty() {
            return WebhookSet::default();
        }
        self.present().by_tenant.get(&id.tenant()).cloned().unwrap_or_default()
    }
}

type Indexed = (HashMap<Tenant, WebhookSet>, HashMap<WebhookKey, Arc<Webhook>>);

fn indexed(webhooks: Vec<Webhook>) -> Indexed {
    let all: Vec<Arc<Webhook>> = webhooks.into_iter().map(Arc::new).collect();
    let mut by_tenant: HashMap<Tenant, Vec<Arc<Webhook>>> = HashMap::new();
    for webhook in all.iter().filter(|webhook| webhook.is_active()) {
        by_tenant.entry(webhook.tenant.clone()).or_default().push(webhook.clone());
    }
    let by_tenant = by_tenant.into_iter().map(|(tenant, all)| (tenant, all.into())).collect();
    (by_tenant, all.into_iter().map(|webhook| (webhook.key(), webhook)).collect())
}

#[async_trait]
impl Webhooks for WebhookCatalog {
    fn known(&self, id: &Scoped<ConversationId>) -> Option<WebhookSet> {
        let read_at = self.present().read_at;
        read_at.is_some_and(|at| at.elapsed() < MAX_AGE).then(|| self.of_tenant(id))
    }

    async fn read(&self, id: &Scoped<ConversationId>) -> Result<WebhookSet, StoreError> {
        self.refresh(Duration::ZERO).await?;
        Ok(self.of_tenant(id))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::Outbox;
    use crate::store::memory::Memory;

    pub(in super::super) fn webhook(name: &str) -> Webhook {
        serde_json::from_value(json!({
            "tenant": "default", "name": name, "generation": "g", "url": "http://127.0.0.1:1/",
            "created_at": "2026-01-01T00:00:00.000Z", "updated_at": "2026-01-01T00:00:00.000Z",
            "by": "ann", "secrets": [{"secret": "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"}],
        }))
        .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn what_another_node_has_changed_is_owed_once_what_is_known_here_is_too_old() {
        let store = Arc::new(Memory::default());
        let catalog = WebhookCatalog::new(store.clone());
        let id = Scoped::parse("c").unwrap();
        assert!(catalog.known(&id).is_none(), "nothing was ever read");
        assert!(catalog.read(&id).await.unwrap().is_empty());
        let put = WebhookEdit::Put(Box::new(webhook("ops")));
        let change = WebhookChange { version: 0, changes: vec![put] };
        assert!(store.change_webhooks(&change).await.unwrap());
        assert!(catalog.known(&id).is_some_and(|known| known.is_empty()));
        tokio::time::advance(MAX_AGE).await;
        assert!(catalog.known(&id).is_none());
        assert_eq!(catalog.read(&id).await.unwrap().len(), 1);
        let other = Scoped::parse("acme/c").unwrap();
        assert!(catalog.known(&other).unwrap().is_empty(), "of another tenant");
    }

    #[tokio::test]
    async fn an_edit_is_made_anew_when_another_one_came_first() {
        let store = Arc::new(Memory::default());
        let catalog = WebhookCatalog::new(store.clone());
        let put = |webhook| WebhookEdit::Put(Box::new(webhook));
        let change = WebhookChange { version: 0, changes: vec![put(webhook("ops"))] };
        assert!(store.change_webhooks(&change).await.unwrap());
        assert!(!store.change_webhooks(&change).await.unwrap(), "of an old version");
        let key = webhook("ops").key();
        let ended = |webhook: &Webhook| {
            let by = "bob".to_owned();
            Some(put(Webhook { by, ..webhook.clone() }))
        };
        assert!(catalog.edit(&key, ended).await.unwrap());
        assert_eq!(catalog.get(&key).unwrap().by, "bob");
        assert!(!catalog.edit(&webhook("other").key(), ended).await.unwrap());
    }
}
