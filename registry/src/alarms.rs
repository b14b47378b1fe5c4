//! Wakes the conversations of this node's share whose alarm is due.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::request::Request;
use abide_conversation::{ConversationId, Timestamp};
use tokio::task::JoinSet;

use crate::conversations::Conversations;
use crate::store::Store;

/// How late an alarm may be noticed that was set after the last look.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How many alarms of a partition are read at a look, and how many when there are more. Most looks
/// find nothing due, and a node that only waits should cost nothing.
const FEW: usize = 8;
const BATCH: usize = 64;
/// How many conversations are woken at once.
const AT_ONCE: usize = 256;
/// How long one may take: its node may have been stopped, and others are waiting.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a conversation that could not be woken is left alone.
const AGAIN_AFTER: jiff::SignedDuration = jiff::SignedDuration::from_secs(1);
/// How long to wait while more may be due than were read.
const BRIEFLY: Duration = Duration::from_millis(10);
/// How long to wait for a store that is away.
const AWAY: Duration = Duration::from_secs(1);

/// Runs until it is dropped.
pub async fn run(conversations: Conversations, store: Arc<dyn Store>, clock: Arc<dyn Clock>) {
    let (under_way, leave) = Default::default();
    let mut wakes = Wakes { conversations, clock, under_way, leave };
    let mut read = FEW;
    loop {
        let now = wakes.clock.now();
        wakes.settle(now);
        let share = wakes.conversations.cluster().view().share.clone();
        let horizon = now.checked_add(LOOK_EVERY).unwrap_or(Timestamp::MAX);
        let wait = match store.due(&share, horizon, read).await {
            Ok(alarms) => {
                let due = alarms.iter().filter(|(_, due)| *due <= now);
                let many = due.clone().count() >= read;
                // Past those that are left alone there may be others.
                read = if many { BATCH + wakes.leave.len() } else { FEW };
                wakes.begin(due);
                let next = alarms.iter().map(|(_, due)| *due).find(|due| *due > now);
                if many { BRIEFLY } else { until(next, now) }
            }
            Err(refusal) => {
                tracing::warn!(%refusal, "alarms cannot be read");
                AWAY
            }
        };
        tokio::time::sleep(wait).await;
    }
}

/// The conversations that are being woken, and those that are to be left alone.
struct Wakes {
    conversations: Conversations,
    clock: Arc<dyn Clock>,
    under_way: JoinSet<(ConversationId, bool)>,
    /// Until when; those under way, until they are done.
    leave: HashMap<ConversationId, Timestamp>,
}

impl Wakes {
    fn begin<'a>(&mut self, due: impl Iterator<Item = &'a (ConversationId, Timestamp)>) {
        let due = due.filter(|(id, _)| !self.leave.contains_key(id)).cloned();
        for (id, due) in due.collect::<HashMap<_, _>>() {
            if self.under_way.len() >= AT_ONCE {
                return;
            }
            let (conversations, clock) = (self.conversations.clone(), self.clock.clone());
            self.leave.insert(id.clone(), Timestamp::MAX);
            self.under_way.spawn(async move {
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
            });
        }
    }

    fn settle(&mut self, now: Timestamp) {
        while let Some(done) = self.under_way.try_join_next() {
            let Ok((id, woken)) = done else { continue };
            match woken {
                true => self.leave.remove(&id),
                false => {
                    let until = now.checked_add(AGAIN_AFTER).unwrap_or(Timestamp::MAX);
                    self.leave.insert(id, until)
                }
            };
        }
        self.leave.retain(|_, until| *until > now);
    }
}

fn until(next: Option<Timestamp>, now: Timestamp) -> Duration {
    let next = next.and_then(|next| Duration::try_from(next.duration_since(now)).ok());
    next.map_or(LOOK_EVERY, |next| next.min(LOOK_EVERY))
}
