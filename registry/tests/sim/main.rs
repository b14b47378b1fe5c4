//! Deterministic simulation of a cluster: thousands of random schedules, on one thread with virtual
//! time.
//!
//! **The product's code** that runs here: the core (`decide`, `wanted`, `replay`), `placement`
//! (`locate`, which finds or chooses a conversation's node, and `is_orphan`), `Lease`,
//! `LeaseTracker`, `AlarmPlanner`, `PartitionSet`, `CrashHistory`, `ClusterView`, the take-over's
//! `is_news`, and the memory store. A mistake in one of these decisions, in any order of events that
//! the schedules produce, is found here.
//!
//! **Re-implemented here** is the shell that calls these decisions: the actor (`actor.rs`, with
//! scripted `activities.rs`), the host's loop (`host.rs`), the router (`router.rs`), the node and
//! its tasks (`node.rs`, `tasks.rs`), the member table by the rules of its Lua scripts
//! (`member_table.rs`), and the network (`network.rs`), without the handshake and the mesh of
//! connections. These files mirror the product's, step by step.
//!
//! **What this proves**: these decisions together keep every promise (`invariants.rs`) under
//! crashes, stops, drains, wrong clocks, lost replies and cut links, provided that a shell takes
//! the steps in this order. **What it does not prove**: that the product's shell does. A mistake
//! that is only in the actor, host, router, heartbeat, mesh, Lua scripts or Redis store is found by
//! `registry/tests/node`, `registry/tests/peers`, the stores' conformance tests and the tests with
//! real processes. A change to the order of the shell's steps must be made in both.
#![allow(clippy::unwrap_used, unreachable_pub)]

mod activities;
mod actor;
mod executor;
mod host;
mod invariants;
mod member_table;
mod mutation;
mod network;
mod node;
mod partition_cache;
mod random;
mod router;
mod run;
mod schedule;
mod store;
mod tasks;
mod world;

use std::ops::Range;

use mutation::Mutation;
use run::{RunSummary, run, run_seed, shrink};

/// mimalloc, because half of a schedule's time goes into short-lived allocations.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The schedules of an ordinary run, which takes some seconds in an unoptimised build. `SIM_SEED`
/// sets another first seed, `SIM_SCHEDULES` another number.
const SCHEDULES: u64 = 6_000;
/// The number of schedules within which a mutation must be noticed.
const MAX_SEARCHED_SCHEDULES: u64 = 5_000;

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
    let mut total = RunSummary::default();
    let mut slowest = 0;
    for seed in seeds() {
        let summary = run_seed(seed).unwrap_or_else(|violation| panic!("{violation}"));
        total.commits += summary.commits;
        total.claims += summary.claims;
        total.fenced += summary.fenced;
        total.promises += summary.promises;
        total.runs += summary.runs;
        slowest = slowest.max(summary.settled_ms);
    }
    eprintln!("{} schedules: {total:?}, settled after at most {slowest} ms", seeds().count());
    let many = seeds().count() > 100;
    assert!(
        !many || total.fenced > 0 && total.promises > 0 && total.runs > 0,
        "the schedules tested nothing"
    );
}

#[test]
fn a_seed_always_gives_the_same_schedule_and_the_same_result() {
    for seed in 0..5 {
        let operations = schedule::schedule(seed);
        assert_eq!(operations, schedule::schedule(seed));
        let traces = [(); 2].map(|()| run(seed, &operations, None).map(|summary| summary.trace));
        assert_eq!(traces[0], traces[1]);
        assert_ne!(traces[0], Ok(0), "the schedule did nothing");
    }
}

/// Checks that a mutation makes some schedule fail with this complaint, and that a shorter schedule
/// fails in the same way, twice.
fn is_noticed(mutation: Mutation, says: &str) {
    let failed = |seed: u64| {
        let operations = schedule::schedule(seed);
        let violation = run(seed, &operations, Some(mutation)).err()?;
        violation.contains(says).then_some((seed, operations))
    };
    let found = (0..MAX_SEARCHED_SCHEDULES).find_map(failed);
    let (seed, operations) = found.unwrap_or_else(|| panic!("{mutation:?} is not noticed"));
    let before = operations.len();
    let (shorter, violation) = shrink(seed, operations, Some(mutation));
    assert!(shorter.len() < before, "{mutation:?}: {violation}: {shorter:?}");
    assert_eq!(
        run(seed, &shorter, Some(mutation)).err(),
        Some(violation),
        "the shrunk schedule does not fail again"
    );
}

#[test]
fn a_store_that_forgets_the_fence_is_noticed() {
    is_noticed(Mutation::NoFence, "writes after");
}

#[test]
fn a_claim_that_takes_from_the_living_is_noticed() {
    is_noticed(Mutation::ClaimIgnoresHolder, "which is a member");
}

#[test]
fn a_member_table_that_declares_the_living_dead_is_noticed() {
    is_noticed(Mutation::DeclaresLivingDead, "which is a member");
}

#[test]
fn a_member_table_that_declares_nobody_dead_is_noticed() {
    is_noticed(Mutation::NeverDeclaresDead, "never settles");
}

#[test]
fn a_store_that_acknowledges_what_it_does_not_write_is_noticed() {
    is_noticed(Mutation::AckWithoutWrite, "");
}

#[test]
fn a_sweeper_that_closes_without_compare_and_set_is_noticed() {
    is_noticed(Mutation::WakeBypassesRouter, "closed twice");
}

#[test]
fn alarms_that_are_lost_are_noticed() {
    is_noticed(Mutation::NoAlarms, "never settles");
}

#[test]
fn conversations_that_nobody_finds_are_noticed() {
    is_noticed(Mutation::NoActiveMark, "never settles");
}

#[test]
fn a_node_that_starts_tools_after_its_lease_is_noticed() {
    is_noticed(Mutation::StoppedClock, "could not renew its lease");
}

#[test]
fn a_host_that_lets_the_fenced_rest_is_noticed() {
    is_noticed(Mutation::FencedNotRestarted, "never settles");
}

#[test]
fn a_request_that_is_carried_twice_is_noticed() {
    is_noticed(Mutation::NetworkCarriesTwice, "is there twice");
}
