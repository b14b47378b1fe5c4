//! Random commands about what happens later.

use super::random_driver::{RandomRun, Roll};
use super::waiting::extend;
use crate::command::{Action, Schedule, Unschedule};
use crate::{Principal, ScheduledId};

impl RandomRun {
    pub(super) fn scheduled(&self, n: usize, roll: Roll) -> Action {
        let Action::Send(send) = self.message(n, roll) else { unreachable!("a message is sent") };
        let after = jiff::SignedDuration::from_millis(i64::from(roll.ms) * 4);
        let deliver_at = self.at.checked_add(after).unwrap();
        let scheduled_id = ScheduledId::new(format!("sch_{n}"));
        Action::Schedule(Schedule { scheduled_id, deliver_at, send })
    }

    pub(super) fn extended(&self, roll: Roll) -> Action {
        let pending = self.state.pending_calls();
        let first = pending.first().map(|open| open.call_id.to_string());
        let call = first.filter(|_| !roll.which.is_multiple_of(4));
        extend(&call.unwrap_or_else(|| self.some_call(roll)), u64::from(roll.ms))
    }

    /// Withdraws a message, also one that was never scheduled.
    pub(super) fn unscheduled(&self, roll: Roll) -> Action {
        let waiting = self.state.scheduled.waiting();
        let first = waiting.first().map(|it| it.scheduled_id.clone());
        let scheduled_id = first.filter(|_| roll.which.is_multiple_of(2));
        let scheduled_id = scheduled_id.unwrap_or_else(|| ScheduledId::new("sch_0"));
        Action::Unschedule(Unschedule { scheduled_id, by: Principal::new("ada"), identity: None })
    }
}
