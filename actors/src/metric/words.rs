//! The values of labels.

use abide_conversation::event::{Ending, Executor, Kind};
use abide_conversation::message::{ErrorType, Outcome, Status};

use crate::model::Purpose;

/// How a call ended.
pub(crate) fn outcome(outcome: &Outcome) -> &'static str {
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

pub(crate) fn ending(ending: Ending) -> &'static str {
    match ending {
        Ending::Completed => "completed",
        Ending::Cancelled => "cancelled",
        Ending::Halted => "halted",
        Ending::Failed => "failed",
    }
}

pub(crate) fn status(status: Status) -> &'static str {
    match status {
        Status::Complete => "complete",
        Status::Cancelled => "cancelled",
        Status::Error => "error",
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

pub(crate) fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Approval => "approval",
        Kind::Elicitation => "elicitation",
        Kind::ClientExec => "client_exec",
    }
}

pub(crate) fn purpose(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Step => "step",
        Purpose::Summary => "summary",
    }
}
