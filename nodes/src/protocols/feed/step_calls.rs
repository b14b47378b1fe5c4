//! The calls of the current step, as far as they decide whether the turn rests.

use std::collections::BTreeMap;

use abide_conversation::CallId;
use abide_conversation::event::{Resolution, Suspension, Voted};
use abide_conversation::message::CallRef;

/// The calls of the current step.
#[derive(Debug, Default)]
pub(super) struct StepCalls(BTreeMap<CallId, CallProgress>);

/// What a call waits for.
#[derive(Debug)]
enum CallProgress {
    /// The system itself, or a child conversation.
    Running,
    /// Somebody outside.
    Pending(Box<Suspension>),
    Done,
}

impl StepCalls {
    /// Begins a step with these calls.
    pub(super) fn begin(&mut self, calls: &[CallRef]) {
        let running = |call: &CallRef| (call.id.clone(), CallProgress::Running);
        self.0 = calls.iter().map(running).collect();
    }

    /// Notes that a call waits.
    pub(super) fn suspend(&mut self, suspension: &Suspension) {
        let pending = CallProgress::Pending(Box::new(suspension.clone()));
        self.set(&suspension.call_id, pending);
    }

    /// Notes that a call waits no more for the suspension that was answered.
    pub(super) fn resolve(&mut self, resolution: &Resolution) {
        if self.is_pending(&resolution.call_id, resolution.suspension) {
            self.set(&resolution.call_id, CallProgress::Running);
        }
    }

    /// The suspension with the arguments that an approver edited; `None` if none were.
    pub(super) fn edit(&mut self, voted: &Voted) -> Option<&Suspension> {
        let args = voted.args.as_ref()?;
        match self.0.get_mut(&voted.call_id)? {
            CallProgress::Pending(open) if open.suspension == voted.suspension => {
                open.args = args.clone();
                Some(open)
            }
            CallProgress::Pending(_) | CallProgress::Running | CallProgress::Done => None,
        }
    }

    /// Notes that a call has its result.
    pub(super) fn end(&mut self, call: &CallId) {
        self.set(call, CallProgress::Done);
    }

    /// The suspensions that the turn rests on; empty while it does not rest. It rests if each call is
    /// pending or done, and at least one is pending.
    pub(super) fn rest(&self) -> Vec<&Suspension> {
        let mut pending = Vec::new();
        for call in self.0.values() {
            match call {
                CallProgress::Running => return Vec::new(),
                CallProgress::Pending(suspension) => pending.push(&**suspension),
                CallProgress::Done => {}
            }
        }
        pending
    }

    /// Whether the step has this call.
    pub(super) fn contains(&self, call: &CallId) -> bool {
        self.0.contains_key(call)
    }

    fn is_pending(&self, call: &CallId, suspension: u32) -> bool {
        let pending = |progress: &CallProgress| matches!(progress, CallProgress::Pending(open) if open.suspension == suspension);
        self.0.get(call).is_some_and(pending)
    }

    fn set(&mut self, call: &CallId, progress: CallProgress) {
        if let Some(known) = self.0.get_mut(call) {
            *known = progress;
        }
    }
}
