//! Work of others in a task of its own.

use std::future::Future;

use abide_conversation::message::ErrorType;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::ToolReturn;

/// Progress that waits to be passed on; a tool that reports faster loses the rest, as it may.
pub(super) const PROGRESS_WAITING: usize = 64;

/// Does the work in a task of its own, so that a panic ends there, and a run that never yields blocks
/// no other. What it sends is reported while it runs; dropping the future ends the work.
pub(super) async fn apart<F>(
    report: &(impl Fn(Value) + Send + Sync),
    work: impl FnOnce(mpsc::Sender<Value>) -> F,
) -> ToolReturn
where
    F: Future<Output = ToolReturn> + Send + 'static,
{
    let (sender, mut reports) = mpsc::channel(PROGRESS_WAITING);
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
        tracing::error!(said = %error, "a tool's run crashed");
        crashed()
    })
}

/// What a panic comes to.
pub(super) fn crashed() -> ToolReturn {
    ToolReturn::failed("tool crashed", ErrorType::ToolCrashed)
}
