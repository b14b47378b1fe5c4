//! Plans which conversations to wake now and when to poll again, from the alarms read and a given
//! time.

use std::collections::HashMap;
use std::time::Duration;

use abide_conversation::{ConversationId, Timestamp};

/// The poll interval: how late an alarm may be noticed that was set after the last poll.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How many alarms of a partition a poll reads. Most polls find nothing due, and a node that only
/// waits should cost nothing.
const POLL_LIMIT: usize = 8;
/// How many alarms of a partition a poll reads after one that may have missed due alarms.
const BUSY_POLL_LIMIT: usize = 64;
/// How many conversations are woken at once.
const MAX_CONCURRENT_WAKES: usize = 256;
/// How long a conversation that could not be woken is left alone.
const WAKE_RETRY_DELAY: jiff::SignedDuration = jiff::SignedDuration::from_secs(1);
/// The poll interval while more alarms may be due than were read.
const BUSY_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Which alarms to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// Alarms that are due by this time.
    pub until: Timestamp,
    /// At most this many of each partition.
    pub limit: usize,
}

/// Knows the conversations that are being woken, and those to be left alone for a while.
#[derive(Debug, Default)]
pub struct AlarmPlanner {
    /// Until when each conversation is not woken; for ever while a wake is running.
    skip_until: HashMap<ConversationId, Timestamp>,
    /// Whether more alarms may have been due at the last poll than were read.
    is_busy: bool,
}

impl AlarmPlanner {
    /// What to read now.
    pub fn next_poll(&mut self, now: Timestamp) -> Poll {
        self.skip_until.retain(|_, until| *until > now);
        // Behind the alarms that are skipped there may be others.
        let limit = if self.is_busy { BUSY_POLL_LIMIT + self.skip_until.len() } else { POLL_LIMIT };
        Poll { until: now.checked_add(POLL_INTERVAL).unwrap_or(Timestamp::MAX), limit }
    }

    /// The conversations to wake with the times of their alarms, earliest first, and how long to
    /// wait before the next poll. Each counts as running until [`finish`](Self::finish); `running`
    /// wakes are running already.
    pub fn plan(
        &mut self,
        poll: Poll,
        now: Timestamp,
        alarms: &[(ConversationId, Timestamp)],
        running: usize,
    ) -> (Vec<(ConversationId, Timestamp)>, Duration) {
        let due = alarms.iter().filter(|(_, due)| *due <= now);
        self.is_busy = due.clone().count() >= poll.limit;
        let mut wake = Vec::new();
        for (id, due) in due {
            if running + wake.len() >= MAX_CONCURRENT_WAKES {
                break;
            }
            if !self.skip_until.contains_key(id) {
                self.skip_until.insert(id.clone(), Timestamp::MAX);
                wake.push((id.clone(), *due));
            }
        }
        let next = alarms.iter().map(|(_, due)| *due).find(|due| *due > now);
        (wake, if self.is_busy { BUSY_POLL_INTERVAL } else { time_until(next, now) })
    }

    /// Ends a running wake; a conversation that was not woken is left alone for a while.
    pub fn finish(&mut self, id: ConversationId, woken: bool, now: Timestamp) {
        if woken {
            self.skip_until.remove(&id);
        } else {
            let until = now.checked_add(WAKE_RETRY_DELAY).unwrap_or(Timestamp::MAX);
            self.skip_until.insert(id, until);
        }
    }
}

fn time_until(next: Option<Timestamp>, now: Timestamp) -> Duration {
    let next = next.and_then(|next| Duration::try_from(next.duration_since(now)).ok());
    next.map_or(POLL_INTERVAL, |next| next.min(POLL_INTERVAL))
}
