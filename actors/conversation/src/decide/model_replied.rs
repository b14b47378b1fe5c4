//! The model spoke: its message, its calls and their suspensions are one commit.

use super::Rejection;
use super::draft::Draft;
use super::hooked::refuse;
use super::settle::{after, end, settle};
use crate::command::{CallPlan, MessageVerdict, ModelReplied, PlannedCall};
use crate::event::{
    AssistantMsg, EventData, Executor, RepairRequested, SuspensionKind, ToolCall, TurnOutcome,
};
use crate::ids::CallId;
use crate::message::{CallRef, ErrorType, Message, MessageStatus, Outcome, Role, StopReason};
use crate::state::State;

pub(super) fn model_replied(draft: &mut Draft, reply: ModelReplied) -> Result<(), Rejection> {
    if !awaits(&draft.state, &reply.turn, reply.step) {
        return Err(Rejection::Stale);
    }
    let calls = identify(&draft.state, reply.calls);
    let object = reply.object.as_ref().and_then(|judged| judged.as_ref().ok()).cloned();
    let name = |(id, planned): &(CallId, PlannedCall)| CallRef {
        id: id.clone(),
        name: planned.tool.clone(),
        args: planned.said.as_ref().unwrap_or(&planned.args).clone(),
    };
    let message = Message {
        id: reply.id,
        role: Role::Assistant,
        content: reply.content,
        tool_calls: calls.iter().map(name).collect(),
        tool_call_id: None,
        status: None,
        object,
    };
    let (status, step, usage) = (MessageStatus::Complete, reply.step, reply.usage);
    let halt = match reply.judged {
        MessageVerdict::GoOn => None,
        MessageVerdict::Halt(reason) => Some(reason),
        MessageVerdict::Refuse { hook, reason } => {
            refuse(draft, (hook, reason), (step, message, usage));
            return Ok(());
        }
    };
    // A summary that came meanwhile has changed the context: what was counted is out of date.
    let summary = draft.state.context.summary.map_or(0, |summary| summary.seq);
    let context_tokens = reply.context_tokens.filter(|_| summary <= reply.read_at);
    let (stop, verbatim) = (reply.stop, reply.verbatim);
    draft.push(EventData::AssistantMsg(AssistantMsg {
        message,
        status,
        step,
        usage,
        stop,
        verbatim,
        context_tokens,
    }));
    if let Some(reason) = halt {
        end(draft, TurnOutcome::Halted, Some(reason));
        return Ok(());
    }
    // What the provider ran by itself is answered within the message.
    let speaks = stop != Some(StopReason::Paused)
        && calls.iter().all(|(_, planned)| planned.plan.is_provided());
    for (id, planned) in calls {
        hand_over(draft, id, planned);
    }
    match reply.object {
        Some(Err(_)) if speaks && stop == Some(StopReason::Refusal) => {
            end(draft, TurnOutcome::Failed, Some("refusal".to_owned()));
        }
        Some(Err(reason)) if speaks => repair(draft, reason),
        Some(_) | None if speaks => end(draft, TurnOutcome::Completed, None),
        Some(_) | None => settle(draft),
    }
    Ok(())
}

/// Whether the state waits for this step of the model.
pub(super) fn awaits(state: &State, turn: &crate::ids::TurnId, step: u32) -> bool {
    let open =
        |open: &crate::state::Turn| open.id == *turn && open.settled() && open.next_step() == step;
    state.turn.as_ref().is_some_and(open)
}

fn identify(state: &State, planned: Vec<PlannedCall>) -> Vec<(CallId, PlannedCall)> {
    let Some(turn) = &state.turn else { return Vec::new() };
    let given = planned.iter().map(|planned| planned.given_id.as_str());
    let ids = state.used_ids.unique(given, turn);
    ids.into_iter().zip(planned).collect()
}

/// Journals a call, and whatever it comes to at once: a suspension, a start, a result.
fn hand_over(draft: &mut Draft, call_id: CallId, planned: PlannedCall) {
    let PlannedCall { tool, args, plan, gate: verdict, .. } = planned;
    let call = |executor, intent, started| ToolCall {
        call_id: call_id.clone(),
        tool,
        args,
        executor,
        intent,
        started,
        message: String::new(),
        timeout_ms: 0,
        grace_ms: None,
        on_interrupt: Default::default(),
        answer: None,
        gate: verdict,
        child: None,
        lane: None,
    };
    match plan {
        CallPlan::Answer { executor, intent, outcome } => {
            draft.push(EventData::ToolCall(call(executor, intent, outcome.is_ok())));
            draft.result(call_id, outcome);
        }
        CallPlan::Execute {
            executor,
            intent,
            gate,
            message,
            timeout_ms,
            grace_ms,
            on_interrupt,
            answer,
            child,
            lane,
        } => {
            let call = call(executor, intent, gate.is_none());
            draft.push(EventData::ToolCall(ToolCall {
                message,
                timeout_ms,
                grace_ms,
                on_interrupt,
                answer,
                child,
                lane,
                ..call
            }));
            match gate {
                Some(question) => suspend(draft, &call_id, SuspensionKind::Approval, question),
                None => wait_for_executor(draft, &call_id),
            }
        }
    }
}

/// Suspends a call that somebody outside executes, unless its answer is known; a server call needs
/// nothing more, and nobody can execute a provider's call that came without its result.
pub(super) fn wait_for_executor(draft: &mut Draft, id: &CallId) {
    let Some(call) = draft.state.call(id) else { return };
    if let Some(answer) = call.answer.clone() {
        return draft.result(id.clone(), Outcome::Ok(answer));
    }
    let kind = match call.executor {
        Executor::Human => SuspensionKind::Elicitation,
        Executor::Client => SuspensionKind::ClientExec,
        Executor::Server => return,
        Executor::Provider => {
            return draft.error(id.clone(), "the provider gave no result", ErrorType::ToolError);
        }
    };
    let message = call.message.clone();
    suspend(draft, id, kind, message);
}

pub(super) fn suspend(draft: &mut Draft, id: &CallId, kind: SuspensionKind, message: String) {
    let Some(call) = draft.state.call(id) else { return };
    let expires_at = after(draft.at, call.timeout_ms);
    let suspension = call.suspend(kind, message, expires_at);
    draft.push(EventData::Suspension(suspension));
}

/// Asks for one repair; a second bad answer fails the turn, and without a step left it is halted.
fn repair(draft: &mut Draft, reason: String) {
    let repaired = draft.state.turn.as_ref().is_some_and(|turn| turn.repaired);
    if repaired {
        return end(draft, TurnOutcome::Failed, Some("schema_violation".to_owned()));
    }
    draft.push(EventData::RepairRequested(RepairRequested { reason }));
    settle(draft);
}
