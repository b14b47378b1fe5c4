//! The journals of turns, written as nodes write them and without nodes: what one Redis carries.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::{Commit, Holder, StoreError};
use abide_conversation::{ConversationId, Scoped, Tenant};
use abide_registry::store::Store;
use tokio::task::JoinSet;

use super::redis::{self, Redis, Usage};
use super::report::Report;
use super::{Load, LoadError, bare_node, load_error};

/// Turns before the measurement starts.
const WARM_UP_TURNS: u32 = 500;

/// The measurements.
pub(super) struct JournalsMeasurement {
    pub(super) drivers: u32,
    pub(super) turns: u32,
    pub(super) commits_per_turn: usize,
    pub(super) took: Duration,
    /// `None` for a Redis that this program has not started.
    pub(super) redis: Option<Usage>,
    /// From a commit until it is acknowledged, sorted.
    pub(super) acknowledged: Vec<Duration>,
}

/// One node's part: a store of its own, with connections of its own.
#[derive(Clone)]
struct Driver {
    store: Arc<dyn Store>,
    me: Holder,
    commits: Arc<[Commit]>,
}

/// Lets this many drivers write the journals of `load.conversations` turns.
pub(super) async fn run(load: &Load, drivers: u32, dir: &Path) -> Result<Report, LoadError> {
    let (own, url) = match &load.redis {
        Some(url) => (None, url.clone()),
        None => {
            let redis = Redis::start(load.durability, dir).await?;
            let url = redis.url.clone();
            (Some(redis), url)
        }
    };
    let commits: Arc<[Commit]> = bare_node::commits()?.into();
    let mut all = Vec::new();
    for number in 0..drivers {
        let node = NodeName::new(format!("driver-{number}"));
        let me = Holder { node, incarnation: Incarnation::new("1") };
        let store = redis::open(&url, load.durability).await?;
        all.push(Driver { store, me, commits: commits.clone() });
    }
    let name = std::process::id();
    write(load, &all, &format!("warm-up-{name}"), WARM_UP_TURNS).await?;
    let before = redis::usage(own.as_ref()).await?;
    let started = Instant::now();
    let acknowledged = write(load, &all, &format!("turn-{name}"), load.conversations).await?;
    let took = started.elapsed();
    let after = redis::usage(own.as_ref()).await?;
    let measured = JournalsMeasurement {
        drivers,
        turns: load.conversations,
        commits_per_turn: commits.len(),
        took,
        redis: after.zip(before).map(|(after, before)| after.since(before)),
        acknowledged,
    };
    Ok(Report::of_journals(load, &measured))
}

/// Writes the turns, `load.concurrency` at once. Returns how long each commit took, sorted.
async fn write(
    load: &Load,
    drivers: &[Driver],
    name: &str,
    turns: u32,
) -> Result<Vec<Duration>, LoadError> {
    let begun = Arc::new(AtomicU32::new(0));
    let mut workers = JoinSet::new();
    for worker in 0..load.concurrency as usize {
        let (driver, begun) = (drivers[worker % drivers.len()].clone(), begun.clone());
        let name = name.to_owned();
        workers.spawn(async move {
            let mut took = Vec::new();
            loop {
                let number = begun.fetch_add(1, Ordering::Relaxed);
                if number >= turns {
                    return Ok::<_, StoreError>(took);
                }
                let id = ConversationId::new(format!("{name}:{number}"));
                let id = Scoped::new(&Tenant::default(), &id);
                driver.write_turn(&id, &mut took).await?;
            }
        });
    }
    let mut took = Vec::new();
    while let Some(worker) = workers.join_next().await {
        let worker = worker.map_err(|error| load_error("a worker", error))?;
        took.extend(worker.map_err(|error| load_error("a commit", error))?);
    }
    took.sort_unstable();
    Ok(took)
}

impl Driver {
    /// Appends the commits of a turn to a new conversation, which the first claims.
    async fn write_turn(
        &self,
        id: &Scoped<ConversationId>,
        took: &mut Vec<Duration>,
    ) -> Result<(), StoreError> {
        let mut claim = None;
        for commit in self.commits.iter().cloned() {
            let started = Instant::now();
            match &claim {
                Some(claim) => self.store.append(id, claim, commit).await?,
                None => claim = Some(self.store.claim_and_append(id, &self.me, commit).await?),
            }
            took.push(started.elapsed());
        }
        Ok(())
    }
}
