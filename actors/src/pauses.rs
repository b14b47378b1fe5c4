//! Waits before a later attempt, which an operator may cut short.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use abide_conversation::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::clock::Clock;

tokio::task_local! {
    static WHO: Who;
}

/// One wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// What is tried again after it.
    pub activity: String,
    /// Why it was not done the last time.
    pub reason: String,
    pub until: Timestamp,
}

/// What the activities of one actor wait for before they try again. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backoffs(Arc<Parts>);

#[derive(Debug, Default)]
struct Parts {
    cut: Notify,
    all: Mutex<(u64, BTreeMap<u64, Backoff>)>,
}

/// Whose pauses a task makes.
#[derive(Clone)]
struct Who {
    pauses: Backoffs,
    activity: String,
    clock: Arc<dyn Clock>,
}

impl Backoffs {
    /// Carries out an activity whose pauses are these.
    pub(crate) async fn within<T>(
        &self,
        activity: String,
        clock: Arc<dyn Clock>,
        work: impl Future<Output = T>,
    ) -> T {
        WHO.scope(Who { pauses: self.clone(), activity, clock }, work).await
    }

    /// The waits there are, oldest first.
    pub(crate) fn all(&self) -> Vec<Backoff> {
        self.lock().1.values().cloned().collect()
    }

    /// Ends every wait now. Returns what they were.
    pub(crate) fn cut(&self) -> Vec<Backoff> {
        let all = self.all();
        self.0.cut.notify_waiters();
        all
    }

    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Backoff>)> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits before something is tried again; an operator may have it tried at once.
pub(crate) async fn pause(reason: &str, wait: Duration) {
    let Ok(who) = WHO.try_with(Clone::clone) else { return sleep(wait).await };
    // Before it can be seen: what is seen can be cut short.
    let cut = who.pauses.0.cut.notified();
    let until = who.clock.now().checked_add(wait).unwrap_or(Timestamp::MAX);
    let pause = Backoff { activity: who.activity, reason: reason.to_owned(), until };
    let _noted = Noted::new(&who.pauses, pause);
    // Over or cut short: it is tried again either way.
    let _ = timeout(wait, cut).await;
}

/// Takes a wait off the list when it is over, or dropped.
struct Noted<'a> {
    pauses: &'a Backoffs,
    number: u64,
}

impl<'a> Noted<'a> {
    fn new(pauses: &'a Backoffs, pause: Backoff) -> Self {
        let mut all = pauses.lock();
        all.0 += 1;
        let number = all.0;
        all.1.insert(number, pause);
        Self { pauses, number }
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.pauses.lock().1.remove(&self.number);
    }
}
