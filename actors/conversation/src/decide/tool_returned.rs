//! A tool returned.

use super::Rejection;
use super::child::gone;
use super::draft::Draft;
use super::settle::{end, settle};
use crate::command::{Change, ToolReturned};
use crate::event::{Data, Dispatch, Ending, PhaseChanged, TodosChanged, ToolResult};
use crate::ids::CallId;
use crate::message::{Outcome, Ui};
use crate::state::{Phase, RunningDispatch};

pub(super) fn tool_returned(draft: &mut Draft, returned: ToolReturned) -> Result<(), Rejection> {
    if draft.state.dispatches.contains_key(&returned.call) {
        return dispatched(draft, returned);
    }
    let call = draft.state.call(&returned.call).ok_or(Rejection::Stale)?;
    match &call.phase {
        Phase::Running { attempt, .. } if *attempt == returned.attempt => {}
        Phase::Requested
        | Phase::Suspended(_)
        | Phase::Approved
        | Phase::Running { .. }
        | Phase::Delegated { .. }
        | Phase::Done => return Err(Rejection::Stale),
    }
    let child = call.child.clone();
    let ToolReturned { call: call_id, attempt, outcome, ui, halt, changes } = returned;
    if let Some(child) = child.filter(|_| never_began(attempt)) {
        gone(draft, &call_id, child, Default::default(), Default::default());
    }
    apply(draft, &call_id, changes);
    draft.push(Data::ToolResult(ToolResult { call_id, outcome, ui }));
    match halt {
        Some(reason) => end(draft, Ending::Halted, Some(reason)),
        None => settle(draft),
    }
    Ok(())
}

fn dispatched(draft: &mut Draft, returned: ToolReturned) -> Result<(), Rejection> {
    let ToolReturned { call, attempt, outcome, ui, changes, .. } = returned;
    let run = draft.state.dispatches.get(&call);
    let run = run.filter(|run| run.attempt == attempt && run.delegated.is_none());
    let run = run.cloned().ok_or(Rejection::Stale)?;
    if let Some(child) = run.child.clone().filter(|_| never_began(attempt)) {
        gone(draft, &call, child, Default::default(), Default::default());
    }
    apply(draft, &call, changes);
    finish_dispatch(draft, call, run, outcome, ui);
    Ok(())
}

/// Whether the call's child is surely not there, since asking for it failed. An earlier attempt may
/// have begun it, and died before it could say so.
fn never_began(attempt: u32) -> bool {
    attempt == 1
}

/// Journals the result of a user's own call.
pub(super) fn finish_dispatch(
    draft: &mut Draft,
    call_id: CallId,
    run: RunningDispatch,
    result: Outcome,
    ui: Option<Ui>,
) {
    let RunningDispatch { tool, input, principal, .. } = run;
    let done = Dispatch { call_id, tool, input, principal, result, ui, gate: None };
    draft.push_of(None, Data::Dispatch(done));
}

/// Journals what the tool changed, right before its result.
fn apply(draft: &mut Draft, call: &CallId, changes: Vec<Change>) {
    for change in changes {
        let call_id = call.clone();
        let changed = match change {
            Change::Todos(todos) => Data::TodosChanged(TodosChanged { call_id, todos }),
            Change::Phase { phase, planning } => {
                Data::PhaseChanged(PhaseChanged { call_id, phase, planning })
            }
        };
        draft.push_for(call, changed);
    }
}
