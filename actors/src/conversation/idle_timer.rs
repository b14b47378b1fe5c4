//! The timer that ends an actor with nothing to do.

use std::time::Duration;

use ractor::ActorRef;
use tokio_util::task::AbortOnDropHandle;

use super::ConversationMsg;

/// How long an actor with nothing to do keeps what it can read again: longer than programs take to
/// answer, and shorter than people.
const REST_AFTER: Duration = Duration::from_secs(1);

/// The timer, and the count of messages that tells whether it is out of date.
#[derive(Default)]
pub(super) struct IdleTimer {
    handled: u64,
    timer: Option<AbortOnDropHandle<()>>,
    /// Whether the actor was started while the node drains: it leaves all activities to the next
    /// process.
    pub(super) is_dormant: bool,
}

impl IdleTimer {
    /// Counts a message that keeps the actor in memory.
    pub(super) fn count_message(&mut self) {
        self.handled += 1;
    }

    pub(super) fn has_handled_any(&self) -> bool {
        self.handled > 0
    }

    /// Whether exactly that many messages were handled, and none since.
    pub(super) fn has_handled(&self, handled: u64) -> bool {
        self.handled == handled
    }

    pub(super) fn disarm(&mut self) {
        self.timer = None;
    }

    /// Starts the timer, unless it runs. One that ends the actor at once takes the place of another.
    pub(super) fn arm(&mut self, myself: &ActorRef<ConversationMsg>, after: Duration) {
        if self.timer.is_some() && !after.is_zero() {
            return;
        }
        let myself = myself.clone();
        let handled = self.handled;
        self.timer = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            // An actor that has ended needs no timer: that it is gone is no error.
            if let Some(rest) = after.checked_sub(REST_AFTER) {
                tokio::time::sleep(REST_AFTER).await;
                let _ = myself.cast(ConversationMsg::Rest(handled));
                tokio::time::sleep(rest).await;
            } else {
                tokio::time::sleep(after).await;
            }
            let _ = myself.cast(ConversationMsg::IdleTimeout(handled));
        })));
    }
}
