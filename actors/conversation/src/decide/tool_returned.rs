//! A tool returned.

use super::Rejection;
use super::child::gone;
use super::draft::Draft;
use super::model_replied::suspend;
use super::settle::{end, settle};
use crate::command::{StateChange, ToolReturned};
use crate::event::{
    DispatchFinished, EffectiveArgs, EventData, InputRequired, PhaseChanged, SuspensionKind,
    TodosChanged, ToolResult, TurnOutcome,
};
use crate::ids::CallId;
use crate::message::{ErrorType, Outcome, Ui};
use crate::state::{CallPhase, RunningDispatch};

/// How often one call may be suspended. A tool that asks for ever would never end its turn.
const ROUNDS: u32 = 10;
const TOO_OFTEN: &str = "the tool asked too often";
const CANNOT_ASK: &str = "the tool asks for input, which a dispatched call cannot give";

pub(super) fn tool_returned(draft: &mut Draft, returned: ToolReturned) -> Result<(), Rejection> {
    if draft.state.dispatches.contains_key(&returned.call) {
        return dispatched(draft, returned);
    }
    let call = draft.state.call(&returned.call).ok_or(Rejection::Stale)?;
    match &call.phase {
        CallPhase::Running { attempt, .. } if *attempt == returned.attempt => {}
        CallPhase::Requested
        | CallPhase::Suspended(_)
        | CallPhase::Approved
        | CallPhase::Running { .. }
        | CallPhase::Delegated { .. }
        | CallPhase::Done => return Err(Rejection::Stale),
    }
    let (child, rounds) = (call.child.clone(), call.suspensions);
    let ToolReturned { call: call_id, attempt, outcome, ui, halt, changes, asks, ran } = returned;
    if let Some(asks) = asks {
        match rounds < ROUNDS {
            true => ask(draft, InputRequired { call_id, attempt, asks, ran }),
            false => {
                let outcome = Outcome::Err(TOO_OFTEN.to_owned(), ErrorType::ToolError);
                draft.push(EventData::ToolResult(ToolResult { call_id, outcome, ui: None, ran }));
                settle(draft);
            }
        }
        return Ok(());
    }
    if let Some(child) = child.filter(|_| never_began(attempt)) {
        gone(draft, &call_id, child, Default::default(), Default::default());
    }
    apply(draft, &call_id, changes);
    draft.push(EventData::ToolResult(ToolResult { call_id, outcome, ui, ran }));
    match halt {
        Some(reason) => end(draft, TurnOutcome::Halted, Some(reason)),
        None => settle(draft),
    }
    Ok(())
}

/// The call waits for a person, and goes on with the answer.
fn ask(draft: &mut Draft, required: InputRequired) {
    let (call_id, message) = (required.call_id.clone(), required.asks.message.clone());
    draft.push(EventData::InputRequired(required));
    suspend(draft, &call_id, SuspensionKind::Elicitation, message);
}

fn dispatched(draft: &mut Draft, returned: ToolReturned) -> Result<(), Rejection> {
    let ToolReturned { call, attempt, outcome, ui, changes, asks, ran, .. } = returned;
    let run = draft.state.dispatches.get(&call);
    let run = run.filter(|run| run.attempt == attempt && run.delegated.is_none());
    let run = run.cloned().ok_or(Rejection::Stale)?;
    if let Some(child) = run.child.clone().filter(|_| never_began(attempt)) {
        gone(draft, &call, child, Default::default(), Default::default());
    }
    apply(draft, &call, changes);
    // Nobody is there to be asked: the caller waits for the result.
    let outcome = match asks {
        Some(_) => Outcome::Err(CANNOT_ASK.to_owned(), ErrorType::ToolError),
        None => outcome,
    };
    finish_dispatch(draft, call, run, outcome, ui, ran);
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
    ran: Option<EffectiveArgs>,
) {
    let RunningDispatch { tool, input, principal, .. } = run;
    let done = DispatchFinished { call_id, tool, input, principal, result, ui, gate: None, ran };
    draft.push_of(None, EventData::Dispatch(done));
}

/// Journals what the tool changed, right before its result.
fn apply(draft: &mut Draft, call: &CallId, changes: Vec<StateChange>) {
    for change in changes {
        let call_id = call.clone();
        let changed = match change {
            StateChange::Todos(todos) => EventData::TodosChanged(TodosChanged { call_id, todos }),
            StateChange::Phase { phase, planning } => {
                EventData::PhaseChanged(PhaseChanged { call_id, phase, planning })
            }
        };
        draft.push_for(call, changed);
    }
}
