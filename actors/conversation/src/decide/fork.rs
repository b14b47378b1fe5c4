//! Copies a fork's prefix event by event. What was open at its end is cancelled here, and goes on
//! in the original.

use super::Rejection;
use super::close::finish_dispatch;
use super::draft::Draft;
use super::settle::end_turn;
use super::start::begin_turn;
use crate::command::{CopiedEvents, TurnSettings};
use crate::event::{EventData, ToolCall, TurnOutcome};
use crate::fork::Fork;
use crate::ids::CallId;
use crate::message::{ErrorType, Outcome};
use crate::state::CallPhase;

/// The reason of a turn that ended because it was open where the prefix ends.
const FORKED: &str = "forked";

pub(super) fn events_copied(draft: &mut Draft, copied: CopiedEvents) -> Result<(), Rejection> {
    let Some(fork) = draft.state.forking.clone() else { return Err(Rejection::Stale) };
    if copied.after != draft.state.seq {
        return Err(Rejection::Stale);
    }
    let cut_call = copied.events.last().and_then(|last| planned_call(&last.data).cloned());
    for event in copied.events {
        if event.seq != draft.state.seq.next() || event.seq > fork.at_seq {
            return Err(Rejection::Stale);
        }
        draft.push_copy(event);
    }
    if copied.is_last {
        let fork = Fork { at_seq: draft.state.seq, ..fork };
        plan_cut_off_calls(draft, cut_call.as_ref());
        end_open_work(draft);
        draft.push_in(None, EventData::Forked(fork));
    }
    Ok(())
}

/// The call of an event after which a planned call may have the phase of one that was not planned.
fn planned_call(data: &EventData) -> Option<&CallId> {
    match data {
        EventData::ToolCall(planned) => Some(&planned.call_id),
        EventData::Resolution(resolution) => Some(&resolution.call_id),
        EventData::DecisionRemembered(remembered) => Some(&remembered.call_id),
        _ => None,
    }
}

/// Plans the calls of a message whose plans are in the same commit, behind the end of the prefix:
/// no result is without its call. They never reached a gate, and run nowhere.
fn plan_cut_off_calls(draft: &mut Draft, cut_call: Option<&CallId>) {
    for call in draft.open_calls() {
        let is_planned = Some(&call.id) == cut_call || call.timeout_ms > 0 || call.gate.is_some();
        if is_planned || call.phase != CallPhase::Requested {
            continue;
        }
        draft.push(EventData::ToolCall(ToolCall {
            call_id: call.id,
            tool: call.tool,
            args: call.args,
            kind: call.kind,
            intent: call.intent,
            started: false,
            message: String::new(),
            timeout_ms: 0,
            gate: None,
            answer_schema: None,
            waiting_rules: None,
        }));
    }
}

/// Cancels the open turn, the queued turns and the dispatches.
fn end_open_work(draft: &mut Draft) {
    if draft.state.turn.is_some() {
        end_turn(draft, TurnOutcome::Cancelled, Some(FORKED.to_owned()));
    }
    while let (Some(queued), Some(agent)) = (draft.state.queue.front(), &draft.state.agent) {
        let turn = queued.id.clone();
        let settings = TurnSettings::without_steps(agent.clone());
        begin_turn(draft, turn, settings);
        end_turn(draft, TurnOutcome::Cancelled, Some(FORKED.to_owned()));
    }
    for (call, run) in draft.state.dispatches.clone() {
        let outcome = Outcome::Err("[cancelled]".to_owned(), ErrorType::Cancelled);
        finish_dispatch(draft, call, run, outcome, None, None);
    }
}
