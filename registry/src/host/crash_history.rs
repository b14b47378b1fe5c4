//! What is remembered of a conversation whose actors die, and when it is given up.

use std::collections::VecDeque;
use std::time::Duration;

use abide_actors::activity::ActivityError;
use abide_actors::conversation::ExitReason;
use abide_actors::journal::{Holder, StoreError};
use abide_conversation::Timestamp;
use serde::{Deserialize, Serialize};

/// So many crashes within `WINDOW` and the conversation is quarantined: a bug that comes back at
/// once will come back again, and each time costs everybody else.
const CRASHES: usize = 5;
pub(super) const WINDOW: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);
/// The pause before a revival doubles from the second crash on, up to the second of these.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// A conversation that crashed too often; nothing is delivered to it until an operator kills it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    pub reason: String,
    pub since: Timestamp,
}

/// The deaths of one conversation's actors on one node.
#[derive(Debug, Default)]
pub struct CrashHistory {
    pub(super) died: Option<Timestamp>,
    pub(super) crashes: VecDeque<Timestamp>,
    /// Revivals that the store refused, one after another.
    pub(super) refused: u32,
    pub(super) restarts: u32,
    pub(super) quarantined: Option<Quarantined>,
    /// Set while a pause before the next revival runs.
    pub pause: Option<RestartDelay>,
    /// The dead holder over whom the last actor was started. Whether its claim was done may be
    /// unknown, and may be done long after: the next actor must not give up for that holder.
    replacing: Option<Holder>,
}

/// What a revival waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartDelay {
    AfterCrash,
    AfterRefusal,
}

impl CrashHistory {
    /// Counts a death of an actor that was started over this dead holder; without a `death`, it was
    /// a panic. Returns after which pause the next actor is to start, zero for at once; `None` for
    /// not before somebody asks.
    pub fn died(
        &mut self,
        now: Timestamp,
        death: Option<&ExitReason>,
        reason: &str,
        replacing: Option<Holder>,
    ) -> Option<Duration> {
        (self.died, self.replacing) = (Some(now), replacing);
        self.restarts += 1;
        match death {
            // Who is fenced may be so by a claim of this very node that was carried out late, and
            // then nobody else runs the conversation. The next actor finds out.
            Some(
                ExitReason::Killed
                | ExitReason::Refused(StoreError::Fenced)
                | ExitReason::Trouble(ActivityError::Refused(StoreError::Fenced)),
            ) => Some(Duration::ZERO),
            Some(ExitReason::HeldElsewhere(_)) => None,
            Some(
                ExitReason::Refused(StoreError::Unavailable(_))
                | ExitReason::Trouble(ActivityError::Refused(StoreError::Unavailable(_))),
            ) => {
                self.refused += 1;
                self.pause = Some(RestartDelay::AfterRefusal);
                Some(pause(self.refused))
            }
            Some(
                ExitReason::Refused(StoreError::Conflict)
                | ExitReason::Trouble(
                    ActivityError::Refused(StoreError::Conflict) | ActivityError::Panicked(_),
                ),
            )
            | None => {
                let pause = self.crash(now, reason);
                self.pause =
                    pause.filter(|pause| !pause.is_zero()).map(|_| RestartDelay::AfterCrash);
                pause
            }
        }
    }

    /// An actor has loaded: the store is there again.
    pub fn started(&mut self) {
        self.refused = 0;
    }

    /// Ends the delay. Returns the dead holder whose claim the next actor is to replace.
    pub fn revive(&mut self) -> Option<Holder> {
        self.pause = None;
        self.replacing.take()
    }

    /// Counts a crash. Returns the pause before the next try; `None` when there is none.
    fn crash(&mut self, now: Timestamp, reason: &str) -> Option<Duration> {
        self.crashes.push_back(now);
        self.crashes.retain(|crash| now.duration_since(*crash) < WINDOW);
        if self.crashes.len() >= CRASHES {
            self.quarantined = Some(Quarantined { reason: reason.to_owned(), since: now });
            return None;
        }
        Some(pause(u32::try_from(self.crashes.len()).unwrap_or(u32::MAX) - 1))
    }
}

/// Nothing the first time; then it doubles.
fn pause(times: u32) -> Duration {
    match times {
        0 => Duration::ZERO,
        times => PAUSE.0.saturating_mul(1 << times.min(10)).min(PAUSE.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(node: &str) -> Holder {
        Holder { node: node.to_owned(), incarnation: "1".to_owned() }
    }

    /// Found by the simulation: the store carried the claim of a take-over out when the next actor
    /// had already met the dead holder and given up. The node held the conversation from then on,
    /// and nobody ran it.
    #[test]
    fn the_next_actor_is_started_over_the_same_dead_holder() {
        let (mut record, now) = (CrashHistory::default(), Timestamp::UNIX_EPOCH);
        let away = ExitReason::Refused(StoreError::Unavailable("away".to_owned()));
        let pause = record.died(now, Some(&away), "away", Some(holder("dead")));
        assert!(pause.is_some_and(|pause| !pause.is_zero()));
        assert_eq!(record.pause, Some(RestartDelay::AfterRefusal));
        assert_eq!(record.revive(), Some(holder("dead")));
        assert_eq!((record.pause, record.revive()), (None, None));
    }

    /// Found by the simulation: the claim of an actor that had given up was carried out after its
    /// successor had loaded, and fenced it under the node's own name.
    #[test]
    fn who_is_fenced_has_a_successor_and_who_meets_another_holder_has_none() {
        let (mut record, now) = (CrashHistory::default(), Timestamp::UNIX_EPOCH);
        let fenced = ExitReason::Refused(StoreError::Fenced);
        assert_eq!(record.died(now, Some(&fenced), "fenced", None), Some(Duration::ZERO));
        let elsewhere = ExitReason::HeldElsewhere(holder("other"));
        assert_eq!(record.died(now, Some(&elsewhere), "held", None), None);
    }
}
