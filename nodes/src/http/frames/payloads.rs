//! The payloads of single events.

use abide_conversation::event::{
    Resolution, Rewound, Suspension, ToolCall, ToolResult, ToolStarted, TurnEnded, TurnOutcome,
};
use abide_conversation::message::Message;
use abide_conversation::{Attempt, TurnId};

use super::{Payload, UserMessage};

pub(super) fn user_message(
    turn_id: Option<TurnId>,
    message: &Message,
    id: Option<&String>,
) -> Payload {
    let (message, client_id) = (message.clone(), id.cloned());
    Payload::UserMessage { turn_id, message: UserMessage { message, client_id } }
}

pub(super) fn rewound(rewound: &Rewound) -> Payload {
    Payload::Rewound {
        to_seq: rewound.to_seq,
        by: rewound.by.clone(),
        todos: rewound.point.todos.clone(),
    }
}

pub(super) fn turn_ended(turn_id: Option<TurnId>, ended: &TurnEnded) -> Payload {
    let (reason, usage) = (ended.reason.clone(), ended.usage);
    match ended.outcome {
        TurnOutcome::Completed => Payload::TurnCompleted { turn_id, usage },
        TurnOutcome::Cancelled => Payload::TurnCancelled { turn_id, usage },
        TurnOutcome::Halted => Payload::TurnHalted { turn_id, reason, usage },
        TurnOutcome::Failed => Payload::TurnFailed { turn_id, reason, usage },
    }
}

pub(super) fn call_started(call: &ToolCall) -> Payload {
    Payload::ToolCallStarted {
        call_id: call.call_id.clone(),
        tool: call.tool.clone(),
        executor: call.kind.executor(),
        intent: call.intent,
        args: call.args.clone(),
        attempt: Attempt::FIRST,
    }
}

pub(super) fn attempt_started(started: &ToolStarted) -> Payload {
    Payload::ToolCallStarted {
        call_id: started.call_id.clone(),
        tool: started.tool.clone(),
        executor: started.executor,
        intent: started.intent,
        args: started.args.clone(),
        attempt: started.attempt,
    }
}

pub(super) fn suspended(suspension: &Suspension) -> Payload {
    Payload::Suspended {
        call_id: suspension.call_id.clone(),
        tool: suspension.tool.clone(),
        executor: suspension.executor,
        kind: suspension.kind,
        intent: suspension.intent,
        args: suspension.args.clone(),
        message: suspension.message.clone(),
        suspension: suspension.suspension,
        expires_at: suspension.expires_at,
        requests: suspension.requests.clone(),
        answer_schema: suspension.answer_schema.clone(),
        doubt: suspension.doubt.clone(),
    }
}

pub(super) fn answered(resolution: &Resolution) -> Payload {
    Payload::Answered {
        call_id: resolution.call_id.clone(),
        suspension: resolution.suspension,
        kind: resolution.kind,
        by: resolution.by.clone(),
        approved: resolution.approved,
        reason: resolution.reason.clone(),
    }
}

pub(super) fn call_ended(done: &ToolResult) -> Vec<Payload> {
    let call_id = done.call_id.clone();
    let result = done.outcome.clone();
    let ended = if result.is_ok() {
        Payload::ToolCallResolved { call_id, result }
    } else {
        Payload::ToolCallErrored { call_id, result }
    };
    let ui = done.ui.clone().map(|ui| Payload::ToolUi {
        call_id: done.call_id.clone(),
        kind: ui.kind,
        payload: ui.payload,
    });
    [ended].into_iter().chain(ui).collect()
}
