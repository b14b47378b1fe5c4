//! Plans which conversations to wake now and when to ask the store again, from the alarms read and a
//! given time.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use abide_actors::near_alarms::ALARM_POLL_INTERVAL;
use abide_conversation::{ConversationId, Scoped, Timestamp};

use crate::partition::{Partition, PartitionSet};

/// How many alarms of a partition a poll reads.
const POLL_LIMIT: usize = 64;
/// How many conversations are woken at once.
const MAX_CONCURRENT_WAKES: usize = 256;
/// How long a conversation that could not be woken is left alone.
const WAKE_RETRY_DELAY: Duration = Duration::from_secs(1);
/// How far a clock may be set back, as clocks are corrected all the time, without another poll.
const CLOCK_STEP_TOLERANCE: Duration = Duration::from_millis(100);
/// The delay before going on while more alarms are due than may be woken at once or were read.
const BUSY_INTERVAL: Duration = Duration::from_millis(10);

/// Which alarms to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// Alarms that are due by this time.
    pub until: Timestamp,
    /// At most this many of each partition.
    pub limit: usize,
}

/// Knows the alarms ahead, the conversations that are being woken, and those to be left alone for a
/// while.
///
/// An alarm that was moved since it was read still rings here: waking a conversation in vain changes
/// nothing.
#[derive(Debug)]
pub struct AlarmPlanner<N = ConversationId> {
    /// At most [`POLL_LIMIT`] of each partition, and what conversations of this node announced.
    expected: BTreeSet<(Timestamp, Scoped<N>)>,
    /// Until when each conversation is not woken; for ever while a wake is running.
    skip_until: HashMap<Scoped<N>, Timestamp>,
    /// Those that the last poll read.
    partitions: Option<PartitionSet>,
    next_poll_at: Timestamp,
}

// Derived, this would demand the same of the id's type.
impl<N> Default for AlarmPlanner<N> {
    fn default() -> Self {
        let (expected, skip_until) = (BTreeSet::new(), HashMap::new());
        Self { expected, skip_until, partitions: None, next_poll_at: Timestamp::default() }
    }
}

/// Schedules have ticks as conversations have alarms, and are planned alike.
impl<N> AlarmPlanner<N> {
    /// What to read now of these partitions, if anything.
    pub fn next_poll(&mut self, now: Timestamp, partitions: &PartitionSet) -> Option<Poll> {
        self.skip_until.retain(|_, until| *until > now);
        let has_backlog = self.expected.first().is_some_and(|(due, _)| *due <= now);
        let horizon = after(now, ALARM_POLL_INTERVAL);
        // Far beyond the horizon only if the clock was set back.
        let is_early =
            now < self.next_poll_at && self.next_poll_at <= after(horizon, CLOCK_STEP_TOLERANCE);
        if self.partitions.as_ref() == Some(partitions) && (has_backlog || is_early) {
            return None;
        }
        // Behind the alarms that are skipped there may be others.
        Some(Poll { until: horizon, limit: POLL_LIMIT + self.skip_until.len() })
    }

    /// Takes in what the poll read, earliest first.
    pub fn learn(
        &mut self,
        poll: Poll,
        partitions: PartitionSet,
        alarms: Vec<(Scoped<N>, Timestamp)>,
    ) {
        let mut counts: HashMap<Partition, usize> = HashMap::new();
        self.next_poll_at = poll.until;
        for (id, due) in alarms {
            let count = counts.entry(Partition::of(id.as_str())).or_default();
            *count += 1;
            // The partition may have more, all after this one.
            if *count == poll.limit {
                self.next_poll_at = self.next_poll_at.min(due);
            }
            self.expected.insert((due, id));
        }
        self.partitions = Some(partitions);
    }

    /// Takes in what conversations of this node announced.
    pub fn expect(&mut self, announced: Vec<(Timestamp, Scoped<N>)>) {
        self.expected.extend(announced);
    }

    /// Puts the next poll off after one that failed.
    pub fn retry_poll(&mut self, partitions: PartitionSet, at: Timestamp) {
        self.partitions = Some(partitions);
        self.next_poll_at = at;
    }

    /// The conversations to wake with the times of their alarms, earliest first, and how long to
    /// wait before the next plan. Each counts as running until [`finish`](Self::finish); `running`
    /// wakes are running already.
    pub fn plan(
        &mut self,
        now: Timestamp,
        running: usize,
    ) -> (Vec<(Scoped<N>, Timestamp)>, Duration) {
        let mut wake = Vec::new();
        while running + wake.len() < MAX_CONCURRENT_WAKES
            && self.expected.first().is_some_and(|(due, _)| *due <= now)
        {
            let Some((due, id)) = self.expected.pop_first() else { break };
            if !self.skip_until.contains_key(&id) {
                self.skip_until.insert(id.clone(), Timestamp::MAX);
                wake.push((id, due));
            }
        }
        let next_alarm = self.expected.first().map(|(due, _)| *due);
        let next = next_alarm.map_or(self.next_poll_at, |due| due.min(self.next_poll_at));
        let wait = Duration::try_from(next.duration_since(now)).unwrap_or_default();
        let wait = if wait.is_zero() { BUSY_INTERVAL } else { wait.min(ALARM_POLL_INTERVAL) };
        (wake, wait)
    }

    /// Ends a running wake; a conversation that was not woken is left alone for a while.
    pub fn finish(&mut self, id: Scoped<N>, woken: bool, now: Timestamp) {
        if woken {
            self.skip_until.remove(&id);
        } else {
            self.skip_until.insert(id, after(now, WAKE_RETRY_DELAY));
        }
    }
}

/// The time so much later.
pub fn after(now: Timestamp, delay: Duration) -> Timestamp {
    let delay = jiff::SignedDuration::try_from(delay).unwrap_or(jiff::SignedDuration::MAX);
    now.checked_add(delay).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn at(millisecond: i64) -> Timestamp {
        Timestamp::from_millisecond(millisecond).unwrap()
    }

    /// Alarms of as many conversations of one partition, in the order of their times.
    fn alarms(due: &[i64]) -> Vec<(Scoped<ConversationId>, Timestamp)> {
        let ids = (0..).map(|n| Scoped::parse(&format!("conv_{n}")).unwrap());
        let same = ids.filter(|id| Partition::from(id) == Partition::of("conv_0"));
        same.zip(due).map(|(id, due)| (id, at(*due))).collect()
    }

    /// A planner that has read these alarms at this time.
    fn planner(now: i64, due: &[i64]) -> AlarmPlanner {
        let mut planner = AlarmPlanner::default();
        poll(&mut planner, now, due);
        planner
    }

    fn next_poll(planner: &mut AlarmPlanner, now: i64) -> Option<Poll> {
        planner.next_poll(at(now), &PartitionSet::all())
    }

    fn poll(planner: &mut AlarmPlanner, now: i64, due: &[i64]) {
        let poll = next_poll(planner, now).unwrap();
        planner.learn(poll, PartitionSet::all(), alarms(due));
    }

    /// The number of conversations that are woken at a time, and the wait until the next plan.
    fn plan(planner: &mut AlarmPlanner, now: i64, running: usize) -> (usize, u128) {
        let (wake, wait) = planner.plan(at(now), running);
        (wake.len(), wait.as_millis())
    }

    #[test]
    fn what_is_due_is_woken_and_the_next_plan_is_at_the_next_alarm_or_poll() {
        for (due, expected) in [
            ([].as_slice(), (0, 1_000)),
            (&[1_000], (1, 1_000)),
            (&[900, 1_000, 1_030, 1_070], (2, 30)),
            (&[1_001], (0, 1)),
            (&[2_000], (0, 1_000)),
            (&[900; 64], (64, 10)),
        ] {
            assert_eq!(plan(&mut planner(1_000, due), 1_000, 0), expected, "{due:?}");
        }
    }

    #[test]
    fn the_store_is_asked_once_an_interval_and_at_once_for_other_partitions() {
        let mut planner = planner(1_000, &[1_500]);
        assert_eq!(next_poll(&mut planner, 1_400), None);
        assert_eq!(next_poll(&mut planner, 2_000), None, "an alarm that was read comes first");
        assert_eq!(plan(&mut planner, 2_000, 0), (1, 10));
        let next = Poll { until: at(3_000), limit: POLL_LIMIT + 1 };
        assert_eq!(next_poll(&mut planner, 2_000), Some(next));
        assert!(planner.next_poll(at(1_400), &PartitionSet::from_iter([])).is_some());
        assert_eq!(next_poll(&mut planner, 950), None, "the clock was corrected");
        assert!(next_poll(&mut planner, 800).is_some(), "the clock was set back");
    }

    #[test]
    fn a_partition_with_more_alarms_than_were_read_is_read_again_when_those_are_due() {
        let mut planner = planner(1_000, &[1_200; 64]);
        assert_eq!(plan(&mut planner, 1_000, 0), (0, 200));
        assert_eq!(plan(&mut planner, 1_200, 0), (64, 10));
        assert_eq!(next_poll(&mut planner, 1_210).unwrap().limit, 2 * POLL_LIMIT);
    }

    #[test]
    fn an_alarm_that_is_announced_needs_no_poll() {
        let mut planner = planner(1_000, &[]);
        planner.expect(vec![(at(1_007), Scoped::parse("near").unwrap())]);
        assert_eq!(plan(&mut planner, 1_000, 0), (0, 7));
        assert_eq!(plan(&mut planner, 1_007, 0), (1, 993));
    }

    #[test]
    fn the_number_of_concurrent_wakes_is_bounded() {
        for (running, woken) in [(0, 8), (249, 7), (255, 1), (256, 0), (300, 0)] {
            let (wake, _) = plan(&mut planner(1_000, &[900; 8]), 1_000, running);
            assert_eq!(wake, woken, "{running} are running");
        }
    }

    #[test]
    fn a_conversation_is_woken_once_at_a_time_and_not_again_soon_after_a_failure() {
        let mut planner = planner(1_000, &[900]);
        let id = alarms(&[900]).remove(0).0;
        assert_eq!(plan(&mut planner, 1_000, 0).0, 1);
        poll(&mut planner, 9_000, &[900]);
        assert_eq!(plan(&mut planner, 9_000, 0).0, 0, "the wake is running");
        planner.finish(id.clone(), true, at(9_000));
        poll(&mut planner, 10_000, &[900]);
        assert_eq!(plan(&mut planner, 10_000, 0).0, 1, "the alarm was set again");
        planner.finish(id, false, at(10_100));
        poll(&mut planner, 11_000, &[900]);
        assert_eq!(plan(&mut planner, 11_000, 0).0, 0);
        poll(&mut planner, 12_000, &[900]);
        assert_eq!(plan(&mut planner, 12_000, 0).0, 1);
    }
}
