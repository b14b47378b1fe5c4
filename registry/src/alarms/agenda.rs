//! Which conversations to wake now, and when to look again: from what was read, by the clock given.

use std::collections::HashMap;
use std::time::Duration;

use abide_conversation::{ConversationId, Timestamp};

/// How late an alarm may be noticed that was set after the last look.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How many alarms of a partition are read at a look, and how many when there are more. Most looks
/// find nothing due, and a node that only waits should cost nothing.
const FEW: usize = 8;
const BATCH: usize = 64;
/// How many conversations are woken at once.
const AT_ONCE: usize = 256;
/// How long a conversation that could not be woken is left alone.
const AGAIN_AFTER: jiff::SignedDuration = jiff::SignedDuration::from_secs(1);
/// How long to wait while more may be due than were read.
const BRIEFLY: Duration = Duration::from_millis(10);

/// What is read of the alarms at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// Those that are due by then,
    pub until: Timestamp,
    /// and so many of them.
    pub limit: usize,
}

/// The conversations that are being woken, and those that are to be left alone.
#[derive(Debug, Default)]
pub struct AlarmPlanner {
    /// Until when; those under way, until they are done.
    leave: HashMap<ConversationId, Timestamp>,
    /// More were due at the last look than were read.
    many: bool,
}

impl AlarmPlanner {
    /// What to read now.
    pub fn look(&mut self, now: Timestamp) -> Poll {
        self.leave.retain(|_, until| *until > now);
        // Past those that are left alone there may be others.
        let limit = if self.many { BATCH + self.leave.len() } else { FEW };
        Poll { until: now.checked_add(LOOK_EVERY).unwrap_or(Timestamp::MAX), limit }
    }

    /// Whom to wake of the alarms that were read, earliest first, since when, and how long to wait
    /// then. Each is under way until it is [`done`](Self::done); so many are already.
    pub fn read(
        &mut self,
        look: Poll,
        now: Timestamp,
        alarms: &[(ConversationId, Timestamp)],
        under_way: usize,
    ) -> (Vec<(ConversationId, Timestamp)>, Duration) {
        let due = alarms.iter().filter(|(_, due)| *due <= now);
        self.many = due.clone().count() >= look.limit;
        let mut wake = Vec::new();
        for (id, due) in due {
            if under_way + wake.len() >= AT_ONCE {
                break;
            }
            if !self.leave.contains_key(id) {
                self.leave.insert(id.clone(), Timestamp::MAX);
                wake.push((id.clone(), *due));
            }
        }
        let next = alarms.iter().map(|(_, due)| *due).find(|due| *due > now);
        (wake, if self.many { BRIEFLY } else { until(next, now) })
    }

    /// One that was under way was woken, or was not and is left alone for a while.
    pub fn done(&mut self, id: ConversationId, woken: bool, now: Timestamp) {
        match woken {
            true => self.leave.remove(&id),
            false => {
                let until = now.checked_add(AGAIN_AFTER).unwrap_or(Timestamp::MAX);
                self.leave.insert(id, until)
            }
        };
    }
}

fn until(next: Option<Timestamp>, now: Timestamp) -> Duration {
    let next = next.and_then(|next| Duration::try_from(next.duration_since(now)).ok());
    next.map_or(LOOK_EVERY, |next| next.min(LOOK_EVERY))
}
