//! Random commands about turns that wait or run, and rewinds.

use super::random_driver::{RandomRun, Roll};
use super::scenario::{message, send};
use crate::branch::{BranchTip, RewindPoint};
use crate::command::{Action, Cancel, IfBusy, Regenerate, Rewind, Withdraw};
use crate::{Principal, Seq, State, TurnId, replay};

impl RandomRun {
    /// Withdraws a turn: one that waits, the one that runs, or one that never was.
    pub(super) fn withdrawn(&self, n: usize, roll: Roll) -> Action {
        let place = usize::from(roll.which % 3);
        let queued = self.state.queue.get(place).map(|queued| &queued.id);
        let running = self.state.turn.as_ref().map(|turn| &turn.id);
        let turn = if roll.how.is_multiple_of(4) { running } else { queued.or(running) };
        Action::Withdraw(Withdraw {
            turn: turn.cloned().unwrap_or_else(|| TurnId::new(format!("turn_{n}"))),
            cancel: roll.ms.is_multiple_of(128).then_some(Cancel { partial: None }),
            by: Principal::new("ada"),
            identity: None,
        })
    }

    /// Goes back to an event of the journal, in whatever branch, or to none; a message if that cannot
    /// be gone back to. What is under way ends first, in half of the cases.
    pub(super) fn rewound(&mut self, n: usize, roll: Roll) -> Action {
        if roll.ms.is_multiple_of(128) {
            self.finish(roll);
        }
        let last = self.state.seq.get();
        let to_seq = Seq::new(u64::from(roll.how) % (last + 2));
        let state = replay(State::default(), self.journal.iter().take(to_seq.get() as usize));
        let Ok(point) = RewindPoint::at(&state) else { return send(&format!("turn_{n}")) };
        let rewind = Rewind { to_seq, point, by: Principal::new("ada"), identity: None };
        if roll.which % 4 < 2 {
            return Action::Rewind(rewind);
        }
        let tip = BranchTip::of(&self.state);
        let send = message(&format!("turn_{n}"), IfBusy::Reject);
        let steering = Vec::new();
        Action::Regenerate(Box::new(Regenerate { rewind, tip, send, steering }))
    }
}
