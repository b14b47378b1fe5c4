//! The messages that a conversation delivers later.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::event::MessageScheduled;
use crate::ids::ScheduledId;

/// How many delivered messages are remembered, so that withdrawing one is refused as too late.
const MAX_DELIVERED: usize = 100;

/// The scheduled messages of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScheduledMessages {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    waiting: BTreeMap<ScheduledId, Arc<MessageScheduled>>,
    /// The latest that were delivered, oldest first.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    delivered: VecDeque<ScheduledId>,
}

impl ScheduledMessages {
    /// Whether nothing was ever scheduled.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The messages that wait for their time, the earliest first.
    pub fn waiting(&self) -> Vec<&Arc<MessageScheduled>> {
        let mut waiting: Vec<_> = self.waiting.values().collect();
        waiting.sort_by_key(|scheduled| scheduled.deliver_at);
        waiting
    }

    /// The number of messages that wait for their time.
    pub fn count(&self) -> usize {
        self.waiting.len()
    }

    /// When the next message is to be delivered.
    pub fn next_at(&self) -> Option<Timestamp> {
        self.waiting.values().map(|scheduled| scheduled.deliver_at).min()
    }

    /// Whether this message waits for its time.
    pub fn has(&self, id: &ScheduledId) -> bool {
        self.waiting.contains_key(id)
    }

    /// Whether this message was among the last that were delivered.
    pub fn was_delivered(&self, id: &ScheduledId) -> bool {
        self.delivered.contains(id)
    }

    /// The messages that are due, the earliest first.
    pub fn due(&self, at: Timestamp) -> Vec<Arc<MessageScheduled>> {
        let is_due = |scheduled: &&&Arc<MessageScheduled>| scheduled.deliver_at <= at;
        self.waiting().iter().filter(is_due).map(|scheduled| Arc::clone(scheduled)).collect()
    }

    /// A message that was delivered is not scheduled again.
    pub(crate) fn add(&mut self, scheduled: &MessageScheduled) {
        if self.was_delivered(&scheduled.scheduled_id) {
            return;
        }
        self.waiting.insert(scheduled.scheduled_id.clone(), Arc::new(scheduled.clone()));
    }

    pub(crate) fn end(&mut self, id: &ScheduledId) {
        self.waiting.remove(id);
    }

    pub(crate) fn deliver(&mut self, id: &ScheduledId) {
        self.waiting.remove(id);
        if self.delivered.len() >= MAX_DELIVERED {
            self.delivered.pop_front();
        }
        self.delivered.push_back(id.clone());
    }
}
