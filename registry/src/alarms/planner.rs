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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn at(millisecond: i64) -> Timestamp {
        Timestamp::from_millisecond(millisecond).unwrap()
    }

    /// Alarms of as many conversations, in the order of their times.
    fn alarms(due: &[i64]) -> Vec<(ConversationId, Timestamp)> {
        let alarm = |(n, due): (usize, &i64)| (ConversationId::new(format!("conv_{n}")), at(*due));
        due.iter().enumerate().map(alarm).collect()
    }

    /// The number of conversations that are woken at a time, and the wait until the next poll.
    fn plan(planner: &mut AlarmPlanner, now: i64, due: &[i64], running: usize) -> (usize, u128) {
        let poll = planner.next_poll(at(now));
        let (wake, wait) = planner.plan(poll, at(now), &alarms(due), running);
        (wake.len(), wait.as_millis())
    }

    #[test]
    fn what_is_due_is_woken_and_the_next_poll_is_at_the_next_alarm() {
        for (due, expected) in [
            ([].as_slice(), (0, 100)),
            (&[1_000], (1, 100)),
            (&[900, 1_000, 1_030, 1_070], (2, 30)),
            (&[1_001], (0, 1)),
            (&[1_400], (0, 100)),
            (&[900; 7], (7, 100)),
            (&[900; 8], (8, 10)),
        ] {
            assert_eq!(plan(&mut AlarmPlanner::default(), 1_000, due, 0), expected, "{due:?}");
        }
        let poll = AlarmPlanner::default().next_poll(at(1_000));
        assert_eq!(poll, Poll { until: at(1_100), limit: POLL_LIMIT });
    }

    #[test]
    fn a_poll_that_may_have_missed_alarms_is_followed_by_one_that_reads_more() {
        let mut planner = AlarmPlanner::default();
        plan(&mut planner, 1_000, &[900; 8], 0);
        assert_eq!(planner.next_poll(at(1_010)).limit, BUSY_POLL_LIMIT + 8);
    }

    #[test]
    fn the_number_of_concurrent_wakes_is_bounded() {
        for (running, woken) in [(0, 8), (249, 7), (255, 1), (256, 0), (300, 0)] {
            let (wake, _) = plan(&mut AlarmPlanner::default(), 1_000, &[900; 8], running);
            assert_eq!(wake, woken, "{running} are running");
        }
    }

    #[test]
    fn a_conversation_is_woken_once_at_a_time_and_not_again_soon_after_a_failure() {
        let mut planner = AlarmPlanner::default();
        assert_eq!(plan(&mut planner, 1_000, &[900], 0).0, 1);
        assert_eq!(plan(&mut planner, 9_000, &[900], 0).0, 0, "the wake is running");
        planner.finish(ConversationId::new("conv_0"), true, at(9_000));
        assert_eq!(plan(&mut planner, 9_000, &[900], 0).0, 1, "the alarm was set again");
        planner.finish(ConversationId::new("conv_0"), false, at(9_000));
        assert_eq!(plan(&mut planner, 9_999, &[900], 0).0, 0);
        assert_eq!(plan(&mut planner, 10_000, &[900], 0).0, 1);
    }
}
