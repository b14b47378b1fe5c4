//! Wakes conversations whose alarm is due.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::request::Request;
use abide_conversation::{ConversationId, Timestamp};
use futures::StreamExt;

use crate::conversations::Conversations;
use crate::store::Store;

/// How late an alarm may be noticed that was set after the last look.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How many alarms are read at a look, at a time when many are due, and how many conversations are
/// woken at once. Most looks find nothing due, and a node that only waits should cost nothing.
const FEW: usize = 8;
const BATCH: usize = 1_000;
const AT_ONCE: usize = 64;
/// How long a conversation that could not be woken is left alone.
const AGAIN_AFTER: jiff::SignedDuration = jiff::SignedDuration::from_secs(5);

/// Runs until it is dropped.
pub async fn run(conversations: Conversations, store: Arc<dyn Store>, clock: Arc<dyn Clock>) {
    let mut failed: HashMap<ConversationId, Timestamp> = HashMap::new();
    let mut read = FEW;
    loop {
        let wait = match store.alarms(read).await {
            Ok(alarms) => {
                let now = clock.now();
                let all_due = alarms.last().is_some_and(|(_, due)| *due <= now);
                read = if all_due { BATCH } else { FEW };
                failed.retain(|_, until| *until > now);
                let due: Vec<ConversationId> = alarms
                    .iter()
                    .filter(|(id, due)| *due <= now && !failed.contains_key(id))
                    .map(|(id, _)| id.clone())
                    .collect();
                let woke = !due.is_empty();
                for id in wake(&conversations, due).await {
                    failed.insert(id, now.checked_add(AGAIN_AFTER).unwrap_or(Timestamp::MAX));
                }
                let next = alarms.iter().map(|(_, due)| *due).find(|due| *due > now);
                if woke { Duration::ZERO } else { until(next, now) }
            }
            Err(refusal) => {
                tracing::warn!(%refusal, "alarms cannot be read");
                Duration::from_secs(1)
            }
        };
        tokio::time::sleep(wait).await;
    }
}

/// Wakes them all. Returns those that could not be.
async fn wake(conversations: &Conversations, due: Vec<ConversationId>) -> Vec<ConversationId> {
    let wake = |id: ConversationId| async move {
        let woken = conversations.deliver(&id, Request::Wake, Vec::new()).await;
        let failure = woken.err()?;
        tracing::warn!(conversation = %id, %failure, "an alarm could not be delivered");
        Some(id)
    };
    let woken = futures::stream::iter(due).map(wake).buffer_unordered(AT_ONCE);
    woken.filter_map(|failed| async move { failed }).collect().await
}

fn until(next: Option<Timestamp>, now: Timestamp) -> Duration {
    let next = next.and_then(|next| Duration::try_from(next.duration_since(now)).ok());
    next.map_or(LOOK_EVERY, |next| next.min(LOOK_EVERY))
}
