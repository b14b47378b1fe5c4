//! One read for all who ask for the same at once.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use abide_actors::journal::Refusal;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};

/// Reads by key. Whoever asks while one is under way shares the next one with all who do: what is
/// read is never older than the question.
pub(crate) struct Together<K, V>(Arc<Mutex<HashMap<K, Reads<V>>>>);

type Read<V> = Shared<BoxFuture<'static, Result<V, Refusal>>>;

struct Reads<V> {
    running: Read<V>,
    /// It begins when the running one has ended.
    next: Option<Read<V>>,
}

impl<K, V> Default for Together<K, V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K, V> Together<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// What `ask` reads, or what another who asked for the same key reads.
    pub(crate) async fn read(
        &self,
        key: &K,
        ask: impl Future<Output = Result<V, Refusal>> + Send + 'static,
    ) -> Result<V, Refusal> {
        let read = self.join(key, ask);
        read.await
    }

    fn join(
        &self,
        key: &K,
        ask: impl Future<Output = Result<V, Refusal>> + Send + 'static,
    ) -> Read<V> {
        let mut all = self.all();
        let Some(reads) = all.get_mut(key) else {
            let running = self.begin(key, None, ask);
            all.insert(key.clone(), Reads { running: running.clone(), next: None });
            return running;
        };
        let running = reads.running.clone();
        reads.next.get_or_insert_with(|| self.begin(key, Some(running), ask)).clone()
    }

    fn begin(
        &self,
        key: &K,
        after: Option<Read<V>>,
        ask: impl Future<Output = Result<V, Refusal>> + Send + 'static,
    ) -> Read<V> {
        let (reads, key) = (Self(self.0.clone()), key.clone());
        let read = async move {
            if let Some(before) = after {
                // What it read is for those who asked before.
                let _ = before.await;
                reads.promote(&key);
            }
            let read = ask.await;
            reads.end(&key);
            read
        };
        read.boxed().shared()
    }

    /// From here on whoever asks waits for the one after it.
    fn promote(&self, key: &K) {
        if let Some(reads) = self.all().get_mut(key)
            && let Some(next) = reads.next.take()
        {
            reads.running = next;
        }
    }

    fn end(&self, key: &K) {
        let mut all = self.all();
        if all.get(key).is_some_and(|reads| reads.next.is_none()) {
            all.remove(key);
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<K, Reads<V>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    type Asked = Together<&'static str, u32>;

    /// A read that counts when it begins, and ends when it is told to.
    fn slow(
        count: &Arc<AtomicU32>,
    ) -> (oneshot::Sender<()>, impl Future<Output = Result<u32, Refusal>> + use<>) {
        let (count, (end, ended)) = (count.clone(), oneshot::channel());
        let read = async move {
            let value = count.fetch_add(1, Ordering::SeqCst) + 1;
            ended.await.map_err(|_| Refusal::Unavailable("away".to_owned()))?;
            Ok(value)
        };
        (end, read)
    }

    #[tokio::test]
    async fn who_asks_during_a_read_shares_the_next_one_which_begins_later() {
        let (asked, count) = (Asked::default(), Arc::default());
        let (end_first, first) = slow(&count);
        let mut first = Box::pin(asked.read(&"a", first));
        assert!(futures::poll!(&mut first).is_pending());
        let (end_second, second) = slow(&count);
        let (_end_third, third) = slow(&count);
        let (mut second, mut third) =
            (Box::pin(asked.read(&"a", second)), Box::pin(asked.read(&"a", third)));
        assert!(
            futures::poll!(&mut second).is_pending() && futures::poll!(&mut third).is_pending()
        );
        assert_eq!(count.load(Ordering::SeqCst), 1, "the next one waits");
        end_first.send(()).unwrap();
        assert_eq!(first.await, Ok(1));
        end_second.send(()).unwrap();
        assert_eq!((second.await, third.await), (Ok(2), Ok(2)));
        assert!(asked.all().is_empty());
    }

    #[tokio::test]
    async fn another_key_and_a_later_question_are_read_by_themselves() {
        let (asked, count) = (Asked::default(), Arc::default());
        let (_end, first) = slow(&count);
        let mut first = Box::pin(asked.read(&"a", first));
        assert!(futures::poll!(&mut first).is_pending());
        assert_eq!(asked.read(&"b", async { Ok(7) }).await, Ok(7));
        assert_eq!(asked.read(&"b", async { Ok(8) }).await, Ok(8));
    }

    #[tokio::test]
    async fn who_waits_gets_an_answer_though_whoever_asked_first_has_gone() {
        let (asked, count) = (Asked::default(), Arc::default());
        let (end, first) = slow(&count);
        let mut first = Box::pin(asked.read(&"a", first));
        assert!(futures::poll!(&mut first).is_pending());
        let mut second = Box::pin(asked.read(&"a", async { Ok(9) }));
        assert!(futures::poll!(&mut second).is_pending());
        drop(first);
        end.send(()).unwrap();
        assert_eq!(second.await, Ok(9));
        assert!(asked.all().is_empty());
    }

    #[tokio::test]
    async fn a_refusal_is_for_all_who_share_the_read_and_not_for_the_next() {
        let (asked, count) = (Asked::default(), Arc::default());
        let (end, first) = slow(&count);
        let mut first = Box::pin(asked.read(&"a", first));
        assert!(futures::poll!(&mut first).is_pending());
        let mut second = Box::pin(asked.read(&"a", async { Ok(3) }));
        assert!(futures::poll!(&mut second).is_pending());
        drop(end);
        assert!(first.await.is_err());
        assert_eq!(second.await, Ok(3));
    }
}
