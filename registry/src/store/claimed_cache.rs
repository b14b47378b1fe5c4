//! What this process remembers of the conversations that it claimed last.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use abide_actors::identity::Epoch;
use abide_conversation::{ConversationId, Scoped};
use lru::LruCache;

/// More than the conversations that a node has at work.
const MAX_REMEMBERED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(16_383);

/// A value of some hundred bytes for each conversation, with the epoch of the claim under which it was
/// seen. A conversation that is deleted and created again has a higher epoch.
pub(super) struct ClaimedCache<T>(Mutex<LruCache<Scoped<ConversationId>, (Epoch, T)>>);

impl<T> Default for ClaimedCache<T> {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_REMEMBERED)))
    }
}

impl<T> std::fmt::Debug for ClaimedCache<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ClaimedCache")
    }
}

impl<T: Clone> ClaimedCache<T> {
    /// What was seen under this claim.
    pub(super) fn under_claim(&self, id: &Scoped<ConversationId>, epoch: Epoch) -> Option<T> {
        let mut remembered = self.lock();
        remembered.get(id).filter(|(seen, _)| *seen == epoch).map(|(_, value)| value.clone())
    }

    /// What was seen last, under whichever claim.
    pub(super) fn recent(&self, id: &Scoped<ConversationId>) -> Option<T> {
        self.lock().get(id).map(|(_, value)| value.clone())
    }
}

impl<T> ClaimedCache<T> {
    /// [`Self::under_claim`], which is forgotten then.
    pub(super) fn take(&self, id: &Scoped<ConversationId>, epoch: Epoch) -> Option<T> {
        let taken = self.lock().pop(id);
        taken.filter(|(seen, _)| *seen == epoch).map(|(_, value)| value)
    }

    pub(super) fn learn(&self, id: &Scoped<ConversationId>, epoch: Epoch, value: T) {
        self.lock().put(id.clone(), (epoch, value));
    }

    pub(super) fn forget(&self, id: &Scoped<ConversationId>) {
        self.lock().pop(id);
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Scoped<ConversationId>, (Epoch, T)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
