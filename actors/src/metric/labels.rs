//! The values of labels.

use abide_conversation::event::{Executor, SuspensionKind, TurnOutcome};
use abide_conversation::message::{ErrorType, MessageStatus, Outcome};

use crate::model::Purpose;

/// The outcome of a call.
pub(crate) fn call_outcome(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Ok(_) => "ok",
        Outcome::Err(_, ErrorType::Denied) => "denied",
        Outcome::Err(_, ErrorType::PermissionDenied) => "permission_denied",
        Outcome::Err(_, ErrorType::Expired) => "expired",
        Outcome::Err(_, ErrorType::Cancelled) => "cancelled",
        Outcome::Err(_, ErrorType::ToolNotFound) => "tool_not_found",
        Outcome::Err(_, ErrorType::ValidationError) => "validation_error",
        Outcome::Err(_, ErrorType::ToolError) => "tool_error",
        Outcome::Err(_, ErrorType::ToolCrashed) => "tool_crashed",
        Outcome::Err(_, ErrorType::Timeout) => "timeout",
        Outcome::Err(_, ErrorType::Interrupted) => "interrupted",
        Outcome::Err(_, ErrorType::NoClient) => "no_client",
    }
}

pub(crate) fn turn_outcome(outcome: TurnOutcome) -> &'static str {
    match outcome {
        TurnOutcome::Completed => "completed",
        TurnOutcome::Cancelled => "cancelled",
        TurnOutcome::Halted => "halted",
        TurnOutcome::Failed => "failed",
    }
}

pub(crate) fn message_status(status: MessageStatus) -> &'static str {
    match status {
        MessageStatus::Complete => "complete",
        MessageStatus::Cancelled => "cancelled",
        MessageStatus::Error => "error",
    }
}

pub(crate) fn executor(executor: Executor) -> &'static str {
    match executor {
        Executor::Server => "server",
        Executor::Human => "human",
        Executor::Client => "client",
        Executor::Provider => "provider",
    }
}

pub(crate) fn suspension_kind(kind: SuspensionKind) -> &'static str {
    match kind {
        SuspensionKind::Approval => "approval",
        SuspensionKind::Elicitation => "elicitation",
        SuspensionKind::ClientExec => "client_exec",
        SuspensionKind::InDoubt => "in_doubt",
    }
}

pub(crate) fn purpose(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Step => "step",
        Purpose::Summary => "summary",
    }
}
