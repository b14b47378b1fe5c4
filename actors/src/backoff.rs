//! Delays before a retry. An operator can see them and end them early.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use abide_conversation::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::clock::Clock;

tokio::task_local! {
    static SCOPE: BackoffScope;
}

/// One delay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// The activity that retries after it.
    pub activity: String,
    /// Why the last attempt failed.
    pub reason: String,
    pub until: Timestamp,
}

/// The current delays of one actor's activities. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backoffs(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    end: Notify,
    current: Mutex<Numbered>,
}

#[derive(Debug, Default)]
struct Numbered {
    last_number: u64,
    backoffs: BTreeMap<u64, Backoff>,
}

/// The activity that a task belongs to, and the backoffs that its delays are listed in.
#[derive(Clone)]
struct BackoffScope {
    backoffs: Backoffs,
    activity: String,
    clock: Arc<dyn Clock>,
}

impl Backoffs {
    /// Runs an activity whose delays are listed here. It is not an `async` function: the future of one
    /// has room for its argument twice.
    pub(crate) fn scope<T>(
        &self,
        activity: String,
        clock: Arc<dyn Clock>,
        work: impl Future<Output = T>,
    ) -> impl Future<Output = T> {
        SCOPE.scope(BackoffScope { backoffs: self.clone(), activity, clock }, work)
    }

    /// The current delays, oldest first.
    pub(crate) fn all(&self) -> Vec<Backoff> {
        self.lock().backoffs.values().cloned().collect()
    }

    /// Ends every delay now, and returns them.
    pub(crate) fn end_all(&self) -> Vec<Backoff> {
        let all = self.all();
        self.0.end.notify_waiters();
        all
    }

    fn lock(&self) -> MutexGuard<'_, Numbered> {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits before a retry, for `delay` or until an operator ends the wait.
pub(crate) async fn wait(reason: &str, delay: Duration) {
    let Ok(scope) = SCOPE.try_with(Clone::clone) else { return sleep(delay).await };
    // Before the delay is listed: whatever is listed can be ended.
    let end = scope.backoffs.0.end.notified();
    let until = scope.clock.now().checked_add(delay).unwrap_or(Timestamp::MAX);
    let backoff = Backoff { activity: scope.activity, reason: reason.to_owned(), until };
    let _listed = ListedBackoff::new(&scope.backoffs, backoff);
    // Over or ended early: the activity retries in either case.
    let _ = timeout(delay, end).await;
}

/// Removes its delay from the list when dropped.
struct ListedBackoff<'a> {
    backoffs: &'a Backoffs,
    number: u64,
}

impl<'a> ListedBackoff<'a> {
    fn new(backoffs: &'a Backoffs, backoff: Backoff) -> Self {
        let mut current = backoffs.lock();
        current.last_number += 1;
        let number = current.last_number;
        current.backoffs.insert(number, backoff);
        Self { backoffs, number }
    }
}

impl Drop for ListedBackoff<'_> {
    fn drop(&mut self) {
        self.backoffs.lock().backoffs.remove(&self.number);
    }
}
