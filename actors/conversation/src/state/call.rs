//! What a call's phase means for whoever looks at it.

use serde_json::Value;

use super::Call;
use crate::Timestamp;
use crate::event::{Suspension, SuspensionKind};
use crate::numbers::Attempt;
use crate::permission::{Decision, Verdict};

impl Call {
    /// The verdict that permits the call to run with its current arguments; `None` if it may not
    /// run.
    pub fn permit(&self) -> Option<&Verdict> {
        self.gate.as_ref().filter(|verdict| match verdict.decision {
            Decision::Allow => true,
            Decision::Ask => self.approved,
            Decision::Deny => false,
        })
    }

    /// The next suspension of this call, as an event.
    pub fn next_suspension(
        &self,
        kind: SuspensionKind,
        message: String,
        expires_at: Timestamp,
    ) -> Suspension {
        Suspension {
            call_id: self.id.clone(),
            kind,
            suspension: self.suspensions.saturating_add(1),
            expires_at,
            tool: self.tool.clone(),
            executor: self.kind.executor(),
            intent: self.intent,
            args: self.args.clone(),
            message,
            requests: self.requests(),
            policy: None,
            answer_schema: None,
            doubt: None,
        }
    }

    /// The input that the tool asks for, while nobody has answered.
    pub(super) fn requests(&self) -> Option<Value> {
        let unanswered = self.pending_input.as_ref().filter(|input| input.answer.is_none());
        unanswered.map(|input| input.request.requests.clone())
    }

    /// The number of the next attempt of a call that is not running.
    pub fn next_attempt(&self) -> Attempt {
        self.pending_input.as_ref().map_or(Attempt::FIRST, |input| input.attempt.next())
    }
}
