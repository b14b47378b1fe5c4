//! Runs other people's code in a task of its own.

use std::future::Future;

use abide_conversation::message::ErrorType;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::ToolReturn;

/// Progress reports that wait to be passed on. Progress is lossy: a tool that reports faster loses
/// the rest.
pub(super) const MAX_PENDING_PROGRESS: usize = 64;

/// Runs the work in a task of its own, so that a panic ends there and a run that never yields
/// blocks no other. Progress is reported while it runs; dropping the future aborts the task.
pub(super) async fn run_isolated<F>(
    report: &(impl Fn(Value) + Send + Sync),
    work: impl FnOnce(mpsc::Sender<Value>) -> F,
) -> ToolReturn
where
    F: Future<Output = ToolReturn> + Send + 'static,
{
    let (sender, mut reports) = mpsc::channel(MAX_PENDING_PROGRESS);
    let mut task = AbortOnDropHandle::new(tokio::spawn(work(sender)));
    let ended = loop {
        tokio::select! {
            biased;
            Some(payload) = reports.recv() => report(payload),
            ended = &mut task => break ended,
        }
    };
    while let Ok(payload) = reports.try_recv() {
        report(payload);
    }
    ended.unwrap_or_else(|error| {
        tracing::error!(content = %error, "tool run crashed");
        crash_result()
    })
}

/// The result of a run that panicked.
pub(super) fn crash_result() -> ToolReturn {
    ToolReturn::failure("tool crashed", ErrorType::ToolCrashed)
}
