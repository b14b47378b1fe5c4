//! Runs interpreters that recurse as deeply as their input on a thread with a large stack.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Enough for the parsers' own nesting limits (96 and 150); the 2 MB of a worker thread are not.
pub(super) const STACK_BYTES: usize = 64 * 1024 * 1024;

/// Runs the work on its own thread; `None` if it panics or takes longer than `timeout`.
///
/// Work that timed out keeps running, so it must end by itself.
pub(super) fn run_on_big_stack<T: Send + 'static>(
    timeout: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let thread = thread::Builder::new().name("big-stack".to_owned()).stack_size(STACK_BYTES);
    let job = move || {
        let _ = sender.send(work());
    };
    thread.spawn(job).ok()?;
    receiver.recv_timeout(timeout).ok()
}

/// Runs work that ends by itself on its own thread, and waits for it; `None` if it panics.
pub(super) fn run_borrowing_on_big_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    let thread = thread::Builder::new().name("big-stack".to_owned()).stack_size(STACK_BYTES);
    thread::scope(|scope| thread.spawn_scoped(scope, work).ok()?.join().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_panics_or_is_late_returns_nothing() {
        let (hold, held) = mpsc::channel::<()>();
        assert_eq!(run_on_big_stack(Duration::from_secs(9), || 1), Some(1));
        assert_eq!(
            run_on_big_stack(Duration::from_secs(9), || -> i32 {
                unreachable!("the work panics on purpose")
            }),
            None
        );
        assert_eq!(run_on_big_stack(Duration::from_millis(1), move || held.recv()), None);
        drop(hold);
    }
}
