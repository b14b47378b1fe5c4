//! Calls that programs outside carry out: queued, leased, completed, called back.

use super::Rejection;
use super::draft::Draft;
use super::settle::{add_millis, end_turn, settle};
use crate::Timestamp;
use crate::command::{
    AwaitCallback, CompleteCall, ExtendLease, ExternalAction, LeaseCall, Proof, QueueCall,
};
use crate::event::{
    CallbackAwaited, EventData, OnInterrupt, ToolLeased, ToolQueued, ToolResult, TurnOutcome,
};
use crate::ids::{CallId, LeaseId};
use crate::message::ErrorType;
use crate::numbers::Attempt;
use crate::state::{Call, CallPhase, ExternalRun, ExternalRunner, Lease, QueueRun, State};

/// A call whose workers die again and again must not fill its journal.
const MAX_ATTEMPTS: u32 = 100;
/// An extension that gains less than this is not worth an event.
const MIN_GAIN_MS: u64 = 1_000;
const NOT_LEASED: &str = "the worker does not have the call, or not any more";

pub(super) fn external(draft: &mut Draft, action: ExternalAction) -> Result<(), Rejection> {
    match action {
        ExternalAction::Queue(queue) => put_into_queue(draft, queue),
        ExternalAction::AwaitCallback(wait) => await_callback(draft, wait),
        ExternalAction::Lease(lease) => lease_call(draft, lease),
        ExternalAction::Extend(extend) => extend_lease(draft, extend),
        ExternalAction::Complete(complete) => complete_call(draft, *complete),
    }
}

fn put_into_queue(draft: &mut Draft, queue: QueueCall) -> Result<(), Rejection> {
    let QueueCall { call: call_id, attempt, queue, on_interrupt, effective_args } = queue;
    let timeout_ms = running(&draft.state, &call_id, attempt)?.timeout_ms;
    let expires_at = add_millis(draft.at, timeout_ms);
    draft.push(EventData::ToolQueued(ToolQueued {
        call_id,
        attempt,
        queue,
        expires_at,
        on_interrupt,
        effective_args,
    }));
    Ok(())
}

fn await_callback(draft: &mut Draft, wait: AwaitCallback) -> Result<(), Rejection> {
    let AwaitCallback { call: call_id, attempt, effective_args } = wait;
    let timeout_ms = running(&draft.state, &call_id, attempt)?.timeout_ms;
    let expires_at = add_millis(draft.at, timeout_ms);
    draft.push(EventData::CallbackAwaited(CallbackAwaited {
        call_id,
        attempt,
        expires_at,
        effective_args,
    }));
    Ok(())
}

/// The call, if this attempt of it runs here.
fn running<'a>(state: &'a State, id: &CallId, attempt: Attempt) -> Result<&'a Call, Rejection> {
    let runs =
        |call: &&Call| matches!(call.phase, CallPhase::Running { attempt: n, .. } if n == attempt);
    state.call(id).filter(runs).ok_or(Rejection::Stale)
}

fn lease_call(draft: &mut Draft, lease: LeaseCall) -> Result<(), Rejection> {
    let LeaseCall { call: call_id, attempt, queue, lease, worker, for_ms } = lease;
    let lost = || Rejection::LeaseLost("the call does not wait for a worker".into());
    let call = draft.state.call(&call_id);
    let run = call.and_then(Call::external_run).filter(|run| run.attempt == attempt);
    let run = run.ok_or_else(lost)?;
    match &run.by {
        ExternalRunner::Queue(waiting) if waiting.lease.is_none() && waiting.queue == queue => {}
        ExternalRunner::Queue(_) | ExternalRunner::Callback => return Err(lost()),
    }
    if draft.at >= run.expires_at {
        return Err(lost());
    }
    let until = add_millis(draft.at, for_ms).min(run.expires_at);
    draft.push(EventData::ToolLeased(ToolLeased { call_id, attempt, lease, worker, until }));
    Ok(())
}

fn extend_lease(draft: &mut Draft, extend: ExtendLease) -> Result<(), Rejection> {
    let ExtendLease { call: call_id, lease: id, for_ms } = extend;
    let (run, lease) = leased(&draft.state, draft.at, &call_id, &id)?;
    let until = add_millis(draft.at, for_ms).min(run.expires_at);
    let is_last = until == run.expires_at && lease.until < until;
    if !is_last && until < add_millis(lease.until, MIN_GAIN_MS) {
        return Ok(());
    }
    let (attempt, worker) = (run.attempt, lease.worker.clone());
    draft.push(EventData::ToolLeased(ToolLeased { call_id, attempt, lease: id, worker, until }));
    Ok(())
}

/// The run that this lease is for, if it has not run out.
fn leased<'a>(
    state: &'a State,
    at: Timestamp,
    call: &CallId,
    id: &LeaseId,
) -> Result<(&'a ExternalRun, &'a Lease), Rejection> {
    let run = state.call(call).and_then(Call::external_run);
    let leased = run.and_then(|run| Some((run, run.lease()?)));
    let holds = |(_, lease): &(&ExternalRun, &Lease)| lease.id == *id && at < lease.until;
    leased.filter(holds).ok_or(Rejection::LeaseLost(NOT_LEASED.into()))
}

fn complete_call(draft: &mut Draft, complete: CompleteCall) -> Result<(), Rejection> {
    let CompleteCall { call: call_id, proof, outcome, ui, halt } = complete;
    check_proof(&draft.state, draft.at, &call_id, &proof)?;
    let result = ToolResult { call_id, outcome, ui, effective_args: None };
    draft.push(EventData::ToolResult(result));
    match halt {
        Some(reason) => end_turn(draft, TurnOutcome::Halted, Some(reason)),
        None => settle(draft),
    }
    Ok(())
}

/// Whether a program that shows this may complete the call now, or report its progress.
pub fn check_proof(
    state: &State,
    at: Timestamp,
    call: &CallId,
    proof: &Proof,
) -> Result<(), Rejection> {
    match proof {
        Proof::Lease(id) => leased(state, at, call, id).map(drop),
        Proof::Callback { turn, attempt } => {
            let is_turn = state.turn.as_ref().is_some_and(|open| open.id == *turn);
            let call = state.call(call).filter(|_| is_turn);
            match call.map(|call| &call.phase) {
                // The callback is faster than the answer 202.
                Some(CallPhase::Running { attempt: current, .. }) if attempt <= current => Ok(()),
                Some(CallPhase::External(run))
                    if run.by == ExternalRunner::Callback
                        && *attempt <= run.attempt
                        && at < run.expires_at =>
                {
                    Ok(())
                }
                _ => Err(Rejection::CallNotOpen("the call waits for no callback".into())),
            }
        }
    }
}

/// The time of a call that a program outside carries out is over, or that of the worker that has it:
/// then the call waits for another one.
pub(super) fn end_of_time(draft: &mut Draft, call: Call, run: ExternalRun) {
    if run.expires_at <= draft.at {
        return draft.push_error(call.id, "timed out: no response", ErrorType::Expired);
    }
    let ExternalRunner::Queue(QueueRun { queue, on_interrupt, .. }) = run.by else { return };
    if on_interrupt == OnInterrupt::Fail {
        let message = "tool call interrupted: the worker's lease ran out";
        return draft.push_error(call.id, message, ErrorType::Interrupted);
    }
    if run.attempt.get() >= MAX_ATTEMPTS {
        let message = format!("the leases of {MAX_ATTEMPTS} attempts ran out");
        return draft.push_error(call.id, message, ErrorType::Interrupted);
    }
    draft.push(EventData::ToolQueued(ToolQueued {
        call_id: call.id,
        attempt: run.attempt.next(),
        queue,
        expires_at: run.expires_at,
        on_interrupt,
        effective_args: run.effective_args,
    }));
}
