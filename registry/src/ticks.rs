//! Sends the ticks of the schedules in this node's partitions when they are due.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::journal::StoreError;
use abide_actors::near_alarms::ALARM_POLL_INTERVAL;
use abide_conversation::{ScheduleName, Scoped, Timestamp};
use async_trait::async_trait;
use futures::FutureExt;
use tokio::task::JoinSet;

use crate::alarms::planner::{AlarmPlanner, after};
use crate::cluster_client::ClusterClient;
use crate::schedules::{LastTick, MAX_MISSED_TICKS, Schedule, SentTick, tick_name};
use crate::store::Store;

/// How long one tick may take to be sent: the node of its conversation may hang.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the store is left alone that could not be asked.
const STORE_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Sends the message of a tick, as whoever put the schedule.
#[async_trait]
pub trait TickSender: Send + Sync + 'static {
    /// A tick that was sent before is not sent again: the outcome is the same.
    async fn send(
        &self,
        id: &Scoped<ScheduleName>,
        schedule: &Schedule,
        tick: &str,
    ) -> Result<SentTick, TickError>;
}

/// Why a tick was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TickError {
    /// It is to be sent again.
    #[error("{0}")]
    Later(String),
    /// It would be refused again.
    #[error("{0}")]
    Refused(String),
}

impl From<StoreError> for TickError {
    fn from(error: StoreError) -> Self {
        Self::Later(error.to_string())
    }
}

/// Runs until it is dropped.
pub async fn run(
    cluster: ClusterClient,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    sender: Arc<dyn TickSender>,
) {
    let mut planner = AlarmPlanner::<ScheduleName>::default();
    let mut firings = JoinSet::new();
    let mut is_store_away = false;
    let mut seen = cluster.watch();
    loop {
        while let Some(Ok(Fired { id, next })) = firings.try_join_next() {
            let is_done = next.is_ok();
            let horizon = after(clock.now(), ALARM_POLL_INTERVAL);
            if let Some(next) = next.ok().flatten().filter(|next| *next <= horizon) {
                planner.expect(vec![(next, Scoped::clone(&id))]);
            }
            planner.finish(id, is_done, clock.now());
        }
        let partitions = seen.borrow_and_update().partitions.clone();
        if let Some(poll) = planner.next_poll(clock.now(), &partitions) {
            match store.due_schedules(&partitions, poll.until, poll.limit).await {
                Ok(due) => {
                    is_store_away = false;
                    planner.learn(poll, partitions.clone(), due);
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_store_away, true) {
                        tracing::warn!(%error, "schedules cannot be read");
                    }
                    let retry_at = after(clock.now(), STORE_RETRY_DELAY);
                    planner.retry_poll(partitions.clone(), retry_at);
                }
            }
        }
        let (due, wait) = planner.plan(clock.now(), firings.len());
        for (id, _) in due {
            let firing =
                Firing { store: store.clone(), clock: clock.clone(), sender: sender.clone() };
            firings.spawn(firing.fire_safely(id));
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = seen.wait_for(|view| view.partitions != partitions) => {}
        }
    }
}

/// What became of the ticks of a schedule that were due, and when the next is; `Err` if they are to be
/// sent again.
struct Fired {
    id: Scoped<ScheduleName>,
    next: Result<Option<Timestamp>, TickError>,
}

/// What it takes to send ticks.
struct Firing {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    sender: Arc<dyn TickSender>,
}

impl Firing {
    async fn fire_safely(self, id: Scoped<ScheduleName>) -> Fired {
        let fired = AssertUnwindSafe(self.fire(&id)).catch_unwind().await;
        let next = fired.unwrap_or_else(|_| Err(TickError::Later("a bug".to_owned())));
        if let Err(error) = &next {
            tracing::warn!(schedule = %id, %error, "tick not sent");
        }
        Fired { id, next }
    }

    /// Sends what is due, one tick after another. Each is recorded before the next: whoever goes on from
    /// there finds it done, and a tick that was sent and not recorded is recognised by its message.
    async fn fire(&self, id: &Scoped<ScheduleName>) -> Result<Option<Timestamp>, TickError> {
        for _ in 0..MAX_MISSED_TICKS {
            let Some(schedule) = self.store.schedule(id).await? else { return Ok(None) };
            let now = self.clock.now();
            let Some((tick, done)) = schedule.step(now) else { return Ok(schedule.due_at()) };
            let last = match tick {
                Some(at) => Some(self.send(id, &schedule, at).await?),
                None => None,
            };
            let moved_on = schedule.after_tick(done, last);
            let known = Some(schedule.version);
            // A change that came between has its own next tick, after this one.
            self.store.replace_schedule(id, known, Some(&moved_on)).await?;
        }
        Ok(Some(self.clock.now()))
    }

    async fn send(
        &self,
        id: &Scoped<ScheduleName>,
        schedule: &Schedule,
        at: Timestamp,
    ) -> Result<LastTick, TickError> {
        let tick = tick_name(at);
        let sending = self.sender.send(id, schedule, &tick);
        let sent = tokio::time::timeout(SEND_TIMEOUT, sending)
            .await
            .unwrap_or_else(|_| Err(TickError::Later("the tick took too long".to_owned())));
        let (sent, error, result) = match sent {
            Ok(sent) => (Some(sent), None, "sent"),
            Err(TickError::Refused(why)) => (None, Some(why), "refused"),
            Err(later) => return Err(later),
        };
        metrics::counter!("abide_ticks_total", "result" => result).increment(1);
        let lag = self.clock.now().duration_since(at).as_secs_f64().max(0.0);
        metrics::histogram!("abide_tick_lag_seconds").record(lag);
        Ok(LastTick { at, tick, sent, error })
    }
}
