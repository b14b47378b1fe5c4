//! Runs schedules, and shrinks those that fail.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tokio::runtime::{Builder, Runtime};

use crate::invariants;
use crate::mutation::Mutation;
use crate::schedule::{FAULTS_MS, ScheduledOperation, end_faults, schedule};
use crate::world::{NODES, World};

/// How long everything may take to settle after the last fault.
const CALM_MS: u64 = 25_000;
/// How often the runner checks whether everything is settled.
const CHECK_INTERVAL_MS: u64 = 200;
/// The most steps of a run. No correct run has this many; one that does is in a live-lock.
const MAX_STEPS: u64 = 400_000;

/// What a schedule that passed did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunSummary {
    /// A hash of everything that was done; equal for equal schedules.
    pub trace: u64,
    pub commits: u64,
    pub claims: u64,
    pub fenced: u64,
    pub promises: u64,
    pub runs: u64,
    /// How often something notable happened.
    pub coverage: BTreeMap<&'static str, u64>,
    /// The time from the last fault until everything was settled.
    pub settled_ms: u64,
}

impl RunSummary {
    /// Adds what another schedule did; the slowest counts for the time.
    pub fn add(&mut self, other: Self) {
        self.commits += other.commits;
        self.claims += other.claims;
        self.fenced += other.fenced;
        self.promises += other.promises;
        self.runs += other.runs;
        for (what, count) in other.coverage {
            *self.coverage.entry(what).or_default() += count;
        }
        self.settled_ms = self.settled_ms.max(other.settled_ms);
    }
}

/// Runs a schedule to its end, or to the first violation.
pub fn run(
    seed: u64,
    operations: &[ScheduledOperation],
    mutation: Option<Mutation>,
) -> Result<RunSummary, String> {
    let clock = clock();
    let _entered = clock.enter();
    let world = World::new(seed, mutation, false);
    let result = run_in(&world, seed, operations);
    world.end();
    result
}

/// Tokio's clock for one run, by which the product's store reconnects. It stands still until the
/// executor sets it, and its timers never fire.
fn clock() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// Runs a schedule again, and returns its trace, line by line.
fn trace_lines(
    seed: u64,
    operations: &[ScheduledOperation],
    mutation: Option<Mutation>,
) -> Vec<String> {
    let clock = clock();
    let _entered = clock.enter();
    let world = World::new(seed, mutation, true);
    // The result is known already.
    let _ = run_in(&world, seed, operations);
    world.end();
    world.trace_lines.as_ref().map(|trace_lines| trace_lines.take()).unwrap_or_default()
}

fn run_in(
    world: &std::rc::Rc<World>,
    seed: u64,
    operations: &[ScheduledOperation],
) -> Result<RunSummary, String> {
    (0..NODES).for_each(|slot| world.start(slot));
    let mut steps_left = MAX_STEPS;
    for scheduled in operations {
        run_until(world, scheduled.at, &mut steps_left)?;
        scheduled.carry_out(world);
    }
    run_until(world, FAULTS_MS, &mut steps_left)?;
    end_faults(world, seed);
    let begun = world.exec.now();
    while !invariants::is_settled(world) {
        if world.exec.now() > begun + CALM_MS {
            return Err(invariants::unsettled(world).unwrap_or_default());
        }
        run_until(world, world.exec.now() + CHECK_INTERVAL_MS, &mut steps_left)?;
    }
    let violation = invariants::promises(world);
    match violation.or_else(|| world.store.violation.borrow().clone()) {
        Some(violation) => Err(violation),
        None => Ok(RunSummary {
            trace: world.store.observer.borrow().trace,
            commits: world.store.observer.borrow().commits,
            claims: world.store.observer.borrow().claims,
            coverage: world.store.coverage.borrow().clone(),
            fenced: world.store.fenced.get(),
            promises: world.promises.borrow().len() as u64,
            runs: world.runs.borrow().values().map(|runs| u64::from(*runs)).sum(),
            settled_ms: world.exec.now() - begun,
        }),
    }
}

fn run_until(world: &World, at: u64, steps_left: &mut u64) -> Result<(), String> {
    while world.exec.step(at) {
        *steps_left -= 1;
        if *steps_left == 0 {
            return Err("the run never ends: live-lock".to_owned());
        }
        if let Some(violation) = world.store.violation.borrow().as_ref() {
            return Err(violation.clone());
        }
    }
    Ok(())
}

/// Runs the schedule of a seed. A failure comes with the shortest failing schedule that was found.
pub fn run_seed(seed: u64) -> Result<RunSummary, String> {
    let operations = schedule(seed);
    let violation = match run(seed, &operations, None) {
        Ok(summary) => return Ok(summary),
        Err(violation) => violation,
    };
    let (operations, shorter) = shrink(seed, operations, None);
    let mut report = format!("SIM_SEED={seed}: {violation}\nshrunk to: {shorter}\n");
    for scheduled in &operations {
        let _ = writeln!(report, "  {:>5} {:?}", scheduled.at, scheduled.operation);
    }
    for line in trace_lines(seed, &operations, None) {
        let _ = writeln!(report, "{line}");
    }
    Err(report)
}

/// Takes operations out of a failing schedule as long as it still fails, of a mutation with its own
/// complaint: halves first, then single operations.
pub fn shrink(
    seed: u64,
    operations: Vec<ScheduledOperation>,
    mutation: Option<Mutation>,
) -> (Vec<ScheduledOperation>, String) {
    let mut operations = operations;
    let mut violation = run(seed, &operations, mutation).err().unwrap_or_default();
    let mut size = operations.len().div_ceil(2);
    while size > 0 {
        let (mut at, mut shorter) = (0, false);
        while at < operations.len() {
            let mut fewer = operations.clone();
            fewer.drain(at..(at + size).min(operations.len()));
            match run(seed, &fewer, mutation) {
                Err(shrunk_violation)
                    if mutation.is_none_or(|it| shrunk_violation.contains(it.complaint())) =>
                {
                    (operations, violation, shorter) = (fewer, shrunk_violation, true)
                }
                Ok(_) | Err(_) => at += size,
            }
        }
        size = if shorter && size == 1 { 1 } else { size / 2 };
    }
    (operations, violation)
}
