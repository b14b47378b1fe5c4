//! An attempt of a tool failed, or was cut off: another one follows, or a person is asked.

use super::Rejection;
use super::draft::Draft;
use super::revive::{dispatch_once_more, run_once_more, suspend_in_doubt};
use crate::command::AttemptFailed;
use crate::event::{Doubt, DoubtReason, EventData, ToolAttemptFailed};
use crate::ids::CallId;
use crate::numbers::Attempt;
use crate::state::{Call, CallPhase, RunningDispatch};

/// Nothing runs for the call until the next attempt.
pub(super) fn attempt_failed(draft: &mut Draft, failed: AttemptFailed) -> Result<(), Rejection> {
    let AttemptFailed { call: call_id, attempt, error, retry_at } = failed;
    let runs_as_dispatch =
        |run: &RunningDispatch| run.attempt == attempt && run.deadline().is_none();
    let runs = match draft.state.dispatches.get(&call_id) {
        Some(run) => runs_as_dispatch(run),
        None => running_since(draft, &call_id, attempt).is_some(),
    };
    if !runs {
        return Err(Rejection::Stale);
    }
    let failed = ToolAttemptFailed { call_id: call_id.clone(), attempt, error, retry_at };
    draft.push_for(&call_id, EventData::ToolAttemptFailed(failed));
    Ok(())
}

/// The connection broke after the request may have reached the tool.
pub(super) fn connection_broke(
    draft: &mut Draft,
    call: &CallId,
    attempt: Attempt,
) -> Result<(), Rejection> {
    let since = running_since(draft, call, attempt).ok_or(Rejection::Stale)?;
    let reason = DoubtReason::ConnectionBroke;
    suspend_in_doubt(draft, call, Doubt { attempt, started_at: since, node: None, reason });
    Ok(())
}

/// Begins the next attempt of whatever waits for one.
pub(super) fn attempt_now(draft: &mut Draft) {
    for call in draft.open_calls() {
        retry_call(draft, call);
    }
    for (id, run) in draft.state.dispatches.clone() {
        if run.retry_at.is_some() {
            retry_dispatch(draft, id, run);
        }
    }
}

/// Begins the next attempt of a call that waits for it.
pub(super) fn retry_call(draft: &mut Draft, call: Call) {
    if let CallPhase::AwaitingRetry { attempt, .. } = call.phase {
        run_once_more(draft, call, attempt);
    }
}

/// Begins the next attempt of a dispatch that waits for it.
pub(super) fn retry_dispatch(draft: &mut Draft, id: CallId, run: RunningDispatch) {
    dispatch_once_more(draft, id, run);
}

fn running_since(draft: &Draft, call: &CallId, expected: Attempt) -> Option<crate::Timestamp> {
    match draft.state.call(call)?.phase {
        CallPhase::Running { attempt, since } if attempt == expected => Some(since),
        _ => None,
    }
}
