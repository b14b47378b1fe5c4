//! The alarm rang: what waits is reminded of, escalates or expires, what failed is attempted again, and
//! scheduled messages are delivered. A second ring changes nothing.

use super::attempt_failed::{retry_call, retry_dispatch};
use super::close::finish_dispatch;
use super::draft::Draft;
use super::external;
use super::schedule::deliver_due;
use super::settle::settle;
use crate::Timestamp;
use crate::command::PartialMessage;
use crate::event::{
    EventData, OnExpiry, SuspensionEscalated, SuspensionExpiring, SuspensionKind, WaitingRules,
};
use crate::ids::CallId;
use crate::message::{ErrorType, Outcome};
use crate::state::{Call, CallPhase, OpenSuspension};

const CHILD_TIMEOUT: &str = "sub_agent_timeout";
const STILL_IN_DOUBT: &str =
    "in doubt: the call was cut off, nobody knows whether it ran, and nobody said so in time";

/// `partial` is the output of the running stream so far, in case a scheduled message interrupts it.
pub(super) fn wake(draft: &mut Draft, partial: Option<PartialMessage>) {
    meet_deadlines(draft);
    deliver_due(draft, partial);
}

/// Does what is due by now for the calls and the dispatches.
pub(super) fn meet_deadlines(draft: &mut Draft) {
    let is_past = |deadline: Timestamp| deadline <= draft.at;
    let mut calls = draft.open_calls();
    calls.retain(|call| call.alarm().is_some_and(is_past));
    let mut dispatches = draft.state.dispatches.clone();
    dispatches.retain(|_, run| run.deadline().is_some_and(is_past));
    for call in calls {
        if let Some(run) = call.external_run().cloned() {
            external::end_of_time(draft, call, run);
            continue;
        }
        if matches!(call.phase, CallPhase::AwaitingRetry { .. }) {
            retry_call(draft, call);
            continue;
        }
        match call.open_suspension() {
            Some(open) if open.expires_at <= draft.at => expire(draft, &call, open),
            Some(_) => remind_and_escalate(draft, &call.id),
            None => draft.push_error(call.id, CHILD_TIMEOUT, ErrorType::ToolError),
        }
    }
    for (id, run) in dispatches {
        if run.delegated_until.is_none() {
            retry_dispatch(draft, id, run);
            continue;
        }
        let outcome = Outcome::Err(CHILD_TIMEOUT.to_owned(), ErrorType::ToolError);
        finish_dispatch(draft, id, run, outcome, None, None);
    }
    settle(draft);
}

/// A call whose suspension has expired ends as its tool said, or as expired.
fn expire(draft: &mut Draft, call: &Call, open: &OpenSuspension) {
    let id = call.id.clone();
    let rules = call.waiting_rules.as_deref();
    match (open.kind, rules.and_then(|rules: &WaitingRules| rules.on_expiry.as_ref())) {
        (SuspensionKind::Approval, Some(OnExpiry::Deny)) => {
            draft.push_error(id, "denied: nobody answered in time", ErrorType::Denied);
        }
        (SuspensionKind::ClientExec | SuspensionKind::Elicitation, Some(OnExpiry::Result(it)))
            if call.pending_input.is_none() =>
        {
            draft.push_result(id, Outcome::Ok(it.clone()));
        }
        (SuspensionKind::InDoubt, _) => {
            draft.push_error(id, STILL_IN_DOUBT, ErrorType::Expired);
        }
        (_, None | Some(OnExpiry::Deny | OnExpiry::Result(_))) => {
            draft.push_error(id, "timed out: no response", ErrorType::Expired);
        }
    }
}

/// Several reminders that are due at once are one. Each escalation is told by itself.
fn remind_and_escalate(draft: &mut Draft, id: &CallId) {
    let at = draft.at;
    let Some((suspension, expires_at)) = draft.state.call(id).and_then(|call| {
        let open = call.open_suspension()?;
        Some((open.suspension, open.expires_at))
    }) else {
        return;
    };
    let call_id = || id.clone();
    if draft.state.call(id).and_then(Call::next_reminder).is_some_and(|due| due <= at) {
        let expiring = SuspensionExpiring { call_id: call_id(), suspension, expires_at };
        draft.push(EventData::SuspensionExpiring(expiring));
    }
    while let Some((_, escalation)) =
        draft.state.call(id).and_then(Call::next_escalation).filter(|(due, _)| *due <= at)
    {
        let by = escalation.by.clone();
        let escalated = SuspensionEscalated { call_id: call_id(), suspension, by };
        draft.push(EventData::SuspensionEscalated(escalated));
    }
}
