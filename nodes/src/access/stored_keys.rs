//! The API keys in the store, as this node last read them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_conversation::{Tenant, Timestamp};
use abide_registry::store::{KeyList, ScopedKeyId, Store, StoredKey};
use tokio::time::{Instant, timeout};

use super::api_key::KeyDigest;
use super::credential_error::CredentialError;

/// How often the store is asked whether keys have changed: a key that was revoked on another node ends
/// within [`MAX_AGE`].
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How old what this node knows may be. When the store is away for longer, nobody can tell whether a
/// key was revoked.
pub(super) const MAX_AGE: Duration = Duration::from_secs(5);
/// How often an unknown key makes the node ask the store.
const UNKNOWN_KEY_INTERVAL: Duration = Duration::from_millis(250);
/// How long the store may take to answer.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// How often it is stored when keys were last used.
pub(super) const MARK_INTERVAL: Duration = Duration::from_secs(60);

/// The keys of the store.
pub(super) struct StoredKeys {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    known: RwLock<Known>,
    /// Held by the one request that reads the store.
    reading: tokio::sync::Mutex<()>,
    used: Mutex<HashMap<ScopedKeyId, Timestamp>>,
}

#[derive(Default)]
struct Known {
    version: Option<u64>,
    /// By their ids, which a credential names without the tenant.
    keys: HashMap<String, Vec<StoredKey>>,
    read_at: Option<Instant>,
}

impl StoredKeys {
    pub(super) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            clock,
            known: RwLock::default(),
            reading: tokio::sync::Mutex::default(),
            used: Mutex::default(),
        }
    }

    /// The key of this id, if this is its text and it has not expired.
    pub(super) async fn find(&self, id: &str, text: &str) -> Result<StoredKey, CredentialError> {
        let max_age = if self.look(id).is_empty() { UNKNOWN_KEY_INTERVAL } else { MAX_AGE };
        self.read_if_older(max_age).await?;
        let keys = self.look(id);
        if keys.is_empty() {
            return Err(CredentialError::UnknownKey);
        }
        let is_it = |key: &StoredKey| {
            KeyDigest::parse(&key.sha256).is_some_and(|digest| digest.matches(text))
        };
        let key = keys.into_iter().find(is_it).ok_or(CredentialError::WrongSecret)?;
        let now = self.clock.now();
        if key.expires_at <= now {
            return Err(CredentialError::Expired);
        }
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(key.scoped_id(), now);
        Ok(key)
    }

    /// Whether a tenant has a key of this id, by what was known at most so long ago. One that has
    /// expired counts.
    pub(super) async fn has(
        &self,
        tenant: Option<&Tenant>,
        id: &str,
        max_age: Duration,
    ) -> Result<bool, CredentialError> {
        self.read_if_older(max_age).await?;
        Ok(self.look(id).iter().any(|key| Some(&key.tenant) == tenant))
    }

    fn look(&self, id: &str) -> Vec<StoredKey> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.keys.get(id).cloned().unwrap_or_default()
    }

    /// Reads the store, unless that was done a moment ago. Returns whether keys have changed.
    pub(super) async fn read_if_older(&self, max_age: Duration) -> Result<bool, CredentialError> {
        if self.is_younger(max_age) {
            return Ok(false);
        }
        let _reading = self.reading.lock().await;
        if self.is_younger(max_age) {
            return Ok(false);
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).version;
        let asked_at = Instant::now();
        let read = timeout(READ_TIMEOUT, self.store.keys(known)).await;
        let list = match read {
            Ok(Ok(list)) => list,
            Ok(Err(error)) => return Err(unavailable(&error.to_string())),
            Err(_) => return Err(unavailable("the store did not answer in time")),
        };
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.read_at = Some(asked_at);
        let Some(KeyList { version, keys }) = list else { return Ok(false) };
        known.version = Some(version);
        known.keys.clear();
        for key in keys {
            known.keys.entry(key.id.clone()).or_default().push(key);
        }
        Ok(true)
    }

    fn is_younger(&self, max_age: Duration) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.read_at.is_some_and(|at| at.elapsed() < max_age)
    }

    /// Stores when keys were last used, as far as this node knows and has not stored.
    pub(super) async fn mark_used(&self) {
        let used = std::mem::take(&mut *self.used.lock().unwrap_or_else(PoisonError::into_inner));
        if used.is_empty() {
            return;
        }
        let used: Vec<(ScopedKeyId, Timestamp)> = used.into_iter().collect();
        if let Err(error) = self.store.mark_keys_used(&used).await {
            tracing::warn!(%error, "last use of api keys not stored");
        }
    }
}

fn unavailable(reason: &str) -> CredentialError {
    tracing::warn!(reason, "api keys not read");
    CredentialError::Unavailable
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_registry::store::KeyChange;
    use abide_registry::store::memory::Memory;

    use super::*;
    use crate::clock::SystemClock;

    #[tokio::test]
    async fn what_another_node_has_revoked_is_known_at_once_where_it_is_asked_for() {
        let (store, clock) = (Arc::new(Memory::default()), Arc::new(SystemClock));
        let now = clock.now();
        let key = StoredKey {
            id: "a".to_owned(),
            sha256: "0".repeat(64),
            tenant: Tenant::default(),
            roles: Default::default(),
            queues: Default::default(),
            name: String::new(),
            owner: String::new(),
            created_at: now,
            expires_at: now,
        };
        store.change_key(KeyChange::Add(key.clone())).await.unwrap();
        let keys = StoredKeys::new(store.clone(), clock);
        let has = async |age: Duration| keys.has(Some(&key.tenant), "a", age).await.unwrap();
        assert!(has(MAX_AGE).await);
        store.change_key(KeyChange::Remove(key.scoped_id())).await.unwrap();
        assert!(has(MAX_AGE).await);
        assert!(!has(Duration::ZERO).await);
    }
}
