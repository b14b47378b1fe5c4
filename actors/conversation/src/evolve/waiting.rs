//! Folds what happens to a suspension while it waits.

use super::with_call;
use crate::event::{Event, SuspensionEscalated, SuspensionExpiring, SuspensionExtended};
use crate::ids::CallId;
use crate::state::{CallPhase, OpenSuspension, State};

/// A reminder covers all that were due by then.
pub(super) fn remind(state: &mut State, event: &Event, expiring: &SuspensionExpiring) {
    with_suspension(state, &expiring.call_id, |open| open.reminded_until = Some(event.at));
}

/// Reminders whose time before the new expiry has passed are not made up for.
pub(super) fn extend(state: &mut State, event: &Event, extended: &SuspensionExtended) {
    with_suspension(state, &extended.call_id, |open| {
        open.expires_at = extended.expires_at;
        open.reminded_until = Some(event.at);
    });
}

pub(super) fn escalate(state: &mut State, escalated: &SuspensionEscalated) {
    with_suspension(state, &escalated.call_id, |open| {
        open.escalations = open.escalations.saturating_add(1);
        if let Some(approval) = &mut open.approval {
            approval.policy.escalated.insert(escalated.by.clone());
        }
    });
}

fn with_suspension(state: &mut State, call: &CallId, change: impl FnOnce(&mut OpenSuspension)) {
    with_call(state, call, |call| {
        if let CallPhase::Suspended(open) = &mut call.phase {
            change(open);
        }
    });
}
