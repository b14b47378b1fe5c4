//! The payloads of single events.

use std::borrow::Cow;

use abide_conversation::event::{
    AssistantMsg, Resolution, Rewound, Suspension, ToolCall, ToolResult, ToolStarted, TurnEnded,
    TurnOutcome,
};
use abide_conversation::message::Message;
use abide_conversation::{Attempt, TurnId};

use super::{AssistantMessage, Payload, UserMessage};

pub(super) fn user_message<'a>(
    turn_id: Option<TurnId>,
    message: &'a Message,
    id: Option<&'a String>,
) -> Payload<'a> {
    let client_id = id.map(|id| Cow::Borrowed(id.as_str()));
    let message = UserMessage { message: Cow::Borrowed(message), client_id };
    Payload::UserMessage { turn_id, message }
}

pub(super) fn message_completed(turn_id: Option<TurnId>, reply: &AssistantMsg) -> Payload<'_> {
    let mut message = Cow::Borrowed(&reply.message);
    if message.status.is_some() {
        message.to_mut().status = None;
    }
    let message = AssistantMessage { message, status: reply.status };
    Payload::MessageCompleted { turn_id, message, usage: reply.usage }
}

pub(super) fn rewound(rewound: &Rewound) -> Payload<'static> {
    Payload::Rewound {
        to_seq: rewound.to_seq,
        by: rewound.by.clone(),
        todos: rewound.point.todos.clone(),
    }
}

pub(super) fn turn_ended(turn_id: Option<TurnId>, ended: &TurnEnded) -> Payload<'static> {
    let (reason, usage) = (ended.reason.clone(), ended.usage);
    match ended.outcome {
        TurnOutcome::Completed => Payload::TurnCompleted { turn_id, usage },
        TurnOutcome::Cancelled => Payload::TurnCancelled { turn_id, usage },
        TurnOutcome::Halted => Payload::TurnHalted { turn_id, reason, usage },
        TurnOutcome::Failed => Payload::TurnFailed { turn_id, reason, usage },
    }
}

pub(super) fn call_started(call: &ToolCall) -> Payload<'_> {
    Payload::ToolCallStarted {
        call_id: call.call_id.clone(),
        tool: call.tool.clone(),
        executor: call.kind.executor(),
        intent: call.intent,
        args: Cow::Borrowed(&call.args),
        attempt: Attempt::FIRST,
    }
}

pub(super) fn attempt_started(started: &ToolStarted) -> Payload<'_> {
    Payload::ToolCallStarted {
        call_id: started.call_id.clone(),
        tool: started.tool.clone(),
        executor: started.executor,
        intent: started.intent,
        args: Cow::Borrowed(&started.args),
        attempt: started.attempt,
    }
}

pub(super) fn suspended(suspension: &Suspension) -> Payload<'_> {
    Payload::Suspended {
        call_id: suspension.call_id.clone(),
        tool: suspension.tool.clone(),
        executor: suspension.executor,
        kind: suspension.kind,
        intent: suspension.intent,
        args: Cow::Borrowed(&suspension.args),
        message: Cow::Borrowed(&suspension.message),
        suspension: suspension.suspension,
        expires_at: suspension.expires_at,
        requests: suspension.requests.clone(),
        answer_schema: suspension.answer_schema.clone(),
        doubt: suspension.doubt.clone(),
    }
}

pub(super) fn answered(resolution: &Resolution) -> Payload<'static> {
    Payload::Answered {
        call_id: resolution.call_id.clone(),
        suspension: resolution.suspension,
        kind: resolution.kind,
        by: resolution.by.clone(),
        approved: resolution.approved,
        reason: resolution.reason.clone(),
    }
}

pub(super) fn call_ended(done: &ToolResult) -> Vec<Payload<'_>> {
    let call_id = done.call_id.clone();
    let result = Cow::Borrowed(&done.outcome);
    let ended = if done.outcome.is_ok() {
        Payload::ToolCallResolved { call_id, result }
    } else {
        Payload::ToolCallErrored { call_id, result }
    };
    let ui = done.ui.as_ref().map(|ui| Payload::ToolUi {
        call_id: done.call_id.clone(),
        kind: Cow::Borrowed(&ui.kind),
        payload: Cow::Borrowed(&ui.payload),
    });
    [ended].into_iter().chain(ui).collect()
}
