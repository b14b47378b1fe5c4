//! A user's own call of a server tool, beside whatever turn runs.

use super::Rejection;
use super::draft::Draft;
use crate::command::Dispatch;
use crate::event::{self, DispatchStarted, EventData};
use crate::permission::Decision;

/// How many of them may run at once. More is a client that has lost its way.
const RUNNING: usize = 100;

pub(super) fn dispatch(draft: &mut Draft, dispatch: Dispatch) -> Result<(), Rejection> {
    let Dispatch { call, tool, input, principal, revision, on_interrupt, requests, gate, child } =
        dispatch;
    if draft.state.call(&call).is_some() || draft.state.dispatches.contains_key(&call) {
        return Err(Rejection::Stale);
    }
    if draft.state.dispatches.len() >= RUNNING {
        return Err(Rejection::QueueFull);
    }
    let data = match gate.decision {
        Decision::Deny => EventData::Dispatch(event::DispatchFinished {
            call_id: call,
            result: gate.denial(&tool),
            tool,
            input,
            principal,
            ui: None,
            gate: Some(gate),
            ran: None,
        }),
        // One that a person must approve comes with the approval.
        Decision::Allow | Decision::Ask => EventData::DispatchStarted(DispatchStarted {
            call_id: call,
            tool,
            input,
            principal,
            revision,
            attempt: 1,
            on_interrupt,
            requests,
            gate: Some(gate),
            child,
        }),
    };
    draft.push_of(None, data);
    Ok(())
}
