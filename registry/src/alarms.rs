//! Wakes the conversations of this node's share whose alarm is due.

pub mod planner;

use std::sync::Arc;
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::request::Request;
use abide_conversation::{ConversationId, Timestamp};
use tokio::task::JoinSet;

use crate::router::Conversations;
use crate::store::Store;
use planner::AlarmPlanner;

/// How long one may take: its node may have been stopped, and others are waiting.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long to wait for a store that is away.
const AWAY: Duration = Duration::from_secs(1);

/// Runs until it is dropped.
pub async fn run(conversations: Conversations, store: Arc<dyn Store>, clock: Arc<dyn Clock>) {
    let mut agenda = AlarmPlanner::default();
    let mut under_way = JoinSet::new();
    loop {
        let now = clock.now();
        while let Some(done) = under_way.try_join_next() {
            let Ok((id, woken)) = done else { continue };
            agenda.done(id, woken, now);
        }
        let share = conversations.cluster().view().share.clone();
        let look = agenda.look(now);
        let wait = match store.due(&share, look.until, look.limit).await {
            Ok(alarms) => {
                let (due, wait) = agenda.read(look, now, &alarms, under_way.len());
                for (id, due) in due {
                    under_way.spawn(wake(conversations.clone(), clock.clone(), id, due));
                }
                wait
            }
            Err(refusal) => {
                tracing::warn!(%refusal, "alarms cannot be read");
                AWAY
            }
        };
        tokio::time::sleep(wait).await;
    }
}

/// Returns whether it was woken.
async fn wake(
    conversations: Conversations,
    clock: Arc<dyn Clock>,
    id: ConversationId,
    due: Timestamp,
) -> (ConversationId, bool) {
    let wake = conversations.deliver(&id, Request::Wake, Vec::new());
    let woken = match tokio::time::timeout(PATIENCE, wake).await {
        Ok(Ok(_)) => {
            let lag = clock.now().duration_since(due).as_secs_f64().max(0.0);
            metrics::histogram!("abide_alarm_lag_seconds").record(lag);
            true
        }
        Ok(Err(failure)) => {
            tracing::warn!(conversation = %id, %failure, "an alarm was not delivered");
            false
        }
        Err(_) => false,
    };
    (id, woken)
}
