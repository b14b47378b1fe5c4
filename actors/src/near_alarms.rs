//! Alarms that ring before the store would be asked for them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use abide_conversation::{ConversationId, Scoped, Timestamp};
use tokio::sync::Notify;

/// How often a node asks the store for the alarms ahead, and how far ahead it asks: what is set to
/// a later time is found in time by one of the nodes.
pub const ALARM_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How many announcements are kept. The alarm of one that is dropped is noticed at the next poll.
const CAPACITY: usize = 4_096;

/// The way from the conversations of a node, which set alarms, to the node's loop that wakes them.
/// Cheap to clone.
#[derive(Clone, Default)]
pub struct NearAlarms(Arc<Shared>);

#[derive(Default)]
struct Shared {
    announced: Mutex<Vec<(Timestamp, Scoped<ConversationId>)>>,
    arrival: Notify,
}

impl NearAlarms {
    /// Says that an alarm is set, for the poll may come after it.
    pub fn announce(&self, id: &Scoped<ConversationId>, due: Timestamp, now: Timestamp) {
        if now.checked_add(ALARM_POLL_INTERVAL).is_ok_and(|horizon| due > horizon) {
            return;
        }
        let mut announced = self.0.announced.lock().unwrap_or_else(PoisonError::into_inner);
        if announced.len() < CAPACITY {
            announced.push((due, id.clone()));
        }
        drop(announced);
        self.0.arrival.notify_one();
    }

    /// Takes what was announced since the last call.
    pub fn take(&self) -> Vec<(Timestamp, Scoped<ConversationId>)> {
        std::mem::take(&mut self.0.announced.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Completes when there is something to take.
    pub async fn arrival(&self) {
        self.0.arrival.notified().await;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn alarms_before_the_next_poll_are_announced_up_to_a_bound() {
        let at = |ms| Timestamp::from_millisecond(ms).unwrap();
        let (alarms, id) = (NearAlarms::default(), Scoped::<ConversationId>::parse("x").unwrap());
        alarms.announce(&id, at(1_001), at(0));
        assert_eq!(alarms.take(), []);
        for due in 0..=i64::try_from(CAPACITY).unwrap() {
            alarms.announce(&id, at(due.min(1_000)), at(0));
        }
        alarms.arrival().await;
        assert_eq!(alarms.take().len(), CAPACITY);
        assert_eq!(alarms.take(), []);
    }
}
