//! Since when nothing has happened in a conversation.

use super::State;
use crate::{Timestamp, wanted};

impl State {
    /// When the conversation was active last, if nothing runs, waits or is to come in it.
    pub fn idle_since(&self) -> Option<Timestamp> {
        let is_idle = self.forking.is_none()
            && self.turn.is_none()
            && self.queue.is_empty()
            && self.dispatches.is_empty()
            && self.scheduled.count() == 0
            && wanted(self).is_empty();
        self.active_at.or(self.created_at).filter(|_| is_idle)
    }

    /// Whether the conversation's own end has come.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }
}
