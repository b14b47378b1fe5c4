//! Reads of the same thing by several at once, of which the store carries out few.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use abide_actors::journal::StoreError;

/// Things that many ask for. While one read is under way, all who ask wait for the next one and share it:
/// each gets what was there after it asked. On a busy node that saves two reads of an agent in three.
pub(crate) struct SharedReads<K: Eq + Hash, V> {
    /// One for each thing that is being asked for.
    slots: Mutex<HashMap<K, Arc<Slot<V>>>>,
}

struct Slot<V> {
    /// How many reads have begun.
    begun: AtomicU64,
    latest: tokio::sync::Mutex<Option<EndedRead<V>>>,
}

struct EndedRead<V> {
    /// Reads are numbered from 1, in the order in which they began.
    number: u64,
    outcome: Result<V, StoreError>,
}

impl<K: Eq + Hash, V> Default for SharedReads<K, V> {
    fn default() -> Self {
        Self { slots: Mutex::default() }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> SharedReads<K, V> {
    /// The outcome of a read that begins after this is called: of `read`, or of another's.
    pub(crate) async fn read(
        &self,
        key: &K,
        read: impl Future<Output = Result<V, StoreError>>,
    ) -> Result<V, StoreError> {
        let asker = self.ask(key);
        let slot = &asker.slot;
        let begun_before = slot.begun.load(Ordering::SeqCst);
        let mut latest = slot.latest.lock().await;
        if let Some(ended) = latest.as_ref().filter(|ended| ended.number > begun_before) {
            return ended.outcome.clone();
        }
        let number = slot.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let outcome = read.await;
        *latest = Some(EndedRead { number, outcome: outcome.clone() });
        outcome
    }

    fn ask<'a>(&'a self, key: &'a K) -> Asker<'a, K, V> {
        let mut slots = self.slots();
        let slot = match slots.get(key) {
            Some(slot) => slot.clone(),
            None => {
                let slot = Arc::new(Slot { begun: AtomicU64::new(0), latest: Default::default() });
                slots.insert(key.clone(), slot.clone());
                slot
            }
        };
        Asker { reads: self, key, slot }
    }
}

impl<K: Eq + Hash, V> SharedReads<K, V> {
    fn slots(&self) -> MutexGuard<'_, HashMap<K, Arc<Slot<V>>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever waits for a read. The slot goes with the last of them.
struct Asker<'a, K: Eq + Hash, V> {
    reads: &'a SharedReads<K, V>,
    key: &'a K,
    slot: Arc<Slot<V>>,
}

impl<K: Eq + Hash, V> Drop for Asker<'_, K, V> {
    fn drop(&mut self) {
        let mut slots = self.reads.slots();
        // The table's, and this one's.
        if Arc::strong_count(&self.slot) == 2 {
            slots.remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::task::Poll;

    use tokio::sync::Notify;

    use super::*;

    /// A thing that each read finds changed, and whose reads end when they are told to.
    #[derive(Default)]
    struct Thing {
        reads: AtomicU32,
        end_read: Notify,
    }

    impl Thing {
        async fn read(&self) -> Result<u32, StoreError> {
            let number = self.reads.fetch_add(1, Ordering::SeqCst) + 1;
            self.end_read.notified().await;
            Ok(number)
        }
    }

    #[tokio::test]
    async fn those_who_ask_during_a_read_share_the_next() {
        let (reads, thing) = (SharedReads::default(), Thing::default());
        let mut first = Box::pin(reads.read(&"a", thing.read()));
        assert_eq!(futures::poll!(&mut first), Poll::Pending);
        let mut others: Vec<_> =
            (0..100).map(|_| Box::pin(reads.read(&"a", thing.read()))).collect();
        for other in &mut others {
            assert_eq!(futures::poll!(other), Poll::Pending);
        }
        thing.end_read.notify_one();
        assert_eq!(first.await, Ok(1));
        thing.end_read.notify_one();
        assert_eq!(futures::future::join_all(others).await, vec![Ok(2); 100]);
        assert_eq!(reads.slots().len(), 0);
    }

    #[tokio::test]
    async fn what_has_begun_before_is_never_the_answer() {
        let (reads, thing) = (SharedReads::default(), Thing::default());
        for number in 1..=3 {
            thing.end_read.notify_one();
            assert_eq!(reads.read(&"a", thing.read()).await, Ok(number));
        }
    }

    #[tokio::test]
    async fn a_reader_who_goes_away_leaves_the_read_to_the_next() {
        let (reads, thing) = (SharedReads::default(), Thing::default());
        let mut first = Box::pin(reads.read(&"a", thing.read()));
        let mut second = Box::pin(reads.read(&"a", thing.read()));
        assert_eq!(futures::poll!(&mut first), Poll::Pending);
        assert_eq!(futures::poll!(&mut second), Poll::Pending);
        drop(first);
        thing.end_read.notify_one();
        assert_eq!(second.await, Ok(2));
        assert_eq!(reads.slots().len(), 0);
    }

    #[tokio::test]
    async fn other_things_are_read_meanwhile() {
        let reads = SharedReads::default();
        let (thing, other) = (Thing::default(), Thing::default());
        let mut first = Box::pin(reads.read(&"a", thing.read()));
        assert_eq!(futures::poll!(&mut first), Poll::Pending);
        other.end_read.notify_one();
        assert_eq!(reads.read(&"b", other.read()).await, Ok(1));
    }
}
