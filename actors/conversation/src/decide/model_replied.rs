//! The model replied: its message, its calls and their suspensions are one commit.

use super::Rejection;
use super::draft::Draft;
use super::hooks::refuse_message;
use super::settle::{add_millis, end_turn, settle};
use super::steer::has_unread_message;
use crate::AnswerSchema;
use crate::command::{ApprovalQuestion, CallPlan, MessageVerdict, ModelReplied, PlannedCall};
use crate::event::{
    AssistantMsg, CallKind, EventData, RepairRequested, Suspension, SuspensionKind, ToolCall,
    TurnOutcome,
};
use crate::ids::CallId;
use crate::message::{
    CallRef, ErrorType, Message, MessageRole, MessageStatus, Outcome, StopReason,
};
use crate::numbers::Seq;
use crate::state::State;

pub(super) fn model_replied(draft: &mut Draft, reply: ModelReplied) -> Result<(), Rejection> {
    if !draft.state.awaits_step(&reply.turn, reply.step) {
        return Err(Rejection::Stale);
    }
    let calls = assign_ids(&draft.state, reply.calls);
    let object = reply.object.as_ref().and_then(|object| object.as_ref().ok()).cloned();
    let call_ref = |(id, planned): &(CallId, PlannedCall)| CallRef {
        id: id.clone(),
        name: planned.tool.clone(),
        args: planned.original_args.as_ref().unwrap_or(&planned.args).clone(),
    };
    let message = Message {
        id: reply.id,
        role: MessageRole::Assistant,
        content: reply.content,
        tool_calls: calls.iter().map(call_ref).collect(),
        tool_call_id: None,
        status: None,
        object,
    };
    let step = reply.step;
    let usage = reply.usage;
    let halt = match reply.verdict {
        MessageVerdict::Accept => None,
        MessageVerdict::Halt(reason) => Some(reason),
        MessageVerdict::Refuse { hook, reason } => {
            refuse_message(draft, (hook, reason), (step, message, usage));
            return Ok(());
        }
    };
    // A summary that arrived meanwhile has changed the context, so the count is out of date.
    let summary = draft.state.context.summary.map_or(Seq::ZERO, |summary| summary.seq);
    let context_tokens = reply.context_tokens.filter(|_| summary <= reply.context_seq);
    let stop = reply.stop;
    let is_unread = has_unread_message(&draft.state, reply.context_seq);
    draft.push(EventData::AssistantMsg(AssistantMsg {
        message,
        status: MessageStatus::Complete,
        step,
        usage,
        stop,
        verbatim: reply.verbatim,
        fallback: reply.fallback,
        context_tokens,
        read_upto: is_unread.then_some(reply.context_seq),
    }));
    if let Some(reason) = halt {
        end_turn(draft, TurnOutcome::Halted, Some(reason));
        return Ok(());
    }
    // Calls that the provider executed are answered within the message.
    let is_answer = stop != Some(StopReason::Paused)
        && calls.iter().all(|(_, planned)| planned.plan.is_provided());
    for (id, planned) in calls {
        hand_over(draft, id, planned);
    }
    match reply.object {
        Some(Err(_)) if is_answer && stop == Some(StopReason::Refusal) => {
            end_turn(draft, TurnOutcome::Failed, Some("refusal".to_owned()));
        }
        Some(Err(reason)) if is_answer => request_repair(draft, reason),
        Some(_) | None if is_answer && !is_unread => end_turn(draft, TurnOutcome::Completed, None),
        Some(_) | None => settle(draft),
    }
    Ok(())
}

fn assign_ids(state: &State, planned: Vec<PlannedCall>) -> Vec<(CallId, PlannedCall)> {
    let Some(turn) = &state.turn else { return Vec::new() };
    let given = planned.iter().map(|planned| planned.given_id.as_str());
    let ids = state.used_ids.make_unique(given, turn.ordinal, &turn.overflow_ids);
    ids.into_iter().zip(planned).collect()
}

/// Journals a call and what follows at once: its result, its suspension, or nothing if it runs.
fn hand_over(draft: &mut Draft, call_id: CallId, planned: PlannedCall) {
    let PlannedCall { tool, args, plan, verdict, .. } = planned;
    let call = |kind, intent, started| ToolCall {
        call_id: call_id.clone(),
        tool,
        args,
        kind,
        intent,
        started,
        message: String::new(),
        timeout_ms: 0,
        gate: verdict,
        answer_schema: None,
        waiting_rules: None,
    };
    match plan {
        CallPlan::Complete { executor, intent, outcome } => {
            draft.push(EventData::ToolCall(call(executor.into(), intent, outcome.is_ok())));
            draft.push_result(call_id, outcome);
        }
        CallPlan::Execute {
            kind,
            intent,
            gate,
            message,
            answer_schema,
            timeout_ms,
            waiting_rules,
        } => {
            let call = call(kind, intent, gate.is_none());
            let call = ToolCall { message, timeout_ms, waiting_rules, ..call };
            match gate {
                Some(question) => {
                    draft.push(EventData::ToolCall(ToolCall { answer_schema, ..call }));
                    suspend_for_approval(draft, &call_id, question);
                }
                None => {
                    draft.push(EventData::ToolCall(call));
                    wait_for_executor(draft, &call_id, answer_schema);
                }
            }
        }
    }
}

/// Suspends a call that somebody outside executes, unless its result is known already. A server
/// call needs nothing more. A provider call that came without its result can be executed by nobody.
pub(super) fn wait_for_executor(
    draft: &mut Draft,
    id: &CallId,
    answer_schema: Option<AnswerSchema>,
) {
    let Some(call) = draft.state.call(id) else { return };
    let kind = match &call.kind {
        CallKind::Server { .. } => return,
        CallKind::Client { default_result: Some(result), .. } => {
            let result = result.clone();
            return draft.push_result(id.clone(), Outcome::Ok(result));
        }
        CallKind::Client { default_result: None, .. } => SuspensionKind::ClientExec,
        CallKind::Human => SuspensionKind::Elicitation,
        CallKind::Provider => {
            return draft.push_error(
                id.clone(),
                "the provider gave no result",
                ErrorType::ToolError,
            );
        }
    };
    let message = call.message.clone();
    suspend(draft, id, kind, message, answer_schema);
}

pub(super) fn suspend(
    draft: &mut Draft,
    id: &CallId,
    kind: SuspensionKind,
    message: String,
    answer_schema: Option<AnswerSchema>,
) {
    if let Some(suspension) = next_suspension(draft, id, kind, message) {
        draft.push(EventData::Suspension(Suspension { answer_schema, ..suspension }));
    }
}

/// The policy and the schema are journalled with the suspension: a later revision of the agent
/// changes neither.
fn suspend_for_approval(draft: &mut Draft, id: &CallId, question: ApprovalQuestion) {
    let ApprovalQuestion { message, policy, answer_schema } = question;
    if let Some(suspension) = next_suspension(draft, id, SuspensionKind::Approval, message) {
        let suspension = Suspension { policy, answer_schema, ..suspension };
        draft.push(EventData::Suspension(suspension));
    }
}

fn next_suspension(
    draft: &Draft,
    id: &CallId,
    kind: SuspensionKind,
    message: String,
) -> Option<Suspension> {
    let call = draft.state.call(id)?;
    Some(call.next_suspension(kind, message, add_millis(draft.at, call.timeout_ms)))
}

/// Asks the model for one repair. A second bad answer fails the turn; without a step left, the turn
/// is halted.
fn request_repair(draft: &mut Draft, reason: String) {
    let is_second = draft.state.turn.as_ref().is_some_and(|turn| turn.repair_requested);
    if is_second {
        return end_turn(draft, TurnOutcome::Failed, Some("schema_violation".to_owned()));
    }
    draft.push(EventData::RepairRequested(RepairRequested { reason }));
    settle(draft);
}
