//! A child conversation takes a call up, comes to its end, or is stopped.

use std::collections::BTreeMap;

use super::Rejection;
use super::draft::Draft;
use super::send::send;
use super::settle::{after, settle};
use super::tool_returned::finish_dispatch;
use crate::command::{self, Send};
use crate::event::{self, EventData, ToolResult};
use crate::ids::{CallId, ConversationId, TurnId};
use crate::message::Usage;
use crate::state::{Call, CallPhase};

/// The child's side: the parent's one message starts its first turn, however often it is sent.
pub(super) fn spawn(draft: &mut Draft, spawn: Send) -> Result<(), Rejection> {
    if !draft.state.exists() {
        return send(draft, spawn);
    }
    let parent = spawn.create.as_ref().and_then(|create| create.parent.as_deref());
    match draft.state.is_child_for(parent) {
        true if draft.state.abandoned => Err(Rejection::Stale),
        true => Ok(()),
        false => Err(Rejection::ConversationExists),
    }
}

/// The child has the call: nothing runs here until it ends.
pub(super) fn started(draft: &mut Draft, started: command::ChildStarted) -> Result<(), Rejection> {
    let command::ChildStarted { call: id, attempt, within_ms, ran } = started;
    let runs =
        |call: &Call| matches!(call.phase, CallPhase::Running { attempt: n, .. } if n == attempt);
    let call = draft.state.call(&id).filter(|call| runs(call));
    let run = draft.state.dispatches.get(&id);
    let run = run.filter(|run| run.attempt == attempt && run.delegated.is_none());
    let child = call.and_then(|call| call.child.clone()).or_else(|| run?.child.clone());
    let taken_up = event::ChildStarted {
        call_id: id.clone(),
        conversation_id: child.ok_or(Rejection::Stale)?,
        attempt,
        expires_at: after(draft.at, within_ms),
        ran,
    };
    draft.push_for(&id, EventData::ChildStarted(taken_up));
    Ok(())
}

/// The child's answer is the call's result. It may come before the child is known to have started.
pub(super) fn ended(draft: &mut Draft, ended: command::ChildEnded) -> Result<(), Rejection> {
    let command::ChildEnded { call: id, child, outcome, ui, usage, storages } = ended;
    if let Some(run) = draft.state.dispatches.get(&id).cloned() {
        if run.child.as_ref() != Some(&child) {
            return Err(Rejection::Stale);
        }
        gone(draft, &id, child, usage, storages);
        finish_dispatch(draft, id, run, outcome, ui, None);
        return Ok(());
    }
    let open = |call: &&Call| {
        matches!(call.phase, CallPhase::Running { .. } | CallPhase::Delegated { .. })
            && call.child.as_ref() == Some(&child)
    };
    draft.state.call(&id).filter(open).ok_or(Rejection::Stale)?;
    gone(draft, &id, child, usage, storages);
    draft.push(EventData::ToolResult(ToolResult { call_id: id, outcome, ui, ran: None }));
    settle(draft);
    Ok(())
}

/// From here on there is no child to care for.
pub(super) fn gone(
    draft: &mut Draft,
    call: &CallId,
    child: ConversationId,
    usage: Usage,
    storages: BTreeMap<String, String>,
) {
    let (call_id, conversation_id) = (call.clone(), child);
    let ended = event::ChildEnded { call_id, conversation_id, usage, storages };
    draft.push_for(call, EventData::ChildEnded(ended));
}

/// A child that nobody waited for has been stopped.
pub(super) fn released(
    draft: &mut Draft,
    child: ConversationId,
    usage: Usage,
) -> Result<(), Rejection> {
    if !draft.state.orphans.contains_key(&child) {
        return Err(Rejection::Stale);
    }
    let released = event::ChildReleased { conversation_id: child, usage };
    draft.push_of(None, EventData::ChildReleased(released));
    Ok(())
}

/// The child's side: its parent has heard.
pub(super) fn told(draft: &mut Draft, turn_id: TurnId) -> Result<(), Rejection> {
    if draft.state.due.as_ref().is_none_or(|due| due.turn != turn_id) {
        return Err(Rejection::Stale);
    }
    draft.push_of(None, EventData::Told(event::ParentNotified { turn_id }));
    Ok(())
}
