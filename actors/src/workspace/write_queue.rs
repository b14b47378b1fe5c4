//! Queues the writers of each file.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex as Short, PoisonError, Weak};

use tokio::sync::{Mutex, OwnedMutexGuard};

/// One queue for each file that somebody is writing to.
#[derive(Debug, Default)]
pub(super) struct WriteQueue(Short<HashMap<PathBuf, Weak<Mutex<()>>>>);

impl WriteQueue {
    /// Waits for the turn, which ends when the guard is dropped.
    pub(super) async fn wait_turn(&self, path: PathBuf) -> OwnedMutexGuard<()> {
        let queue = {
            let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Keeps only the queues in use, plus this one.
            queues.retain(|_, queue| queue.strong_count() > 0);
            let entry = queues.entry(path).or_default();
            entry.upgrade().unwrap_or_else(|| {
                let queue = Arc::new(Mutex::new(()));
                *entry = Arc::downgrade(&queue);
                queue
            })
        };
        queue.lock_owned().await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn one_path_has_one_writer_at_a_time_and_is_forgotten_after() {
        let turns = WriteQueue::default();
        let first = turns.wait_turn("a".into()).await;
        assert!(turns.wait_turn("a".into()).now_or_never().is_none());
        let other = turns.wait_turn("b".into()).now_or_never();
        assert!(other.is_some());
        drop(first);
        assert!(turns.wait_turn("a".into()).now_or_never().is_some());
        drop(other);
        let _last = turns.wait_turn("c".into()).await;
        assert_eq!(turns.0.lock().unwrap().len(), 1);
    }
}
