//! Wakes the conversations of this node's partitions whose alarm is due.

pub mod planner;

use std::sync::Arc;
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::request::Request;
use abide_conversation::{ConversationId, Timestamp};
use tokio::task::JoinSet;

use crate::router::ConversationRouter;
use crate::store::Store;
use planner::AlarmPlanner;

/// How long waking one conversation may take: its node may hang, and other alarms wait.
const WAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// The delay before reading again from a store that is away, which bounds how long its return goes
/// unnoticed.
const STORE_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Runs until it is dropped.
pub async fn run(conversations: ConversationRouter, store: Arc<dyn Store>, clock: Arc<dyn Clock>) {
    let mut planner = AlarmPlanner::default();
    let mut running = JoinSet::new();
    let mut is_store_away = false;
    loop {
        let now = clock.now();
        while let Some(result) = running.try_join_next() {
            let Ok((id, woken)) = result else { continue };
            planner.finish(id, woken, now);
        }
        let partitions = conversations.cluster().view().partitions.clone();
        let poll = planner.next_poll(now);
        let wait = match store.due_alarms(&partitions, poll.until, poll.limit).await {
            Ok(alarms) => {
                is_store_away = false;
                let (due, wait) = planner.plan(poll, now, &alarms, running.len());
                for (id, due) in due {
                    running.spawn(wake(conversations.clone(), clock.clone(), id, due));
                }
                wait
            }
            Err(error) => {
                if !std::mem::replace(&mut is_store_away, true) {
                    tracing::warn!(%error, "alarms cannot be read");
                }
                STORE_RETRY_DELAY
            }
        };
        tokio::time::sleep(wait).await;
    }
}

/// Wakes a conversation. Returns its id and whether it was woken.
async fn wake(
    conversations: ConversationRouter,
    clock: Arc<dyn Clock>,
    id: ConversationId,
    due: Timestamp,
) -> (ConversationId, bool) {
    let wake = conversations.deliver(&id, Request::Wake, Vec::new());
    let woken = match tokio::time::timeout(WAKE_TIMEOUT, wake).await {
        Ok(Ok(_)) => {
            let lag = clock.now().duration_since(due).as_secs_f64().max(0.0);
            metrics::histogram!("abide_alarm_lag_seconds").record(lag);
            true
        }
        Ok(Err(error)) => {
            tracing::warn!(conversation = %id, %error, "alarm not delivered");
            false
        }
        Err(_) => false,
    };
    (id, woken)
}
