//! What follows the end of an attempt: its outcome, another attempt, or a question to a person.

use abide_conversation::event::OnInterrupt;
use abide_conversation::message::Outcome;
use abide_conversation::{Action, Attempt, CallId, Timestamp, command};

use super::ActivityContext;
use super::outcome::tool_outcome;
use crate::attempt_failure::FailureKind;
use crate::definition::ServerTool;
use crate::tools::ToolReturn;

/// The action that reports the attempt.
pub(super) fn attempt_end(
    ctx: &ActivityContext,
    (call, attempt): (&CallId, Attempt),
    server: Option<&ServerTool>,
    returned: ToolReturn,
) -> Action {
    let failed = returned.failure.as_ref().zip(server);
    let (Some((failure, server)), Outcome::Err(error, _)) = (failed, &returned.outcome) else {
        return tool_outcome(call, attempt, returned);
    };
    let runs_once = match server.on_interrupt {
        OnInterrupt::Redispatch => false,
        OnInterrupt::Fail | OnInterrupt::Ask => true,
    };
    let dispatch = ctx.state.dispatches.get(call);
    let failed = match dispatch {
        Some(run) => run.failed_attempts,
        None => ctx.state.call(call).map_or(0, |call| call.failed_attempts),
    };
    let retry = server.retry.as_ref();
    let delay =
        retry.and_then(|it| it.delay(failure, failed, runs_once, ctx.services.clock.chance()));
    if let Some(delay) = delay {
        let reason = failure.kind.name();
        ::metrics::counter!("abide_tool_retries_total", "reason" => reason).increment(1);
        tracing::info!(%call, %attempt, reason, ?delay, "tool attempt failed, another follows");
        let retry_at = ctx.services.clock.now().checked_add(delay).unwrap_or(Timestamp::MAX);
        let (call, error) = (call.clone(), error.clone());
        return Action::AttemptFailed(command::AttemptFailed { call, attempt, error, retry_at });
    }
    let is_unknown = failure.kind == FailureKind::ConnectionBroke;
    if server.on_interrupt == OnInterrupt::Ask && is_unknown && dispatch.is_none() {
        return Action::ConnectionBroke { call: call.clone(), attempt };
    }
    tool_outcome(call, attempt, returned)
}
