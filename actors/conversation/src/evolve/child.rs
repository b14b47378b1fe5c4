//! Folds the events of child conversations into the parent's state.

use super::{context, with_call};
use crate::event::{ChildEnded, ChildReleased, ChildStarted, Event};
use crate::state::{CallPhase, State};

pub(super) fn start(state: &mut State, event: &Event, started: &ChildStarted) {
    let attempt = started.attempt;
    let expires_at = started.expires_at;
    with_call(state, &started.call_id, |call| {
        call.phase = CallPhase::Delegated { attempt, since: event.at, expires_at };
    });
    if let Some(run) = state.dispatches.get_mut(&started.call_id) {
        run.delegated_until = Some(expires_at);
    }
}

pub(super) fn end(state: &mut State, event: &Event, ended: &ChildEnded) {
    match event.turn_id {
        Some(_) => context::add_usage(state, ended.usage),
        None => state.usage += ended.usage,
    }
    for (root, storage) in &ended.storages {
        state.storages.entry(root.clone()).or_insert_with(|| storage.clone());
    }
    with_call(state, &ended.call_id, |call| drop(call.kind.take_child()));
    if let Some(run) = state.dispatches.get_mut(&ended.call_id) {
        run.child = None;
    }
}

/// The usage counts for the turn that asked the child, if that turn is still open.
pub(super) fn release(state: &mut State, released: &ChildReleased) {
    let call = state.orphans.remove(&released.conversation_id);
    if call.is_some_and(|call| state.call(&call).is_some()) {
        context::add_usage(state, released.usage);
    } else {
        state.usage += released.usage;
    }
}
