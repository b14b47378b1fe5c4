//! The registry's decisions under a simulated store, network and clocks: thousands of schedules.
#![allow(clippy::unwrap_used, unreachable_pub)]

mod actor;
mod broken;
mod chance;
mod check;
mod door;
mod exec;
mod host;
mod net;
mod node;
mod plan;
mod register;
mod run;
mod script;
mod store;
mod tasks;
mod world;

use std::ops::Range;

use run::{Passed, run_seed};

/// Of an ordinary run; `SIM_SEED` names another first one, `SIM_SCHEDULES` how many.
const SCHEDULES: u64 = 1_000;

fn seeds() -> Range<u64> {
    let named = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = named("SIM_SEED");
    let count = named("SIM_SCHEDULES").unwrap_or(if first.is_some() { 1 } else { SCHEDULES });
    let first = first.unwrap_or(0);
    first..first + count
}

#[test]
#[allow(clippy::print_stderr)]
fn every_promise_is_kept_in_every_schedule() {
    let mut total = Passed::default();
    let mut slowest = 0;
    for seed in seeds() {
        let passed = run_seed(seed).unwrap_or_else(|wrong| panic!("{wrong}"));
        total.commits += passed.commits;
        total.claims += passed.claims;
        total.fenced += passed.fenced;
        total.promises += passed.promises;
        total.runs += passed.runs;
        slowest = slowest.max(passed.settled_ms);
    }
    eprintln!("{} schedules: {total:?}, settled after at most {slowest} ms", seeds().count());
    assert!(total.fenced > 0 && total.promises > 0 && total.runs > 0, "nothing was tried");
}
