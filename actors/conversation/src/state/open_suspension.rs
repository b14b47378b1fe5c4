//! The suspension that a call waits in, and the moments at which something happens to it.

use serde::{Deserialize, Serialize};

use super::{Call, CallPhase, OpenApproval, RunningDispatch, State};
use crate::event::{Doubt, Escalation, SuspensionKind};
use crate::{AnswerSchema, Timestamp};

/// The open suspension of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenSuspension {
    pub kind: SuspensionKind,
    pub suspension: u32,
    pub since: Timestamp,
    pub expires_at: Timestamp,
    pub message: String,
    /// Approvals only; `None` if the first answer decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Box<OpenApproval>>,
    /// The JSON Schema of an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_schema: Option<AnswerSchema>,
    /// Reminders up to this moment are done with; `None`: up to the suspension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reminded_until: Option<Timestamp>,
    /// How many escalations have happened.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub escalations: usize,
    /// Calls in doubt only: what is known of the attempt that was cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<Doubt>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl State {
    /// The moment at which the conversation must be woken: the earliest of its deadlines, and of what
    /// is to happen before them.
    pub fn alarm(&self) -> Option<Timestamp> {
        if self.forking.is_some() {
            return None;
        }
        let calls = self.turn.iter().flat_map(|turn| &turn.calls);
        let deadlines = calls.filter_map(Call::alarm);
        let dispatches = self.dispatches.values().filter_map(RunningDispatch::deadline);
        deadlines.chain(dispatches).chain(self.scheduled.next_at()).chain(self.expires_at).min()
    }
}

impl Call {
    /// The open suspension, if there is one.
    pub fn open_suspension(&self) -> Option<&OpenSuspension> {
        match &self.phase {
            CallPhase::Suspended(open) => Some(open),
            CallPhase::Requested
            | CallPhase::Approved
            | CallPhase::Running { .. }
            | CallPhase::AwaitingRetry { .. }
            | CallPhase::Delegated { .. }
            | CallPhase::External(_)
            | CallPhase::Done => None,
        }
    }

    /// The moment at which the call expires or is attempted again, if there is one.
    pub fn deadline(&self) -> Option<Timestamp> {
        match &self.phase {
            CallPhase::Suspended(open) => Some(open.expires_at),
            CallPhase::Delegated { expires_at, .. } => Some(*expires_at),
            CallPhase::AwaitingRetry { retry_at, .. } => Some(*retry_at),
            CallPhase::External(run) => Some(run.deadline()),
            CallPhase::Requested
            | CallPhase::Approved
            | CallPhase::Running { .. }
            | CallPhase::Done => None,
        }
    }

    /// The moment at which something happens to the call though nobody acts.
    pub fn alarm(&self) -> Option<Timestamp> {
        let escalation = self.next_escalation().map(|(at, _)| at);
        [self.deadline(), self.next_reminder(), escalation].into_iter().flatten().min()
    }

    /// When the next reminder of the open suspension is due.
    pub fn next_reminder(&self) -> Option<Timestamp> {
        let open = self.open_suspension()?;
        let done = open.reminded_until.unwrap_or(open.since);
        let before = |ms: &u64| open.expires_at.checked_sub(millis(*ms)).ok();
        let all = self.waiting_rules.iter().flat_map(|rules| &rules.remind_ms);
        all.filter_map(before).filter(|at| *at > done).min()
    }

    /// The next escalation of the open approval, and when it is due.
    pub fn next_escalation(&self) -> Option<(Timestamp, &Escalation)> {
        let open = self.open_suspension()?;
        if open.kind != SuspensionKind::Approval {
            return None;
        }
        let next = self.waiting_rules.as_ref()?.escalate.get(open.escalations)?;
        let at = open.since.checked_add(millis(next.after_ms)).unwrap_or(Timestamp::MAX);
        Some((at, next))
    }
}

fn millis(ms: u64) -> jiff::SignedDuration {
    jiff::SignedDuration::from_millis(i64::try_from(ms).unwrap_or(i64::MAX))
}
