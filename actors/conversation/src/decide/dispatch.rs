//! A dispatch: a user's own call of a server tool, independent of any turn.

use super::Rejection;
use super::draft::Draft;
use crate::command::Dispatch;
use crate::event::{self, DispatchStarted, EventData, OnInterrupt};
use crate::numbers::Attempt;
use crate::permission::Decision;

/// A client that runs more dispatches at once is out of control.
pub(crate) const MAX_RUNNING_DISPATCHES: usize = 100;

pub(super) fn dispatch(draft: &mut Draft, dispatch: Dispatch) -> Result<(), Rejection> {
    let Dispatch { call, tool, input, principal, identity, revision, on_interrupt, .. } = dispatch;
    let Dispatch { requests, verdict, child, .. } = dispatch;
    // The caller is gone when a node dies, so nobody can be asked.
    let on_interrupt = match on_interrupt {
        OnInterrupt::Ask | OnInterrupt::Fail => OnInterrupt::Fail,
        OnInterrupt::Redispatch => OnInterrupt::Redispatch,
    };
    if draft.state.call(&call).is_some() || draft.state.dispatches.contains_key(&call) {
        return Err(Rejection::Stale);
    }
    if draft.state.dispatches.len() >= MAX_RUNNING_DISPATCHES {
        return Err(Rejection::QueueFull);
    }
    let data = match verdict.decision {
        Decision::Deny => EventData::DispatchFinished(event::DispatchFinished {
            call_id: call,
            result: verdict.to_error(&tool),
            tool,
            input,
            principal,
            ui: None,
            verdict: Some(verdict),
            effective_args: None,
        }),
        // A dispatch that needs an approval arrives with it.
        Decision::Allow | Decision::Ask => EventData::DispatchStarted(DispatchStarted {
            call_id: call,
            tool,
            input,
            principal,
            identity,
            revision,
            attempt: Attempt::FIRST,
            on_interrupt,
            requests,
            verdict: Some(verdict),
            child,
        }),
    };
    draft.push_in(None, data);
    Ok(())
}
