//! Writes conversations as nodes write their first commits, and without nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use abide_actors::conversation::relist;
use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::{Commit, Holder, Relisting, StoreError};
use abide_conversation::{ConversationId, Event, Scoped, State, Tenant, replay};
use abide_registry::store::Store;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::task::JoinSet;

use super::super::{Load, LoadError, load_error};
use super::{AGENTS, BRIEF, INDEXED};

/// How many conversations an owner has, and a customer.
pub(super) const CONVERSATIONS_EACH: u32 = 10;
/// For how many days nothing has happened in the conversations of the large agents.
const IDLE_DAYS: i64 = 30;

/// A worker's store, and how it holds conversations.
#[derive(Clone)]
struct Filler {
    store: Arc<dyn Store>,
    me: Holder,
    /// When the first conversation was created; each other one a millisecond after the one before.
    first_at: Timestamp,
    indexed: Arc<[String]>,
}

/// Writes this many conversations of the large agents, and a few of the brief one. Returns how long
/// it took.
pub(super) async fn fill(
    load: &Load,
    store: Arc<dyn Store>,
    count: u32,
) -> Result<Duration, LoadError> {
    let first_at = Timestamp::now().checked_sub(SignedDuration::from_hours(24 * IDLE_DAYS));
    let filler = Filler {
        store,
        me: Holder { node: NodeName::new("filler"), incarnation: Incarnation::new("1") },
        first_at: first_at.map_err(|error| load_error("the time", error))?,
        indexed: INDEXED.map(str::to_owned).into(),
    };
    let (next, mut workers) = (Arc::new(AtomicU32::new(0)), JoinSet::new());
    let begun = Instant::now();
    for _ in 0..load.concurrency {
        let (filler, next) = (filler.clone(), next.clone());
        workers.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= count + CONVERSATIONS_EACH {
                    return Ok::<_, LoadError>(());
                }
                let agent = if n < count { AGENTS[n as usize % 2] } else { BRIEF };
                filler.write(n, agent, count).await?;
            }
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker.map_err(|error| load_error("a worker", error))??;
    }
    Ok(begun.elapsed())
}

impl Filler {
    async fn write(&self, n: u32, agent: &str, count: u32) -> Result<(), LoadError> {
        let event = self.created(n, agent, count)?;
        let failed = |error: StoreError| load_error("filling the store", error);
        let id = Scoped::new(&Tenant::default(), &ConversationId::new(format!("found-{n}")));
        let state = replay(State::default(), std::slice::from_ref(&event));
        let mut first = Commit::new([event].into(), relist::summary(&state));
        first.relisting = Relisting::Whole { indexed: self.indexed.clone() };
        let claim = self.store.claim(&id, &self.me, None).await.map_err(failed)?;
        self.store.append(&id, &claim, first).await.map_err(failed)?;
        self.store.release(&id, &claim).await.map_err(failed)
    }

    fn created(&self, n: u32, agent: &str, count: u32) -> Result<Event, LoadError> {
        let failed = |error: &dyn std::fmt::Display| load_error("an event", error);
        let at = self.first_at.checked_add(SignedDuration::from_millis(i64::from(n)));
        let created = json!({
            "agent": agent,
            "owner": format!("owner-{}", n / CONVERSATIONS_EACH),
            "title": format!("Conversation {n}"),
            "metadata": {
                "area": "one",
                "customer": format!("customer-{}", n % (count / CONVERSATIONS_EACH)),
                "ticket": format!("ticket-{n}"),
            },
        });
        let at = at.map_err(|error| failed(&error))?;
        let event = json!({"seq": 1, "at": at, "type": "created", "data": created});
        abide_conversation::from_json(event.to_string().as_bytes()).map_err(|error| failed(&error))
    }
}
