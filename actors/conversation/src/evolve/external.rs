//! Folds the events of calls that programs outside carry out.

use super::with_call;
use crate::event::{CallbackAwaited, Event, ToolLeased, ToolQueued};
use crate::state::{CallPhase, ExternalRun, State};

pub(super) fn queue(state: &mut State, event: &Event, queued: &ToolQueued) {
    let run = ExternalRun::queued(event.at, queued);
    with_call(state, &queued.call_id, |call| call.phase = CallPhase::External(Box::new(run)));
}

pub(super) fn lease(state: &mut State, leased: &ToolLeased) {
    with_call(state, &leased.call_id, |call| {
        if let CallPhase::External(run) = &mut call.phase {
            run.lease_to(leased);
        }
    });
}

pub(super) fn await_callback(state: &mut State, event: &Event, awaited: &CallbackAwaited) {
    let run = ExternalRun::awaiting(event.at, awaited);
    with_call(state, &awaited.call_id, |call| call.phase = CallPhase::External(Box::new(run)));
}
