//! Alarms that ring before the store would be asked for them.

use std::time::Duration;

use abide_conversation::{ConversationId, Scoped, Timestamp};

use crate::announcements::Announcements;

/// How often a node asks the store for the alarms ahead, and how far ahead it asks: what is set to
/// a later time is found in time by one of the nodes.
pub const ALARM_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The way from the conversations of a node, which set alarms, to the node's loop that wakes them.
pub type NearAlarms = Announcements<(Timestamp, Scoped<ConversationId>)>;

impl NearAlarms {
    /// Says that an alarm is set, for the poll may come after it.
    pub fn announce_alarm(&self, id: &Scoped<ConversationId>, due: Timestamp, now: Timestamp) {
        let is_far = now.checked_add(ALARM_POLL_INTERVAL).is_ok_and(|horizon| due > horizon);
        if !is_far {
            self.announce(vec![(due, id.clone())]);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn alarms_before_the_next_poll_are_announced() {
        let at = |ms| Timestamp::from_millisecond(ms).unwrap();
        let (alarms, id) = (NearAlarms::default(), Scoped::<ConversationId>::parse("x").unwrap());
        alarms.announce_alarm(&id, at(1_001), at(0));
        assert_eq!(alarms.take(), []);
        alarms.announce_alarm(&id, at(1_000), at(0));
        assert_eq!(alarms.take(), [(at(1_000), id)]);
    }
}
