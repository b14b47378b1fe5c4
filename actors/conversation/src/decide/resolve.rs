//! Resolves a suspension with an answer. At most one of answer, expiry and cancel closes it.

use super::Rejection;
use super::attempt_failed::retry_call;
use super::decisions::remember;
use super::draft::Draft;
use super::model_replied::wait_for_executor;
use super::settle::{end_turn, settle};
use super::vote::{self, Count};
use super::waiting_calls;
use crate::command::{RememberDecision, ResolutionAnswer, Resolve};
use crate::elicitation::InputAnswer;
use crate::event::{EventData, Executor, Resolution, SuspensionKind, ToolStarted, TurnOutcome};
use crate::ids::CallId;
use crate::message::{ErrorType, Outcome};
use crate::permission::Decision;
use crate::state::{Call, EditedArgs, OpenSuspension, State};
use crate::{CallArgs, Timestamp};

/// Whether the answer would be taken now, whatever follows from it.
pub fn check_resolution(state: &State, at: Timestamp, resolve: &Resolve) -> Result<(), Rejection> {
    if !state.exists() {
        return Err(Rejection::NotFound);
    }
    if state.forking.is_some() {
        return Err(Rejection::Forking);
    }
    let (call, open) = matching_suspension(state, at, resolve)?;
    vote::count(state, at, (call, open), resolve).map(drop)
}

pub(super) fn resolve(draft: &mut Draft, resolve: Resolve) -> Result<(), Rejection> {
    let (call, open) = matching_suspension(&draft.state, draft.at, &resolve)?;
    let count = vote::count(&draft.state, draft.at, (call, open), &resolve)?;
    let resolution = undecided(&resolve, open);
    let id = resolve.call;
    let tool = call.tool.clone();
    let by = resolution.by.clone();
    let is_input = call.pending_input.is_some() && open.kind != SuspensionKind::InDoubt;
    let edited = call.edited_args().cloned();
    let (voters, extent) = match count {
        Count::Open(voted) => {
            draft.push(EventData::Voted(*voted));
            return Ok(());
        }
        Count::Decided { voters, extent } => (voters, extent),
    };
    let remembered = resolve.remember.zip(extent);
    let remembered = remembered.map(|(decision, extent)| RememberDecision { extent, ..decision });
    let fingerprint = resolve.args_fingerprint;
    let decision = remembered.as_ref().map(|decision| decision.id.clone());
    let (decided, identity) = (id.clone(), resolution.identity.clone());
    let remember_decision = |draft: &mut Draft, approved, voters| {
        if let Some(decision) = remembered {
            remember(draft, &decided, (approved, fingerprint), (by, voters), decision);
        }
    };
    match resolve.answer {
        ResolutionAnswer::Approval { approved: true, reason, args } => {
            let (args, verdict) = match (args, edited) {
                (None, Some(EditedArgs { args, verdict })) => (Some(args), verdict),
                (args, _) => (args.map(CallArgs::from), resolve.verdict),
            };
            let (approvals, of_edit) = (voters.clone(), verdict.clone());
            let resolution = Resolution { reason, args, verdict: of_edit, approvals, ..resolution };
            draft.push(EventData::Resolution(Resolution { approved: Some(true), ..resolution }));
            match verdict.filter(|verdict| verdict.decision == Decision::Deny) {
                Some(refused) => draft.push_result(id, refused.to_error(&tool)),
                None => {
                    remember_decision(draft, true, voters);
                    start_tool(draft, &id);
                }
            }
        }
        ResolutionAnswer::Approval { approved: false, reason, .. } => {
            let because = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            let resolution = Resolution { approved: Some(false), reason, ..resolution };
            draft.push(EventData::Resolution(resolution));
            remember_decision(draft, false, voters);
            draft.push_error(id, format!("denied by approver{because}"), ErrorType::Denied);
        }
        ResolutionAnswer::Retry => {
            draft.push(EventData::Resolution(Resolution { retry: true, ..resolution }));
            if let Some(call) = draft.state.call(&id).cloned() {
                retry_call(draft, call);
            }
        }
        ResolutionAnswer::Result(value) if is_input => {
            resume_with(draft, resolution, InputAnswer::Result(value));
        }
        ResolutionAnswer::Error(error) if is_input => {
            resume_with(draft, resolution, InputAnswer::Error(error));
        }
        ResolutionAnswer::Result(value) => {
            draft.push(EventData::Resolution(resolution));
            draft.push_result(id, Outcome::Ok(value));
        }
        ResolutionAnswer::Error(error) => {
            draft.push(EventData::Resolution(resolution));
            draft.push_error(id, error, ErrorType::ToolError);
        }
    }
    if let Some(decision) = decision {
        waiting_calls::answer(draft, &decided, &decision, identity.as_ref());
    }
    match resolve.halt {
        Some(reason) => end_turn(draft, TurnOutcome::Halted, Some(reason)),
        None => settle(draft),
    }
    Ok(())
}

/// The resolution of this suspension, before it is known what the answer means.
fn undecided(resolve: &Resolve, open: &OpenSuspension) -> Resolution {
    Resolution {
        call_id: resolve.call.clone(),
        kind: open.kind,
        suspension: open.suspension,
        by: resolve.by.clone(),
        identity: resolve.identity.clone(),
        approved: None,
        reason: None,
        args: None,
        verdict: None,
        input: None,
        approvals: Vec::new(),
        retry: false,
    }
}

/// Lets a call that asked for input go on with it.
fn resume_with(draft: &mut Draft, resolution: Resolution, input: InputAnswer) {
    let id = resolution.call_id.clone();
    draft.push(EventData::Resolution(Resolution { input: Some(input), ..resolution }));
    start_tool(draft, &id);
}

/// The open suspension that the answer is for, if the answer's form fits it.
fn matching_suspension<'a>(
    state: &'a State,
    at: Timestamp,
    resolve: &Resolve,
) -> Result<(&'a Call, &'a OpenSuspension), Rejection> {
    let call =
        state.call(&resolve.call).ok_or(Rejection::CallNotOpen("no such open call".into()))?;
    let open =
        call.open_suspension().ok_or(Rejection::CallNotOpen("the call is not suspended".into()))?;
    if resolve.suspension.is_some_and(|number| number != open.suspension) {
        return Err(Rejection::CallNotOpen("that suspension of the call is closed".into()));
    }
    if at >= open.expires_at {
        return Err(Rejection::CallNotOpen("the suspension has expired".into()));
    }
    let fits = match resolve.answer {
        ResolutionAnswer::Approval { .. } => open.kind == SuspensionKind::Approval,
        ResolutionAnswer::Result(_) | ResolutionAnswer::Error(_) => {
            open.kind != SuspensionKind::Approval
        }
        ResolutionAnswer::Retry => open.kind == SuspensionKind::InDoubt,
    };
    if !fits {
        return Err(Rejection::CallNotOpen(
            "the answer does not fit the kind of the suspension".into(),
        ));
    }
    Ok((call, open))
}

/// Hands an approved or answered call to its executor: a server call runs, a client call waits for
/// a page.
pub(super) fn start_tool(draft: &mut Draft, id: &CallId) {
    let Some(call) = draft.state.call(id) else { return };
    let started = ToolStarted {
        call_id: id.clone(),
        tool: call.tool.clone(),
        executor: call.kind.executor(),
        intent: call.intent,
        args: call.args.clone(),
        attempt: call.next_attempt(),
    };
    let executor = call.kind.executor();
    let answer_schema = call.answer_schema.clone();
    draft.push(EventData::ToolStarted(started));
    if executor != Executor::Server {
        wait_for_executor(draft, id, answer_schema);
    }
}
