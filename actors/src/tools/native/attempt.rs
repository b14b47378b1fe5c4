//! One run of a native tool, and what the tool makes of its failure.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use abide_conversation::message::Outcome;
use futures::FutureExt;
use serde_json::Value;

use super::dependencies::Dependencies;
use super::{Context, NativeTool};
use crate::tools::Run;
use crate::tools::ToolReturn;
use crate::tools::isolated_task::{apart, crashed};

/// Runs a granted call in a task of its own.
pub(in crate::tools) async fn run(
    native: Arc<dyn NativeTool>,
    dependencies: Arc<Dependencies>,
    run: Run,
    report: &(impl Fn(Value) + Send + Sync),
) -> ToolReturn {
    let work = |progress| async move {
        let args = run.grant.into_args();
        let context = Context {
            agent: &run.agent,
            conversation: &run.conversation,
            turn: run.turn.as_ref(),
            call: &run.call,
            attempt: run.attempt,
            assigns: &run.assigns,
            principal: &run.principal,
            input: run.input.as_ref(),
            dependencies: &dependencies,
            progress: &progress,
        };
        attempt(&*native, args, context).await
    };
    apart(report, work).await
}

/// Runs the tool; a panic in it, or in what it does about an error, is a crash and nothing else.
pub(super) async fn attempt(
    native: &dyn NativeTool,
    args: Value,
    context: Context<'_>,
) -> ToolReturn {
    let attempt = async {
        let running = AssertUnwindSafe(native.run(args, context)).catch_unwind();
        let returned = running.await.unwrap_or_else(|_| crashed());
        let Outcome::Err(error, error_type) = &returned.outcome else { return returned };
        match native.recover(error, *error_type, context).await {
            Some(recovered) => recovered,
            None => returned,
        }
    };
    AssertUnwindSafe(attempt).catch_unwind().await.unwrap_or_else(|_| crashed())
}
