//! The recent deaths of a conversation's actors: when the next one starts, and when to give up.

use std::collections::VecDeque;
use std::time::Duration;

use abide_actors::activity::ActivityError;
use abide_actors::conversation::ExitReason;
use abide_actors::journal::{Holder, StoreError};
use abide_conversation::Timestamp;
use serde::{Deserialize, Serialize};

/// This many crashes within [`CRASH_WINDOW`] quarantine the conversation: a bug that returns at
/// once will return again, and each time costs all others.
const QUARANTINE_CRASHES: usize = 5;
pub(super) const CRASH_WINDOW: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);
/// The delay before a restart after the second crash, which doubles with each further one.
const FIRST_RESTART_DELAY: Duration = Duration::from_millis(50);
const MAX_RESTART_DELAY: Duration = Duration::from_secs(5);

/// Why a conversation crashed too often; nothing is delivered to it until an operator intervenes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    pub reason: String,
    pub since: Timestamp,
}

/// The deaths of one conversation's actors on one node.
#[derive(Debug, Default)]
pub struct CrashHistory {
    pub(super) last_death: Option<Timestamp>,
    pub(super) crashes: VecDeque<Timestamp>,
    /// Consecutive restarts that the store refused.
    pub(super) refusals: u32,
    pub(super) restarts: u32,
    pub quarantined: Option<Quarantined>,
    /// Set while a delay before the next restart runs.
    pub delay: Option<RestartDelay>,
    /// The dead holder whose claim the last actor was to replace. The outcome of its claim may be
    /// unknown, and the claim may take effect late: the next actor must replace the same holder.
    replacing: Option<Holder>,
}

/// Why a restart is delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartDelay {
    AfterCrash,
    AfterRefusal,
}

impl CrashHistory {
    /// Records the death of an actor that was to replace the claim of this dead holder; without an
    /// `exit` it was a panic. Returns the delay before the next actor starts, zero for at once;
    /// `None` if it starts only when it is needed.
    pub fn record_death(
        &mut self,
        now: Timestamp,
        exit: Option<&ExitReason>,
        reason: &str,
        replacing: Option<Holder>,
    ) -> Option<Duration> {
        self.last_death = Some(now);
        self.replacing = replacing;
        self.restarts += 1;
        match exit {
            // A claim of this very node that took effect late may have fenced the actor, and then
            // no other node runs the conversation. The next actor finds out.
            Some(
                ExitReason::Killed
                | ExitReason::Store(StoreError::Fenced)
                | ExitReason::Activity(ActivityError::Store(StoreError::Fenced)),
            ) => Some(Duration::ZERO),
            Some(ExitReason::HeldElsewhere(_)) => None,
            // Every node that claims the conversation comes to the same conclusion.
            Some(
                ExitReason::KillsItsProcess(_)
                | ExitReason::Store(StoreError::Unreadable(_))
                | ExitReason::Activity(ActivityError::Store(StoreError::Unreadable(_))),
            ) => {
                self.quarantined = Some(Quarantined { reason: reason.to_owned(), since: now });
                None
            }
            Some(
                ExitReason::Store(StoreError::Unavailable(_))
                | ExitReason::Activity(ActivityError::Store(StoreError::Unavailable(_))),
            ) => {
                self.refusals += 1;
                self.delay = Some(RestartDelay::AfterRefusal);
                Some(restart_delay(self.refusals))
            }
            Some(
                ExitReason::Store(StoreError::Conflict)
                | ExitReason::Activity(
                    ActivityError::Store(StoreError::Conflict) | ActivityError::Panicked(_),
                ),
            )
            | None => {
                let delay = self.record_crash(now, reason);
                self.delay =
                    delay.filter(|delay| !delay.is_zero()).map(|_| RestartDelay::AfterCrash);
                delay
            }
        }
    }

    /// Records that an actor has loaded: the store is available. Returns whether it was not before.
    pub fn record_start(&mut self) -> bool {
        std::mem::take(&mut self.refusals) > 0
    }

    /// Records that the store answers again. Returns whether a restart is delayed because the store
    /// refused the last one; the delays after further refusals begin anew.
    pub fn record_store_return(&mut self) -> bool {
        self.refusals = 0;
        self.delay == Some(RestartDelay::AfterRefusal)
    }

    /// Ends the delay. Returns the dead holder whose claim the next actor is to replace.
    pub fn end_delay(&mut self) -> Option<Holder> {
        self.delay = None;
        self.replacing.take()
    }

    /// Counts a crash. Returns the delay before the next restart; `None` once it is quarantined.
    fn record_crash(&mut self, now: Timestamp, reason: &str) -> Option<Duration> {
        self.crashes.push_back(now);
        self.crashes.retain(|crash| now.duration_since(*crash) < CRASH_WINDOW);
        if self.crashes.len() >= QUARANTINE_CRASHES {
            self.quarantined = Some(Quarantined { reason: reason.to_owned(), since: now });
            return None;
        }
        Some(restart_delay(u32::try_from(self.crashes.len()).unwrap_or(u32::MAX) - 1))
    }
}

/// No delay the first time; then it doubles.
fn restart_delay(failures: u32) -> Duration {
    let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
    FIRST_RESTART_DELAY.saturating_mul(2_u32.saturating_pow(doublings)).min(MAX_RESTART_DELAY)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_actors::identity::{Incarnation, NodeName};

    use super::*;

    fn holder(node: &str) -> Holder {
        Holder { node: NodeName::new(node), incarnation: Incarnation::new("1") }
    }

    /// Found by the simulation: the claim of a takeover took effect when the next actor had already
    /// met the dead holder and given up. The node held the conversation from then on, and nobody
    /// ran it.
    #[test]
    fn the_next_actor_replaces_the_same_dead_holder() {
        let mut history = CrashHistory::default();
        let now = Timestamp::UNIX_EPOCH;
        let away = ExitReason::Store(StoreError::Unavailable("away".to_owned()));
        let delay = history.record_death(now, Some(&away), "away", Some(holder("dead")));
        assert!(delay.is_some_and(|delay| !delay.is_zero()));
        assert_eq!(history.delay, Some(RestartDelay::AfterRefusal));
        assert_eq!(history.end_delay(), Some(holder("dead")));
        assert_eq!((history.delay, history.end_delay()), (None, None));
    }

    #[test]
    fn a_conversation_that_ended_its_processes_is_quarantined_at_once() {
        let mut history = CrashHistory::default();
        let exit = ExitReason::KillsItsProcess(5);
        let delay = history.record_death(Timestamp::UNIX_EPOCH, Some(&exit), "five", None);
        assert_eq!((delay, history.delay), (None, None));
        assert_eq!(history.quarantined.map(|it| it.reason).as_deref(), Some("five"));
    }

    #[test]
    fn a_store_that_returns_ends_the_delays_of_its_refusals_and_no_others() {
        let mut history = CrashHistory::default();
        let now = Timestamp::UNIX_EPOCH;
        let away = ExitReason::Store(StoreError::Unavailable("away".to_owned()));
        let first = history.record_death(now, Some(&away), "away", None);
        for _ in 0..5 {
            assert!(history.record_death(now, Some(&away), "away", None) > first);
        }
        assert!(history.record_store_return());
        history.end_delay();
        assert_eq!(history.record_death(now, Some(&away), "away", None), first);
        let mut crashed = CrashHistory::default();
        crashed.record_death(now, None, "a bug", None);
        crashed.record_death(now, None, "a bug", None);
        assert_eq!(crashed.delay, Some(RestartDelay::AfterCrash));
        assert!(!crashed.record_store_return());
    }

    /// Found by the simulation: the claim of an actor that had given up took effect after its
    /// successor had loaded, and fenced it under the node's own name.
    #[test]
    fn a_fenced_actor_has_a_successor_and_one_that_meets_another_holder_has_none() {
        let mut history = CrashHistory::default();
        let now = Timestamp::UNIX_EPOCH;
        let fenced = ExitReason::Store(StoreError::Fenced);
        assert_eq!(history.record_death(now, Some(&fenced), "fenced", None), Some(Duration::ZERO));
        let elsewhere = ExitReason::HeldElsewhere(holder("other"));
        assert_eq!(history.record_death(now, Some(&elsewhere), "held", None), None);
    }

    #[test]
    fn the_fifth_crash_within_a_minute_quarantines_and_the_delays_before_it_double() {
        for (crashed_at, delays_ms) in [
            ([0, 10, 20, 30, 40], [Some(0), Some(50), Some(100), Some(200), None]),
            ([0, 15, 30, 45, 60], [Some(0), Some(50), Some(100), Some(200), Some(200)]),
        ] {
            let mut history = CrashHistory::default();
            let delays = crashed_at.map(|second| {
                let now = Timestamp::from_second(second).unwrap();
                let delay = history.record_death(now, None, "a bug", None);
                assert_eq!(history.delay.is_some(), delay.is_some_and(|delay| !delay.is_zero()));
                history.end_delay();
                delay.map(|delay| delay.as_millis())
            });
            assert_eq!(delays, delays_ms, "{crashed_at:?}");
            assert_eq!(history.restarts, 5);
            assert_eq!(history.quarantined.is_some(), delays[4].is_none());
        }
    }

    #[test]
    fn a_start_says_whether_the_store_had_refused() {
        let mut history = CrashHistory::default();
        assert!(!history.record_start());
        let away = ExitReason::Store(StoreError::Unavailable("away".to_owned()));
        history.record_death(Timestamp::UNIX_EPOCH, Some(&away), "away", None);
        assert!(history.record_start());
        assert!(!history.record_start(), "it is said once");
    }
}
