//! When a notice is tried again, and when nobody tries it any more.

use std::time::Duration;

use abide_conversation::Timestamp;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
/// The waits after the attempts that failed.
const WAITS: [u64; 8] = [5, 30, 2 * MINUTE, 15 * MINUTE, HOUR, 4 * HOUR, 12 * HOUR, 24 * HOUR];

/// How long after it is owed a notice is tried for the last time.
pub fn last_attempt_after() -> Duration {
    Duration::from_secs(WAITS.iter().sum())
}

/// When a notice that is owed since `since` is tried again after an attempt that failed now; `None`
/// if that was the last one.
///
/// The times count from `since`: a notice that has waited behind another is tried as often as is left
/// of its own time, and at least once.
pub fn next_attempt(since: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let age = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    let mut at = Duration::ZERO;
    for wait in WAITS {
        at += Duration::from_secs(wait);
        // An attempt takes a while itself: the next one comes no sooner than half of its wait.
        if at > age + Duration::from_secs(wait) / 2 {
            return Some(after(since, at));
        }
    }
    None
}

/// The time that is later by this.
pub(super) fn after(at: Timestamp, delay: Duration) -> Timestamp {
    let delay = jiff::SignedDuration::try_from(delay).unwrap_or(jiff::SignedDuration::MAX);
    at.checked_add(delay).unwrap_or(Timestamp::MAX)
}

/// The time that is earlier by this.
pub(super) fn before(at: Timestamp, delay: Duration) -> Timestamp {
    let delay = jiff::SignedDuration::try_from(delay).unwrap_or(jiff::SignedDuration::MAX);
    at.checked_sub(delay).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_second(i64::try_from(second).unwrap()).unwrap()
    }

    /// The attempts at a notice that is owed since 0, of which each fails at once.
    fn attempts(first: u64) -> Vec<Timestamp> {
        let mut attempts = vec![at(first)];
        while let Some(next) = next_attempt(at(0), *attempts.last().unwrap()) {
            attempts.push(next);
        }
        attempts
    }

    #[test]
    fn a_notice_is_tried_nine_times_over_41_hours() {
        let times = [0, 5, 35, 155, 1_055, 4_655, 19_055, 62_255, 148_655];
        assert_eq!(attempts(0), times.map(at));
        assert_eq!(at(0).checked_add(last_attempt_after()).unwrap(), at(148_655));
    }

    #[test]
    fn a_notice_that_waited_behind_another_is_tried_for_what_is_left_of_its_time() {
        assert_eq!(attempts(100_000), [100_000, 148_655].map(at));
        assert_eq!(attempts(200_000), [at(200_000)]);
    }
}
