//! The data keys of the conversations that this process used last.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use abide_actors::identity::Epoch;
use abide_conversation::{ConversationId, Scoped};
use lru::LruCache;

use super::OwnKey;

/// More than the conversations that a node has at work; each takes half a kilobyte.
const MAX_KNOWN: NonZeroUsize = NonZeroUsize::MIN.saturating_add(16_383);

/// Each key with the epoch of the claim under which it was seen. A conversation that is deleted and
/// created again has another key, and then a higher epoch.
pub(super) struct KnownKeys(Mutex<LruCache<Scoped<ConversationId>, (Epoch, OwnKey)>>);

impl Default for KnownKeys {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_KNOWN)))
    }
}

impl std::fmt::Debug for KnownKeys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("KnownKeys")
    }
}

impl KnownKeys {
    pub(super) fn under_claim(&self, id: &Scoped<ConversationId>, epoch: Epoch) -> Option<OwnKey> {
        let mut known = self.lock();
        known.get(id).filter(|(seen, _)| *seen == epoch).map(|(_, own)| own.clone())
    }

    pub(super) fn recent(&self, id: &Scoped<ConversationId>) -> Option<OwnKey> {
        self.lock().get(id).map(|(_, own)| own.clone())
    }

    pub(super) fn learn(&self, own: &OwnKey, epoch: Epoch) {
        self.lock().put(own.id.clone(), (epoch, own.clone()));
    }

    pub(super) fn forget(&self, id: &Scoped<ConversationId>) {
        self.lock().pop(id);
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Scoped<ConversationId>, (Epoch, OwnKey)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
