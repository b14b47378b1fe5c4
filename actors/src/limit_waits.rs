//! The calls of a conversation that wait for a place, because the limits of their tool are reached.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use abide_conversation::{CallId, Timestamp};
use serde::{Deserialize, Serialize};

/// A call that waits for a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitWait {
    /// The limits that are reached, for people.
    pub limits: String,
    pub since: Timestamp,
}

/// The waits of one actor's calls. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitWaits(Arc<Mutex<BTreeMap<CallId, LimitWait>>>);

impl LimitWaits {
    /// Lists a wait until what this returns is dropped.
    pub(crate) fn begin(&self, call: &CallId, wait: LimitWait) -> ListedWait<'_> {
        self.lock().insert(call.clone(), wait);
        ListedWait { waits: self, call: call.clone() }
    }

    /// The current waits.
    pub(crate) fn all(&self) -> BTreeMap<CallId, LimitWait> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<CallId, LimitWait>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes its wait from the list when dropped.
pub(crate) struct ListedWait<'a> {
    waits: &'a LimitWaits,
    call: CallId,
}

impl Drop for ListedWait<'_> {
    fn drop(&mut self) {
        self.waits.lock().remove(&self.call);
    }
}
