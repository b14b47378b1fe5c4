//! One attempt of a native tool's call, with the tool's own recovery from a failure.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use abide_conversation::message::Outcome;
use futures::FutureExt;
use serde_json::Value;

use super::dependencies::Dependencies;
use super::{Context, NativeTool};
use crate::tools::isolated_task::{crash_result, run_isolated};
use crate::tools::{Run, ToolReturn};

/// Runs a granted call in a task of its own.
pub(in crate::tools) async fn run_call(
    native: Arc<dyn NativeTool>,
    dependencies: Arc<Dependencies>,
    run: Box<Run>,
    report: &(impl Fn(Value) + Send + Sync),
) -> ToolReturn {
    let work = |progress| async move {
        let (args, conversation) = (run.grant.into_args(), run.conversation.local());
        let context = Context {
            agent: &run.agent,
            conversation: &conversation,
            turn: run.turn.as_ref(),
            call: &run.call,
            attempt: run.attempt,
            assigns: &run.assigns.merged,
            state: &run.state,
            principal: &run.principal,
            approvals: &run.approvals,
            input: run.input.as_ref(),
            dependencies: &dependencies,
            progress: &progress,
        };
        run_guarded(&*native, args, context).await
    };
    run_isolated(report, work).await
}

/// Runs the tool and its recovery; a panic in either becomes the result of a crash.
pub(super) async fn run_guarded(
    native: &dyn NativeTool,
    args: Value,
    context: Context<'_>,
) -> ToolReturn {
    let attempt = async {
        let running = AssertUnwindSafe(native.run(args, context)).catch_unwind();
        let returned = running.await.unwrap_or_else(|_| crash_result());
        let Outcome::Err(error, error_type) = &returned.outcome else { return returned };
        match native.recover(error, *error_type, context).await {
            Some(recovered) => recovered,
            None => returned,
        }
    };
    AssertUnwindSafe(attempt).catch_unwind().await.unwrap_or_else(|_| crash_result())
}
