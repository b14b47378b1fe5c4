//! Child conversations: spawned, started, ended, stopped, reported.

use super::Rejection;
use super::close::{end_child, finish_dispatch};
use super::draft::Draft;
use super::send::send;
use super::settle::{add_millis, settle};
use crate::command::{self, Send};
use crate::event::{self, EventData, ToolResult};
use crate::ids::{ConversationId, TurnId};
use crate::state::{Call, CallPhase};
use crate::usage::Usage;

/// Runs in the child. The parent's message starts the first turn once, even if it arrives again.
pub(super) fn spawn(draft: &mut Draft, spawn: Send) -> Result<(), Rejection> {
    if !draft.state.exists() {
        return send(draft, spawn);
    }
    let parent = spawn.create.as_ref().and_then(|create| create.parent.as_deref());
    if !draft.state.is_child_for(parent) {
        Err(Rejection::ConversationExists)
    } else if draft.state.abandoned {
        Err(Rejection::Stale)
    } else {
        Ok(())
    }
}

/// The child accepted the call. This conversation runs nothing for the call until the child ends.
pub(super) fn child_started(
    draft: &mut Draft,
    started: command::ChildStarted,
) -> Result<(), Rejection> {
    let command::ChildStarted { call: id, attempt, within_ms, effective_args: ran } = started;
    let call = draft
        .state
        .call(&id)
        .filter(|call| matches!(call.phase, CallPhase::Running { attempt: n, .. } if n == attempt));
    let dispatch = draft
        .state
        .dispatches
        .get(&id)
        .filter(|run| run.attempt == attempt && run.delegated_until.is_none());
    let child =
        call.and_then(|call| call.kind.child().cloned()).or_else(|| dispatch?.child.clone());
    let started = event::ChildStarted {
        call_id: id.clone(),
        conversation_id: child.ok_or(Rejection::Stale)?,
        attempt,
        expires_at: add_millis(draft.at, within_ms),
        effective_args: ran,
    };
    draft.push_for(&id, EventData::ChildStarted(started));
    Ok(())
}

/// The child's outcome is the call's result. It may arrive before the report that the child
/// started.
pub(super) fn child_ended(draft: &mut Draft, ended: command::ChildEnded) -> Result<(), Rejection> {
    let command::ChildEnded { call: id, child, outcome, ui, usage, storages } = ended;
    if let Some(run) = draft.state.dispatches.get(&id).cloned() {
        if run.child.as_ref() != Some(&child) {
            return Err(Rejection::Stale);
        }
        end_child(draft, &id, child, usage, storages);
        finish_dispatch(draft, id, run, outcome, ui, None);
        return Ok(());
    }
    let has_begun = |call: &&Call| {
        matches!(call.phase, CallPhase::Running { .. } | CallPhase::Delegated { .. })
            && call.kind.child() == Some(&child)
    };
    draft.state.call(&id).filter(has_begun).ok_or(Rejection::Stale)?;
    end_child(draft, &id, child, usage, storages);
    draft.push(EventData::ToolResult(ToolResult {
        call_id: id,
        outcome,
        ui,
        effective_args: None,
    }));
    settle(draft);
    Ok(())
}

/// An orphaned child has stopped.
pub(super) fn child_released(
    draft: &mut Draft,
    child: ConversationId,
    usage: Usage,
) -> Result<(), Rejection> {
    if !draft.state.orphans.contains_key(&child) {
        return Err(Rejection::Stale);
    }
    let released = event::ChildReleased { conversation_id: child, usage };
    draft.push_in(None, EventData::ChildReleased(released));
    Ok(())
}

/// Runs in the child: the parent has received its report.
pub(super) fn parent_notified(draft: &mut Draft, turn_id: TurnId) -> Result<(), Rejection> {
    if draft.state.owed_report.as_ref().is_none_or(|owed| owed.turn != turn_id) {
        return Err(Rejection::Stale);
    }
    draft.push_in(None, EventData::ParentNotified(event::ParentNotified { turn_id }));
    Ok(())
}
