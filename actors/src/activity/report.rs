//! What an activity reports to its actor: its end, and its progress until then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use abide_conversation::{Action, Activity, CallId, ConversationId, Scoped};
use serde_json::Value;

use crate::journal::StoreError;
use crate::live::{LiveSink, Signal};

/// The end of an activity: the action that the actor decides on.
pub struct Report {
    pub activity: Activity,
    pub ended: Result<Box<Action>, ActivityError>,
}

/// Why an activity ended without an action. The actor dies of it, and its successor starts over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ActivityError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0} panicked")]
    Panicked(Activity),
}

/// The latest progress report of each running tool. Cheap to clone; clones share their content.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<Mutex<BTreeMap<CallId, Value>>>);

impl Progress {
    /// Replaces the progress of a call and publishes it.
    pub(crate) fn publish(
        &self,
        live: &dyn LiveSink,
        conversation: &Scoped<ConversationId>,
        call: &CallId,
        payload: Value,
    ) {
        self.with(|latest| latest.insert(call.clone(), payload.clone()));
        live.publish(conversation, Signal::Progress { call: call.clone(), payload });
    }

    /// Forgets the calls for which `is_running` is false.
    pub(crate) fn retain(&self, is_running: impl Fn(&CallId) -> bool) {
        self.with(|latest| latest.retain(|call, _| is_running(call)));
    }

    /// The latest progress by call.
    pub(crate) fn latest(&self) -> BTreeMap<CallId, Value> {
        self.with(|latest| latest.clone())
    }

    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<CallId, Value>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
