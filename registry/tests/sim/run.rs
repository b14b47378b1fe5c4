//! Runs schedules, and shortens those that fail.

use std::fmt::Write as _;

use crate::broken::Broken;
use crate::check;
use crate::plan::{ROUGH_MS, Step, calm, schedule};
use crate::world::{NODES, World};

/// How long it may take until everything is settled, once nothing goes wrong any more.
const CALM_MS: u64 = 25_000;
/// How often that is looked at.
const LOOK_MS: u64 = 200;
/// No schedule has so many steps; one that has goes round in circles.
const LONGEST: u64 = 400_000;

/// What a schedule came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// The same for the same schedule.
    pub trace: u64,
    pub commits: u64,
    pub claims: u64,
    pub fenced: u64,
    pub promises: u64,
    pub runs: u64,
    /// Until everything was settled, from when everything was calm.
    pub settled_ms: u64,
}

/// Runs a schedule to its end, or to the first thing that must not be.
pub fn run(seed: u64, steps: &[Step], broken: Option<Broken>) -> Result<Passed, String> {
    let world = World::new(seed, broken, false);
    let done = live(&world, seed, steps);
    world.end();
    done
}

/// The same, told in lines.
fn story(seed: u64, steps: &[Step], broken: Option<Broken>) -> Vec<String> {
    let world = World::new(seed, broken, true);
    // It is known how it ends.
    let _ = live(&world, seed, steps);
    world.end();
    world.story.as_ref().map(|story| story.take()).unwrap_or_default()
}

fn live(world: &std::rc::Rc<World>, seed: u64, steps: &[Step]) -> Result<Passed, String> {
    (0..NODES).for_each(|slot| world.start(slot));
    let mut left = LONGEST;
    for step in steps {
        until(world, step.at, &mut left)?;
        step.carry_out(world);
    }
    until(world, ROUGH_MS, &mut left)?;
    calm(world, seed);
    let begun = world.exec.now();
    while !check::is_settled(world) {
        if world.exec.now() > begun + CALM_MS {
            return Err(check::unsettled(world).unwrap_or_default());
        }
        until(world, world.exec.now() + LOOK_MS, &mut left)?;
    }
    match check::promises(world) {
        Some(wrong) => Err(wrong),
        None => Ok(Passed {
            trace: world.store.trace.get(),
            commits: world.store.commits.get(),
            claims: world.store.claims.get(),
            fenced: world.store.fenced.get(),
            promises: world.promises.borrow().len() as u64,
            runs: world.runs.borrow().values().map(|runs| u64::from(*runs)).sum(),
            settled_ms: world.exec.now() - begun,
        }),
    }
}

fn until(world: &World, at: u64, left: &mut u64) -> Result<(), String> {
    while world.exec.step(at) {
        *left -= 1;
        if *left == 0 {
            return Err("it goes round in circles".to_owned());
        }
        if let Some(wrong) = world.store.wrong.borrow().as_ref() {
            return Err(wrong.clone());
        }
    }
    Ok(())
}

/// Runs the schedule of a seed. A failure is told with the shortest schedule found that fails.
pub fn run_seed(seed: u64) -> Result<Passed, String> {
    let steps = schedule(seed);
    let wrong = match run(seed, &steps, None) {
        Ok(passed) => return Ok(passed),
        Err(wrong) => wrong,
    };
    let (steps, shorter) = shorten(seed, steps, None);
    let mut told = format!("SIM_SEED={seed}: {wrong}\nshortened to: {shorter}\n");
    for step in &steps {
        let _ = writeln!(told, "  {:>5} {:?}", step.at, step.what);
    }
    for line in story(seed, &steps, None) {
        let _ = writeln!(told, "{line}");
    }
    Err(told)
}

/// Takes steps out of a schedule that fails, as long as it still does: halves first, then one by
/// one.
pub fn shorten(seed: u64, steps: Vec<Step>, broken: Option<Broken>) -> (Vec<Step>, String) {
    let mut steps = steps;
    let mut wrong = run(seed, &steps, broken).err().unwrap_or_default();
    let mut size = steps.len().div_ceil(2);
    while size > 0 {
        let (mut at, mut shorter) = (0, false);
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + size).min(steps.len()));
            match run(seed, &fewer, broken) {
                Err(still) => (steps, wrong, shorter) = (fewer, still, true),
                Ok(_) => at += size,
            }
        }
        size = if shorter && size == 1 { 1 } else { size / 2 };
    }
    (steps, wrong)
}
