//! Work that blocks, on a thread that stops when nobody waits for it any more.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::FileError;

/// Tells a thread that nobody waits for its work. Whoever works in steps asks at each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancelled(Arc<AtomicBool>);

impl Cancelled {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error once it is set, which nobody reads.
    pub(crate) fn check(&self) -> Result<(), FileError> {
        if self.is_set() { Err(FileError::new("cancelled")) } else { Ok(()) }
    }

    #[cfg(test)]
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does the work on a thread that may block; dropping the future cancels it.
pub(crate) async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce(&Cancelled) -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    let cancelled = Cancelled::default();
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

struct SetOnDrop(Cancelled);

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
    async fn work_hears_that_nobody_waits_for_it() {
        let (began, begun) = oneshot::channel();
        let (ended, ends) = oneshot::channel();
        let waiting = tokio::spawn(on_a_thread(move |cancelled| {
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
