//! Revives a conversation whose actor died: running calls run again, end as interrupted, or wait for
//! a person who says what becomes of them.

use super::attempt_failed::{retry_call, retry_dispatch};
use super::draft::Draft;
use super::model_replied::wait_for_executor;
use super::resolve::start_tool;
use super::settle::{add_millis, settle};
use crate::event::{
    DispatchFinished, DispatchStarted, Doubt, DoubtReason, EventData, Executor, OnInterrupt,
    Suspension, SuspensionKind, ToolStarted,
};
use crate::ids::CallId;
use crate::message::{ErrorType, Outcome};
use crate::numbers::Attempt;
use crate::state::{Call, CallPhase, RunningDispatch};

const INTERRUPTED: &str = "tool call interrupted";

/// `node` is where the calls ran, as far as that is known.
pub(super) fn revive(draft: &mut Draft, node: Option<&str>) {
    for call in draft.open_calls() {
        match call.phase {
            CallPhase::Approved => start_tool(draft, &call.id),
            CallPhase::Running { attempt, since } => {
                let reason = DoubtReason::Interrupted;
                let node = node.map(str::to_owned);
                run_again(draft, call, Doubt { attempt, started_at: since, node, reason });
            }
            CallPhase::AwaitingRetry { retry_at, .. } if retry_at <= draft.at => {
                retry_call(draft, call);
            }
            CallPhase::Requested => draft.push_error(call.id, INTERRUPTED, ErrorType::Interrupted),
            // A program outside carries on by itself.
            CallPhase::External(_) => {}
            CallPhase::AwaitingRetry { .. }
            | CallPhase::Suspended(_)
            | CallPhase::Delegated { .. }
            | CallPhase::Done => {}
        }
    }
    for (id, run) in draft.state.dispatches.clone() {
        match (run.delegated_until, run.retry_at) {
            // The child carries on by itself.
            (Some(_), _) => {}
            (None, Some(at)) if at <= draft.at => retry_dispatch(draft, id, run),
            (None, Some(_)) => {}
            (None, None) => dispatch_again(draft, id, run),
        }
    }
    settle(draft);
}

fn run_again(draft: &mut Draft, call: Call, doubt: Doubt) {
    if call.kind.executor() != Executor::Server {
        return wait_for_executor(draft, &call.id, call.answer_schema.clone());
    }
    if call.kind.asks_when_in_doubt() {
        return suspend_in_doubt(draft, &call.id, doubt);
    }
    if call.kind.runs_once() {
        return draft.push_error(call.id, INTERRUPTED, ErrorType::Interrupted);
    }
    run_once_more(draft, call, doubt.attempt);
}

/// Begins the attempt after this one.
pub(super) fn run_once_more(draft: &mut Draft, call: Call, attempt: Attempt) {
    draft.push(EventData::ToolStarted(ToolStarted {
        call_id: call.id,
        tool: call.tool,
        executor: call.kind.executor(),
        intent: call.intent,
        args: call.args,
        attempt: attempt.next(),
    }));
}

/// Suspends a call of which nobody knows whether it ran, until somebody says what becomes of it.
pub(super) fn suspend_in_doubt(draft: &mut Draft, id: &CallId, doubt: Doubt) {
    let Some(call) = draft.state.call(id) else { return };
    let message = format!(
        "Did {} run? Attempt {} was cut off, and its end is unknown.",
        call.tool, doubt.attempt
    );
    let expires_at = add_millis(draft.at, call.timeout_ms);
    let suspension = call.next_suspension(SuspensionKind::InDoubt, message, expires_at);
    let policy = call.kind.answerers().cloned();
    let suspension = Suspension { policy, doubt: Some(doubt), ..suspension };
    draft.push(EventData::Suspension(suspension));
}

fn dispatch_again(draft: &mut Draft, call_id: CallId, run: RunningDispatch) {
    match run.on_interrupt {
        OnInterrupt::Fail | OnInterrupt::Ask if run.child.is_none() => {
            let RunningDispatch { tool, input, principal, .. } = run;
            let result = Outcome::Err(INTERRUPTED.to_owned(), ErrorType::Interrupted);
            let finished = DispatchFinished {
                call_id,
                tool,
                input,
                principal,
                result,
                ui: None,
                verdict: None,
                effective_args: None,
            };
            draft.push_in(None, EventData::DispatchFinished(finished));
        }
        OnInterrupt::Fail | OnInterrupt::Ask | OnInterrupt::Redispatch => {
            dispatch_once_more(draft, call_id, run);
        }
    }
}

/// Begins the next attempt of a dispatch.
pub(super) fn dispatch_once_more(draft: &mut Draft, call_id: CallId, run: RunningDispatch) {
    let RunningDispatch {
        tool, input, principal, identity, revision, attempt, on_interrupt, ..
    } = run;
    let started = DispatchStarted {
        call_id,
        tool,
        input,
        principal,
        identity,
        revision,
        attempt: attempt.next(),
        on_interrupt,
        requests: run.requests,
        verdict: run.verdict,
        child: run.child,
    };
    draft.push_in(None, EventData::DispatchStarted(started));
}
