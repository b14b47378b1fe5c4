//! What the conversations of a node tell its loops, which then need not ask the store first.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// How many announcements are kept. What is dropped is found in the store, at the loop's next look.
const CAPACITY: usize = 4_096;

/// Announcements of one kind. Cheap to clone; clones share their content.
pub struct Announcements<T>(Arc<Shared<T>>);

struct Shared<T> {
    announced: Mutex<Vec<T>>,
    arrival: Notify,
}

impl<T> Announcements<T> {
    /// Announces what the store has already.
    pub fn announce(&self, announcements: Vec<T>) {
        if announcements.is_empty() {
            return;
        }
        let mut announced = self.0.announced.lock().unwrap_or_else(PoisonError::into_inner);
        let room = CAPACITY.saturating_sub(announced.len());
        announced.extend(announcements.into_iter().take(room));
        drop(announced);
        self.0.arrival.notify_one();
    }

    /// Takes what was announced since the last call.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.0.announced.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Completes when there is something to take.
    pub async fn arrival(&self) {
        self.0.arrival.notified().await;
    }
}

impl<T> Clone for Announcements<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Announcements<T> {
    fn default() -> Self {
        Self(Arc::new(Shared { announced: Mutex::default(), arrival: Notify::new() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn announcements_are_kept_up_to_a_bound() {
        let all = Announcements::<u8>::default();
        all.announce(vec![7; CAPACITY - 1]);
        all.clone().announce(vec![7; 3]);
        all.arrival().await;
        assert_eq!(all.take().len(), CAPACITY);
        assert!(all.take().is_empty());
    }
}
