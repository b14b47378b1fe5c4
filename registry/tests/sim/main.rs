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
mod shares;
mod store;
mod tasks;
mod world;

use std::ops::Range;

use broken::Broken;
use run::{Passed, run, run_seed, shorten};

/// Half of what a schedule costs is memory for a moment.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Of an ordinary run, some seconds without much optimization; `SIM_SEED` names another first one,
/// `SIM_SCHEDULES` how many.
const SCHEDULES: u64 = 6_000;
/// Among how many a broken rule must be noticed.
const SEARCHED: u64 = 5_000;

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
    let many = seeds().count() > 100;
    assert!(!many || total.fenced > 0 && total.promises > 0 && total.runs > 0, "it does nothing");
}

#[test]
fn a_seed_always_gives_the_same_schedule_and_the_same_result() {
    for seed in 0..5 {
        let steps = plan::schedule(seed);
        assert_eq!(steps, plan::schedule(seed));
        let traces = [(); 2].map(|()| run(seed, &steps, None).map(|passed| passed.trace));
        assert_eq!(traces[0], traces[1]);
        assert_ne!(traces[0], Ok(0), "nothing was done");
    }
}

/// Some schedule fails where the world breaks this rule, with this complaint; a shorter one fails in
/// the same way, twice.
fn is_noticed(broken: Broken, says: &str) {
    let failed = |seed: u64| {
        let steps = plan::schedule(seed);
        let wrong = run(seed, &steps, Some(broken)).err()?;
        wrong.contains(says).then_some((seed, steps))
    };
    let found = (0..SEARCHED).find_map(failed);
    let (seed, steps) = found.unwrap_or_else(|| panic!("{broken:?} is not noticed"));
    let before = steps.len();
    let (shorter, wrong) = shorten(seed, steps, Some(broken));
    assert!(shorter.len() < before, "{broken:?}: {wrong}: {shorter:?}");
    assert_eq!(run(seed, &shorter, Some(broken)).err(), Some(wrong), "it fails again");
}

#[test]
fn a_store_that_forgets_the_fence_is_noticed() {
    is_noticed(Broken::NoFence, "writes after");
}

#[test]
fn a_claim_that_takes_from_the_living_is_noticed() {
    is_noticed(Broken::ClaimIgnoresHolder, "which is a member");
}

#[test]
fn a_member_table_that_declares_the_living_dead_is_noticed() {
    is_noticed(Broken::BuriesTheLiving, "which is a member");
}

#[test]
fn a_member_table_that_declares_nobody_dead_is_noticed() {
    is_noticed(Broken::PatientRegister, "never settles");
}

#[test]
fn a_store_that_acknowledges_what_it_does_not_write_is_noticed() {
    is_noticed(Broken::AckWithoutWrite, "");
}

#[test]
fn a_sweeper_that_closes_without_compare_and_set_is_noticed() {
    is_noticed(Broken::SweeperWithoutDoor, "closed twice");
}

#[test]
fn alarms_that_are_lost_are_noticed() {
    is_noticed(Broken::NoAlarms, "never settles");
}

#[test]
fn conversations_that_nobody_finds_are_noticed() {
    is_noticed(Broken::NoActiveMark, "never settles");
}

#[test]
fn a_node_that_starts_tools_after_its_lease_is_noticed() {
    is_noticed(Broken::StoppedClock, "could not renew its lease");
}

#[test]
fn a_host_that_lets_the_fenced_rest_is_noticed() {
    is_noticed(Broken::LetsTheFencedRest, "never settles");
}

#[test]
fn a_request_that_is_carried_twice_is_noticed() {
    is_noticed(Broken::CarriedTwice, "is there twice");
}
