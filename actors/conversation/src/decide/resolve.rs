//! Somebody answers a suspension. At most one of answer, expiry and cancel closes it.

use super::Rejection;
use super::draft::Draft;
use super::model_replied::wait_for_executor;
use super::remembered::remember;
use super::settle::{end, settle};
use crate::Timestamp;
use crate::command::{ResolutionAnswer, Resolve};
use crate::event::{EventData, Executor, Resolution, SuspensionKind, ToolStarted, TurnOutcome};
use crate::ids::CallId;
use crate::input;
use crate::message::{ErrorType, Outcome};
use crate::permission::Decision;
use crate::state::{Call, OpenSuspension, State};

pub(super) fn resolve(draft: &mut Draft, resolve: Resolve) -> Result<(), Rejection> {
    let (call, waiting) = open(&draft.state, draft.at, &resolve)?;
    let mut resolution = Resolution {
        call_id: resolve.call.clone(),
        kind: waiting.kind,
        suspension: waiting.suspension,
        by: resolve.by,
        approved: None,
        reason: None,
        args: None,
        gate: None,
        input: None,
    };
    let (id, tool, gate) = (resolve.call, call.tool.clone(), resolve.gate);
    let (by, wish, halt) = (resolution.by.clone(), resolve.remember, resolve.halt);
    let asked = call.input.is_some();
    match resolve.answer {
        ResolutionAnswer::Approval { approved: true, reason, args } => {
            (resolution.approved, resolution.reason, resolution.args) = (Some(true), reason, args);
            resolution.gate = gate.clone();
            draft.push(EventData::Resolution(resolution));
            match gate.filter(|verdict| verdict.decision == Decision::Deny) {
                Some(refused) => draft.result(id, refused.denial(&tool)),
                None => {
                    if let Some(wish) = wish {
                        remember(draft, &id, true, by, wish);
                    }
                    run(draft, &id);
                }
            }
        }
        ResolutionAnswer::Approval { approved: false, reason, .. } => {
            let said = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            (resolution.approved, resolution.reason) = (Some(false), reason);
            draft.push(EventData::Resolution(resolution));
            if let Some(wish) = wish {
                remember(draft, &id, false, by, wish);
            }
            draft.error(id, format!("denied by approver{said}"), ErrorType::Denied);
        }
        ResolutionAnswer::Result(value) if asked => {
            resolution.input = Some(input::InputAnswer::Result(value));
            draft.push(EventData::Resolution(resolution));
            run(draft, &id);
        }
        ResolutionAnswer::Error(error) if asked => {
            resolution.input = Some(input::InputAnswer::Error(error));
            draft.push(EventData::Resolution(resolution));
            run(draft, &id);
        }
        ResolutionAnswer::Result(value) => {
            draft.push(EventData::Resolution(resolution));
            draft.result(id, Outcome::Ok(value));
        }
        ResolutionAnswer::Error(error) => {
            draft.push(EventData::Resolution(resolution));
            draft.error(id, error, ErrorType::ToolError);
        }
    }
    match halt {
        Some(reason) => end(draft, TurnOutcome::Halted, Some(reason)),
        None => settle(draft),
    }
    Ok(())
}

/// The suspension that the answer is for, if it is open and of that form.
fn open<'a>(
    state: &'a State,
    at: Timestamp,
    resolve: &Resolve,
) -> Result<(&'a Call, &'a OpenSuspension), Rejection> {
    let call =
        state.call(&resolve.call).ok_or(Rejection::CallNotOpen("no such open call".into()))?;
    let waiting = call.waiting().ok_or(Rejection::CallNotOpen("the call does not wait".into()))?;
    if resolve.suspension.is_some_and(|meant| meant != waiting.suspension) {
        return Err(Rejection::CallNotOpen("that suspension of the call is over".into()));
    }
    if at >= waiting.expires_at {
        return Err(Rejection::CallNotOpen("the answer came after its time".into()));
    }
    let fits = match resolve.answer {
        ResolutionAnswer::Approval { .. } => waiting.kind == SuspensionKind::Approval,
        ResolutionAnswer::Result(_) | ResolutionAnswer::Error(_) => {
            waiting.kind != SuspensionKind::Approval
        }
    };
    if !fits {
        return Err(Rejection::CallNotOpen("the answer has the form of another kind".into()));
    }
    Ok((call, waiting))
}

/// Hands an approved or answered call to its executor: a server call runs, a client call waits for
/// the page.
pub(super) fn run(draft: &mut Draft, id: &CallId) {
    let Some(call) = draft.state.call(id) else { return };
    let started = ToolStarted {
        call_id: id.clone(),
        tool: call.tool.clone(),
        executor: call.executor,
        intent: call.intent,
        args: call.args.clone(),
        attempt: call.next_attempt(),
    };
    let executor = call.executor;
    draft.push(EventData::ToolStarted(started));
    if executor != Executor::Server {
        wait_for_executor(draft, id);
    }
}
