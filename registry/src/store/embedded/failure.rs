//! A store that must not be used any more by this process, and whoever waits for that.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::sync::watch;

/// Tells when a store has failed for good: an fsync failed, or its writer panicked. Everything is
/// refused from then on, and only another process can open what the disk has.
#[derive(Clone, Debug)]
pub struct FailureWatch(watch::Receiver<Option<String>>);

/// Where the writer's end is reported.
pub(super) struct FailureReport(watch::Sender<Option<String>>);

impl FailureWatch {
    pub(super) fn new() -> (Self, FailureReport) {
        let (report, watch) = watch::channel(None);
        (Self(watch), FailureReport(report))
    }

    /// Waits until the store has failed, and returns why. A store that is closed never fails.
    pub async fn failed(&mut self) -> String {
        if let Ok(failure) = self.0.wait_for(Option::is_some).await
            && let Some(reason) = failure.clone()
        {
            return reason;
        }
        std::future::pending().await
    }
}

impl FailureReport {
    /// Runs a writer, and reports how it failed if it did.
    pub(super) fn outcome_of(self, run: impl FnOnce() -> Result<(), String>) {
        // Nothing of a writer that panicked is used again.
        let outcome = catch_unwind(AssertUnwindSafe(run));
        let outcome = outcome.unwrap_or_else(|_| Err("its writer panicked".to_owned()));
        if let Err(reason) = outcome {
            tracing::error!(%reason, "store failed: the process ends");
            self.0.send_replace(Some(reason));
        }
    }
}
