//! Runs blocking work on a thread that stops when its caller has gone.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::FileError;

/// Tells a thread that its work is no longer wanted. Work in steps checks it at each step.
#[derive(Clone, Debug, Default)]
pub(crate) struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error if it is set; nobody reads that error.
    pub(crate) fn check(&self) -> Result<(), FileError> {
        if self.is_set() { Err(FileError::new("cancelled")) } else { Ok(()) }
    }

    #[cfg(test)]
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs the work on a blocking thread; dropping the future cancels it.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce(&CancelFlag) -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    let cancelled = CancelFlag::default();
    let _cancels = SetOnDrop(cancelled.clone());
    let working = tokio::task::spawn_blocking(move || {
        cancelled.check()?;
        work(&cancelled)
    });
    match working.await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(_) => Err(FileError::new("cancelled")),
        },
    }
}

struct SetOnDrop(CancelFlag);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test]
    async fn dropping_the_future_cancels_the_work() {
        let (began, begun) = oneshot::channel();
        let (ended, ends) = oneshot::channel();
        let waiting = tokio::spawn(run_blocking(move |cancelled| {
            began.send(()).unwrap();
            let end = Instant::now() + Duration::from_secs(20);
            while !cancelled.is_set() && Instant::now() < end {
                std::thread::yield_now();
            }
            ended.send(cancelled.is_set()).unwrap();
            Ok(())
        }));
        begun.await.unwrap();
        waiting.abort();
        assert!(ends.await.unwrap());
    }
}
