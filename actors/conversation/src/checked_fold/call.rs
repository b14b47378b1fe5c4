//! What may happen to a call, to a dispatch, and to the child conversations that answer them.

use super::{IllegalEvent, ensure};
use crate::Timestamp;
use crate::event::{
    ChildEnded, ChildStarted, DispatchStarted, Event, EventData, OnExpiry, SuspensionKind,
    ToolStarted,
};
use crate::ids::CallId;
use crate::message::{ErrorType, Outcome};
use crate::numbers::Attempt;
use crate::state::{Call, CallPhase, ExternalRun, ExternalRunner, OpenSuspension, State};

/// Checks an event of one call.
pub(super) fn check(state: &State, event: &Event) -> Result<(), IllegalEvent> {
    match &event.data {
        EventData::ToolCall(planned) => {
            let call = open_call(state, &planned.call_id)?;
            in_phase(call, matches!(call.phase, CallPhase::Requested))
        }
        EventData::Suspension(suspension) => {
            let call = open_call(state, &suspension.call_id)?;
            in_phase(call, call.open_suspension().is_none())?;
            let is_next = suspension.suspension == call.suspensions.saturating_add(1);
            ensure(is_next, || IllegalEvent::WrongSuspension(call.id.clone()))
        }
        EventData::Voted(voted) => {
            let call = open_call(state, &voted.call_id)?;
            let is_asked = call
                .open_suspension()
                .is_some_and(|open| open.approval.is_some() && open.suspension == voted.suspension);
            ensure(is_asked, || IllegalEvent::WrongSuspension(call.id.clone()))
        }
        EventData::Resolution(resolution) => {
            let call = open_call(state, &resolution.call_id)?;
            let is_open = call.open_suspension().is_some_and(|open| {
                (open.kind, open.suspension) == (resolution.kind, resolution.suspension)
            });
            ensure(is_open, || IllegalEvent::WrongSuspension(call.id.clone()))
        }
        EventData::SuspensionExpiring(it) => suspended(state, &it.call_id, it.suspension),
        EventData::SuspensionExtended(it) => suspended(state, &it.call_id, it.suspension),
        EventData::SuspensionEscalated(it) => suspended(state, &it.call_id, it.suspension),
        EventData::ToolStarted(started) => tool_started(state, started),
        EventData::ToolAttemptFailed(failed) => match state.dispatches.get(&failed.call_id) {
            Some(run) => {
                let runs = run.attempt == failed.attempt && run.deadline().is_none();
                ensure(runs, || IllegalEvent::WrongAttempt(failed.call_id.clone()))
            }
            None => runs_attempt(open_call(state, &failed.call_id)?, failed.attempt),
        },
        EventData::InputRequired(required) => {
            let call = open_call(state, &required.call_id)?;
            runs_attempt(call, required.attempt)
        }
        EventData::ToolResult(result) => {
            let call = open_call(state, &result.call_id)?;
            let ends = |open| ends_unanswered(call, open, &result.outcome, event.at);
            let is_legal = call.open_suspension().is_none_or(ends);
            ensure(is_legal, || IllegalEvent::Unanswered(call.id.clone()))
        }
        EventData::DecisionRemembered(remembered) => {
            open_call(state, &remembered.call_id).map(drop)
        }
        EventData::DispatchStarted(started) => dispatch_started(state, started),
        EventData::DispatchFinished(finished) => {
            let id = &finished.call_id;
            let is_running = state.dispatches.contains_key(id);
            // A dispatch that the gate refused never starts.
            let was_refused = finished.verdict.is_some();
            ensure(is_running != was_refused, || IllegalEvent::NoOpenCall(id.clone()))
        }
        EventData::PhaseChanged(changed) => call_or_dispatch(state, &changed.call_id),
        EventData::TodosChanged(changed) => call_or_dispatch(state, &changed.call_id),
        EventData::ChildStarted(started) => child_started(state, started),
        EventData::ChildEnded(ended) => child_ended(state, ended),
        EventData::ToolQueued(queued) => queued_again(state, &queued.call_id, queued.attempt),
        EventData::ToolLeased(leased) => {
            let call = open_call(state, &leased.call_id)?;
            let run = call.external_run().filter(|run| run.attempt == leased.attempt);
            let is_free = |run: &ExternalRun| match (&run.by, run.lease()) {
                (ExternalRunner::Queue(_), None) => true,
                (ExternalRunner::Queue(_), Some(lease)) => lease.id == leased.lease,
                (ExternalRunner::Callback, _) => false,
            };
            in_phase(call, run.is_some_and(is_free))
        }
        EventData::CallbackAwaited(awaited) => {
            let call = open_call(state, &awaited.call_id)?;
            runs_attempt(call, awaited.attempt)
        }
        _ => Ok(()),
    }
}

/// Whether a call that nobody has answered ends with this outcome: with its turn, when it expires,
/// or because no page came for it.
fn ends_unanswered(call: &Call, open: &OpenSuspension, outcome: &Outcome, at: Timestamp) -> bool {
    let on_expiry = call.waiting_rules.as_deref().and_then(|rules| rules.on_expiry.as_ref());
    let has_expired = open.expires_at <= at;
    match outcome {
        Outcome::Err(_, ErrorType::Cancelled) => true,
        Outcome::Err(_, ErrorType::NoClient) => open.kind == SuspensionKind::ClientExec,
        Outcome::Err(_, ErrorType::Expired) => has_expired,
        Outcome::Err(_, ErrorType::Denied) => {
            let denies = matches!(on_expiry, Some(OnExpiry::Deny));
            has_expired && denies && open.kind == SuspensionKind::Approval
        }
        Outcome::Ok(_) => {
            let is_given = matches!(on_expiry, Some(OnExpiry::Result(_)));
            let is_answered_outside =
                matches!(open.kind, SuspensionKind::ClientExec | SuspensionKind::Elicitation);
            has_expired && is_given && is_answered_outside && call.pending_input.is_none()
        }
        Outcome::Err(
            _,
            ErrorType::PermissionDenied
            | ErrorType::ToolNotFound
            | ErrorType::ValidationError
            | ErrorType::ToolError
            | ErrorType::ToolCrashed
            | ErrorType::Timeout
            | ErrorType::Interrupted,
        ) => false,
    }
}

fn suspended(state: &State, id: &CallId, suspension: u32) -> Result<(), IllegalEvent> {
    let call = open_call(state, id)?;
    let is_open = call.open_suspension().is_some_and(|open| open.suspension == suspension);
    ensure(is_open, || IllegalEvent::WrongSuspension(id.clone()))
}

fn open_call<'a>(state: &'a State, id: &CallId) -> Result<&'a Call, IllegalEvent> {
    let call = state.call(id).filter(|call| call.phase != CallPhase::Done);
    call.ok_or_else(|| IllegalEvent::NoOpenCall(id.clone()))
}

fn call_or_dispatch(state: &State, id: &CallId) -> Result<(), IllegalEvent> {
    if state.dispatches.contains_key(id) { Ok(()) } else { open_call(state, id).map(drop) }
}

fn in_phase(call: &Call, holds: bool) -> Result<(), IllegalEvent> {
    ensure(holds, || IllegalEvent::WrongPhase(call.id.clone()))
}

fn runs_attempt(call: &Call, expected: Attempt) -> Result<(), IllegalEvent> {
    let CallPhase::Running { attempt, .. } = call.phase else {
        return Err(IllegalEvent::WrongPhase(call.id.clone()));
    };
    ensure(attempt == expected, || IllegalEvent::WrongAttempt(call.id.clone()))
}

/// A call starts after its approval, after an answer, or once more after its node died.
fn tool_started(state: &State, started: &ToolStarted) -> Result<(), IllegalEvent> {
    let call = open_call(state, &started.call_id)?;
    match call.phase {
        CallPhase::Approved => Ok(()),
        CallPhase::Running { attempt, .. } | CallPhase::AwaitingRetry { attempt, .. } => {
            ensure(started.attempt > attempt, || IllegalEvent::WrongAttempt(call.id.clone()))
        }
        CallPhase::Requested
        | CallPhase::Suspended(_)
        | CallPhase::Delegated { .. }
        | CallPhase::External(_)
        | CallPhase::Done => Err(IllegalEvent::WrongPhase(call.id.clone())),
    }
}

/// An attempt is put into a queue as it starts, or as the next one when a lease has run out.
fn queued_again(state: &State, id: &CallId, attempt: Attempt) -> Result<(), IllegalEvent> {
    let call = open_call(state, id)?;
    match call.external_run() {
        Some(run) => {
            in_phase(call, run.lease().is_some())?;
            ensure(attempt > run.attempt, || IllegalEvent::WrongAttempt(id.clone()))
        }
        None => runs_attempt(call, attempt),
    }
}

fn dispatch_started(state: &State, started: &DispatchStarted) -> Result<(), IllegalEvent> {
    let id = &started.call_id;
    let is_next = match state.dispatches.get(id) {
        Some(run) => run.delegated_until.is_none() && started.attempt > run.attempt,
        None => state.call(id).is_none() && started.attempt == Attempt::FIRST,
    };
    ensure(is_next, || IllegalEvent::DispatchRunning(id.clone()))
}

fn child_started(state: &State, started: &ChildStarted) -> Result<(), IllegalEvent> {
    let id = &started.call_id;
    let child = if let Some(run) = state.dispatches.get(id) {
        let is_running = run.attempt == started.attempt && run.delegated_until.is_none();
        ensure(is_running, || IllegalEvent::WrongAttempt(id.clone()))?;
        run.child.as_ref()
    } else {
        let call = open_call(state, id)?;
        runs_attempt(call, started.attempt)?;
        call.kind.child()
    };
    let is_its_child = child == Some(&started.conversation_id);
    ensure(is_its_child, || IllegalEvent::UnknownChild(started.conversation_id.clone()))
}

fn child_ended(state: &State, ended: &ChildEnded) -> Result<(), IllegalEvent> {
    let id = &ended.call_id;
    let child = if let Some(run) = state.dispatches.get(id) {
        run.child.as_ref()
    } else {
        let call = open_call(state, id)?;
        let has_begun =
            matches!(call.phase, CallPhase::Running { .. } | CallPhase::Delegated { .. });
        in_phase(call, has_begun)?;
        call.kind.child()
    };
    let is_its_child = child == Some(&ended.conversation_id);
    ensure(is_its_child, || IllegalEvent::UnknownChild(ended.conversation_id.clone()))
}
