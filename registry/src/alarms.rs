//! Wakes the conversations of this node's partitions whose alarm is due.

pub mod planner;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::near_alarms::NearAlarms;
use abide_actors::request::{DeletionCondition, Reply, Request, RequestError};
use abide_conversation::{ConversationId, Scoped, Timestamp};
use futures::FutureExt;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cluster_view::ClusterView;
use crate::partition::PartitionSet;
use crate::router::ConversationRouter;
use crate::store::Store;
use planner::AlarmPlanner;

/// How long waking one conversation may take: its node may hang, and other alarms wait.
const WAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// The delay before reading again from a store that is away, which bounds how long its return goes
/// unnoticed.
const STORE_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Runs until it is dropped.
pub async fn run(
    conversations: ConversationRouter,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    near_alarms: NearAlarms,
) {
    let mut planner = AlarmPlanner::<ConversationId>::default();
    let mut wakes = Wakes::default();
    let mut is_store_away = false;
    let mut seen = conversations.cluster().watch();
    loop {
        while let Some((id, woken)) = wakes.next_ended() {
            planner.finish(id, woken, clock.now());
        }
        planner.expect(near_alarms.take());
        let partitions = seen.borrow_and_update().partitions.clone();
        if let Some(poll) = planner.next_poll(clock.now(), &partitions) {
            match store.due_alarms(&partitions, poll.until, poll.limit).await {
                Ok(alarms) => {
                    is_store_away = false;
                    planner.learn(poll, partitions.clone(), alarms);
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_store_away, true) {
                        tracing::warn!(%error, "alarms cannot be read");
                    }
                    let retry_at = planner::after(clock.now(), STORE_RETRY_DELAY);
                    planner.retry_poll(partitions.clone(), retry_at);
                }
            }
        }
        let (due, wait) = planner.plan(clock.now(), wakes.count());
        for (id, due) in due {
            let wake = wake(conversations.clone(), clock.clone(), id.clone(), due);
            wakes.start(id, wake);
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = near_alarms.arrival() => {}
            () = partitions_change(&mut seen, &partitions) => {}
        }
    }
}

/// Completes when the partitions of this node change: alarms of those that it gets may be overdue.
async fn partitions_change(seen: &mut watch::Receiver<Arc<ClusterView>>, before: &PartitionSet) {
    // A node whose view has ended is about to end as well.
    if seen.wait_for(|view| view.partitions != *before).await.is_err() {
        std::future::pending().await
    }
}

/// The running wakes. One that panics ends as one that failed: its conversation is woken again.
#[derive(Default)]
struct Wakes(JoinSet<(Scoped<ConversationId>, bool)>);

impl Wakes {
    fn start(
        &mut self,
        id: Scoped<ConversationId>,
        wake: impl Future<Output = bool> + Send + 'static,
    ) {
        self.0.spawn(async move {
            let woken = AssertUnwindSafe(wake).catch_unwind().await.unwrap_or_else(|_| {
                tracing::error!(conversation = %id, "wake panicked");
                false
            });
            (id, woken)
        });
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    /// The conversation of a wake that has ended, and whether it was woken.
    fn next_ended(&mut self) -> Option<(Scoped<ConversationId>, bool)> {
        // No wake is aborted, and none panics outside `catch_unwind`.
        self.0.try_join_next().and_then(Result::ok)
    }
}

/// Wakes a conversation. Returns whether it was woken.
async fn wake(
    conversations: ConversationRouter,
    clock: Arc<dyn Clock>,
    id: Scoped<ConversationId>,
    due: Timestamp,
) -> bool {
    let wake = conversations.deliver(&id, Request::Wake, Vec::new());
    match tokio::time::timeout(WAKE_TIMEOUT, wake).await {
        Ok(Ok(_)) => {
            let lag = clock.now().duration_since(due).as_secs_f64().max(0.0);
            metrics::histogram!("abide_alarm_lag_seconds").record(lag);
            true
        }
        Ok(Err(error)) => {
            let is_gone = is_quarantined(&error) && delete_if_expired(&conversations, &id).await;
            if !is_gone {
                tracing::warn!(conversation = %id, %error, "alarm not delivered");
            }
            is_gone
        }
        Err(_) => false,
    }
}

fn is_quarantined(error: &RequestError) -> bool {
    matches!(error, RequestError::Quarantined(_))
}

/// Deletes a conversation that no actor can delete, if its own end has come. Returns whether it did.
async fn delete_if_expired(
    conversations: &ConversationRouter,
    id: &Scoped<ConversationId>,
) -> bool {
    let request = Request::DeleteIf(DeletionCondition::Expired);
    let deletion = conversations.deliver(id, request, Vec::new());
    matches!(tokio::time::timeout(WAKE_TIMEOUT, deletion).await, Ok(Ok(Reply::Deleted)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    async fn panicking_wake() -> bool {
        panic!("a bug")
    }

    #[tokio::test]
    async fn the_conversation_of_a_wake_that_panics_is_woken_again() {
        let (mut wakes, mut planner) = (Wakes::default(), AlarmPlanner::default());
        let (id, now) = (Scoped::<ConversationId>::parse("x").unwrap(), Timestamp::UNIX_EPOCH);
        planner.expect(vec![(now, id.clone())]);
        assert_eq!(planner.plan(now, 0).0, [(id.clone(), now)]);
        wakes.start(id.clone(), panicking_wake());
        let ended = loop {
            if let Some(ended) = wakes.next_ended() {
                break ended;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(ended, (id.clone(), false));
        planner.finish(ended.0, ended.1, now);
        let later = planner::after(now, Duration::from_secs(2));
        let partitions = PartitionSet::all();
        let poll = planner.next_poll(later, &partitions).unwrap();
        planner.learn(poll, partitions, vec![(id.clone(), now)]);
        assert_eq!(planner.plan(later, wakes.count()).0, [(id, now)]);
    }
}
