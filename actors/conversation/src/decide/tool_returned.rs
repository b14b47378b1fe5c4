//! An attempt of a tool returned: a result, or a request for input.

use super::Rejection;
use super::close::{end_child, finish_dispatch};
use super::draft::Draft;
use super::key_values::{change_by_tool, changes_by_tool};
use super::model_replied::suspend;
use super::settle::{end_turn, settle};
use crate::AnswerSchema;
use crate::command::{StateChange, ToolReturned};
use crate::event::{
    EventData, InputRequired, PhaseChanged, SuspensionKind, TodosChanged, ToolResult, TurnOutcome,
};
use crate::ids::CallId;
use crate::message::{ErrorType, Outcome};
use crate::numbers::Attempt;
use crate::state::{CallPhase, RunningDispatch};

/// A tool that asked for input for ever would never let its turn end.
const MAX_SUSPENSIONS_PER_CALL: u32 = 10;
const TOO_OFTEN: &str = "the tool asked too often";
const CANNOT_ASK: &str = "the tool asks for input, which a dispatched call cannot give";

pub(super) fn tool_returned(draft: &mut Draft, returned: ToolReturned) -> Result<(), Rejection> {
    if draft.state.dispatches.contains_key(&returned.call) {
        return dispatch_returned(draft, returned);
    }
    let call = draft.state.call(&returned.call).ok_or(Rejection::Stale)?;
    match &call.phase {
        CallPhase::Running { attempt, .. } if *attempt == returned.attempt => {}
        CallPhase::Requested
        | CallPhase::Suspended(_)
        | CallPhase::Approved
        | CallPhase::Running { .. }
        | CallPhase::AwaitingRetry { .. }
        | CallPhase::Delegated { .. }
        | CallPhase::External(_)
        | CallPhase::Done => return Err(Rejection::Stale),
    }
    let child = call.kind.child().cloned();
    let suspensions = call.suspensions;
    let ToolReturned {
        call: call_id,
        attempt,
        outcome,
        ui,
        halt,
        changes,
        input_request,
        effective_args,
    } = returned;
    if let Some(request) = input_request {
        if suspensions < MAX_SUSPENSIONS_PER_CALL {
            let required = InputRequired { call_id, attempt, request, effective_args };
            suspend_for_input(draft, required);
        } else {
            let outcome = Outcome::Err(TOO_OFTEN.to_owned(), ErrorType::ToolError);
            let result = ToolResult { call_id, outcome, ui: None, effective_args };
            draft.push(EventData::ToolResult(result));
            settle(draft);
        }
        return Ok(());
    }
    if let Some(child) = child.filter(|_| never_began(attempt)) {
        end_child(draft, &call_id, child, Default::default(), Default::default());
    }
    let outcome = push_changes(draft, &call_id, changes, outcome);
    draft.push(EventData::ToolResult(ToolResult { call_id, outcome, ui, effective_args }));
    match halt {
        Some(reason) => end_turn(draft, TurnOutcome::Halted, Some(reason)),
        None => settle(draft),
    }
    Ok(())
}

/// Suspends the call until a person answers; the next attempt gets the answer.
fn suspend_for_input(draft: &mut Draft, required: InputRequired) {
    let call_id = required.call_id.clone();
    let message = required.request.message.clone();
    let answer_schema = required.request.answer_schema().as_ref().map(AnswerSchema::from);
    draft.push(EventData::InputRequired(required));
    suspend(draft, &call_id, SuspensionKind::Elicitation, message, answer_schema);
}

fn dispatch_returned(draft: &mut Draft, returned: ToolReturned) -> Result<(), Rejection> {
    let ToolReturned { call, attempt, outcome, ui, changes, input_request, effective_args, .. } =
        returned;
    let is_running = |run: &&RunningDispatch| run.attempt == attempt && run.deadline().is_none();
    let running = draft.state.dispatches.get(&call).filter(is_running);
    let run = running.cloned().ok_or(Rejection::Stale)?;
    if let Some(child) = run.child.clone().filter(|_| never_began(attempt)) {
        end_child(draft, &call, child, Default::default(), Default::default());
    }
    let outcome = push_changes(draft, &call, changes, outcome);
    // The caller waits for the result, so nobody can be asked.
    let outcome = match input_request {
        Some(_) => Outcome::Err(CANNOT_ASK.to_owned(), ErrorType::ToolError),
        None => outcome,
    };
    finish_dispatch(draft, call, run, outcome, ui, effective_args);
    Ok(())
}

/// Whether it is certain that a call's child was never created, given that the attempt to ask it
/// failed. An earlier attempt may have created it and died before it could report that.
fn never_began(attempt: Attempt) -> bool {
    attempt == Attempt::FIRST
}

/// Journals the tool's changes, right before its result. A change that is refused makes an error of
/// the result: a result that says it was noted would be wrong.
fn push_changes(
    draft: &mut Draft,
    call: &CallId,
    changes: Vec<StateChange>,
    mut outcome: Outcome,
) -> Outcome {
    for change in changes {
        let call_id = call.clone();
        let changed = match change {
            StateChange::KeyValues(changes) => {
                match changes_by_tool(draft, changes) {
                    Ok(changes) => change_by_tool(draft, call, changes),
                    Err(refusal) => {
                        let error = format!("in the tool's answer state: {refusal}");
                        outcome = Outcome::Err(error, ErrorType::ToolError);
                    }
                }
                continue;
            }
            StateChange::Todos(todos) => EventData::TodosChanged(TodosChanged { call_id, todos }),
            StateChange::Phase { phase, planning } => {
                EventData::PhaseChanged(PhaseChanged { call_id, phase, planning })
            }
        };
        draft.push_for(call, changed);
    }
    outcome
}
