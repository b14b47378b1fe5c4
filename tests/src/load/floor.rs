//! The store's bare commit rate with commits of the same size, which nothing built on the store can
//! exceed.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::Holder;
use abide_registry::store::Store;
use abide_registry::store::commit_benchmark::CommitBenchmark;
use abide_registry::store::embedded::{self, Embedded};

use super::turns::Turns;
use super::{Durability, Load, LoadError, load_error};

/// The bytes of a floor's event in addition to its text.
const EVENT_FRAME_BYTES: usize = 110;
/// Commits before the measurement starts.
const WARM_UP_COMMITS: usize = 500;
/// More commits than this do not make the rate more precise.
const MAX_COMMITS: u64 = 50_000;

/// The measured commit rate of a store.
pub(super) struct FloorRate {
    pub(super) commits: usize,
    pub(super) bytes: usize,
    pub(super) took: Duration,
}

impl FloorRate {
    pub(super) fn rate(&self) -> f64 {
        self.commits as f64 / self.took.as_secs_f64()
    }
}

/// Measures a new embedded store on the same disk, with as many commits as the turns made, of their
/// mean size, with as many in flight.
pub(super) async fn measure_embedded(
    load: &Load,
    turns: &Turns,
    dir: &Path,
) -> Result<FloorRate, LoadError> {
    measure(load, turns, open_embedded(load, dir)?).await
}

/// Opens an embedded store, which is made if it is not there.
pub(super) fn open_embedded(load: &Load, dir: &Path) -> Result<Arc<dyn Store>, LoadError> {
    let durability = match load.durability {
        Durability::Fsync => embedded::Durability::Fsync,
        Durability::Os => embedded::Durability::Os,
    };
    let store = Embedded::open(dir, durability);
    Ok(Arc::new(store.map_err(|error| load_error("an embedded store", error))?))
}

/// Measures any store.
pub(super) async fn measure(
    load: &Load,
    turns: &Turns,
    store: Arc<dyn Store>,
) -> Result<FloorRate, LoadError> {
    let me = Holder { node: NodeName::new("floor"), incarnation: Incarnation::new("1") };
    let failed = |refusal| load_error("the floor", refusal);
    let workers = load.concurrency as usize;
    let mut floor = CommitBenchmark::new(store, &me, workers).await.map_err(failed)?;
    let commits = usize::try_from(turns.counters.commits.clamp(1, MAX_COMMITS)).unwrap_or(1);
    let commits_per_turn = turns.counters.commits as f64 / f64::from(turns.count);
    let bytes = (turns.turn_bytes as f64 / commits_per_turn.max(1.0)) as usize;
    let text = bytes.saturating_sub(EVENT_FRAME_BYTES);
    floor.run(WARM_UP_COMMITS, text).await.map_err(failed)?;
    let started = Instant::now();
    floor.run(commits, text).await.map_err(failed)?;
    Ok(FloorRate { commits, bytes, took: started.elapsed() })
}
