//! A tool returned.

use super::Rejection;
use super::draft::Draft;
use super::settle::{end, settle};
use crate::command::ToolReturned;
use crate::event::{Data, Dispatch, Ending, ToolResult};
use crate::state::Phase;

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
        | Phase::Done => return Err(Rejection::Stale),
    }
    let ToolReturned { call: call_id, outcome, ui, halt, .. } = returned;
    draft.push(Data::ToolResult(ToolResult { call_id, outcome, ui }));
    match halt {
        Some(reason) => end(draft, Ending::Halted, Some(reason)),
        None => settle(draft),
    }
    Ok(())
}

fn dispatched(draft: &mut Draft, returned: ToolReturned) -> Result<(), Rejection> {
    let ToolReturned { call, attempt, outcome, ui, .. } = returned;
    let run = draft.state.dispatches.get(&call).filter(|run| run.attempt == attempt);
    let run = run.cloned().ok_or(Rejection::Stale)?;
    draft.push_of(
        None,
        Data::Dispatch(Dispatch {
            call_id: call,
            tool: run.tool,
            input: run.input,
            principal: run.principal,
            result: outcome,
            ui,
        }),
    );
    Ok(())
}
