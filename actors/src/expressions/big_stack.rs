//! Work of interpreters that recurse as deep as their input says, on a thread with room for it.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Enough for the parsers' own limits of nesting (96 and 150), which a worker's 2 MB is not.
const STACK: usize = 64 * 1024 * 1024;

/// Does the work aside; `None` if it panics, or takes longer than the caller would wait.
///
/// Work that is not waited for goes on to its own end, so it must have one.
pub(super) fn aside<T: Send + 'static>(
    longest: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let thread = thread::Builder::new().name("aside".to_owned()).stack_size(STACK);
    let job = move || {
        let _ = sender.send(work());
    };
    thread.spawn(job).ok()?;
    receiver.recv_timeout(longest).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_panics_or_is_late_comes_to_nothing() {
        let (hold, held) = mpsc::channel::<()>();
        assert_eq!(aside(Duration::from_secs(9), || 1), Some(1));
        assert_eq!(aside(Duration::from_secs(9), || -> i32 { unreachable!("on purpose") }), None);
        assert_eq!(aside(Duration::from_millis(1), move || held.recv()), None);
        drop(hold);
    }
}
