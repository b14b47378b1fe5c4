//! Revives a conversation whose actor died: running calls run again or end as interrupted.

use super::draft::Draft;
use super::model_replied::wait_for_executor;
use super::resolve::start_tool;
use super::settle::settle;
use crate::event::{
    DispatchFinished, DispatchStarted, EventData, Executor, OnInterrupt, ToolStarted,
};
use crate::ids::CallId;
use crate::message::{ErrorType, Outcome};
use crate::numbers::Attempt;
use crate::state::{Call, CallPhase, RunningDispatch};

const INTERRUPTED: &str = "tool call interrupted";

pub(super) fn revive(draft: &mut Draft) {
    for call in draft.open_calls() {
        match call.phase {
            CallPhase::Approved => start_tool(draft, &call.id),
            CallPhase::Running { attempt, .. } => run_again(draft, call, attempt),
            CallPhase::Requested => draft.push_error(call.id, INTERRUPTED, ErrorType::Interrupted),
            CallPhase::Suspended(_) | CallPhase::Delegated { .. } | CallPhase::Done => {}
        }
    }
    for (id, run) in draft.state.dispatches.clone() {
        // The child carries on by itself.
        if run.delegated_until.is_some() {
            continue;
        }
        dispatch_again(draft, id, run);
    }
    settle(draft);
}

fn run_again(draft: &mut Draft, call: Call, attempt: Attempt) {
    if call.kind.executor() != Executor::Server {
        return wait_for_executor(draft, &call.id, call.answer_schema.clone());
    }
    if call.kind.runs_once() {
        return draft.push_error(call.id, INTERRUPTED, ErrorType::Interrupted);
    }
    draft.push(EventData::ToolStarted(ToolStarted {
        call_id: call.id,
        tool: call.tool,
        executor: call.kind.executor(),
        intent: call.intent,
        args: call.args,
        attempt: attempt.next(),
    }));
}

fn dispatch_again(draft: &mut Draft, call_id: CallId, run: RunningDispatch) {
    let RunningDispatch {
        tool, input, principal, identity, revision, attempt, on_interrupt, ..
    } = run;
    let data = match on_interrupt {
        OnInterrupt::Fail if run.child.is_none() => EventData::DispatchFinished(DispatchFinished {
            call_id,
            tool,
            input,
            principal,
            result: Outcome::Err(INTERRUPTED.to_owned(), ErrorType::Interrupted),
            ui: None,
            verdict: None,
            effective_args: None,
        }),
        OnInterrupt::Fail | OnInterrupt::Redispatch => {
            EventData::DispatchStarted(DispatchStarted {
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
            })
        }
    };
    draft.push_in(None, data);
}
