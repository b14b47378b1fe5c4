//! Deterministic simulation of a cluster: thousands of random schedules, each on one thread with
//! virtual time.
//!
//! **The product's code** that runs here: the core (`decide`, `wanted`, `replay`), `placement`
//! (`locate`, which finds or chooses a conversation's node, and `is_orphan`), `Lease`,
//! `LeaseTracker`, `AlarmPlanner`, `PartitionSet`, `CrashHistory`, `ClusterView`, the take-over's
//! `is_news`, and the Redis store: its connections with their repeats, `WAIT`, paging, decoding, and
//! the Lua scripts, executed. A mistake in one of these, in any order of events that the schedules
//! produce, is found here.
//!
//! **A model** stands for the Redis servers (`redis.rs`): a primary with replicas that crashes, fails
//! over, is split from its replicas, forgets what they have not received, runs full, hangs, loses its
//! scripts, and whose clock is set back. Random commands and random calls of the store must be
//! answered by it as by a real server (`redis/compared.rs`, `redis/compared_store.rs`).
//!
//! **Re-implemented here** is the shell that calls these decisions: the actor (`actor.rs`, with
//! scripted `activities.rs` and `family.rs`), the host's loop (`host.rs`), the router (`router.rs`),
//! the node and its tasks (`node.rs`, `tasks.rs`), imports (`imports.rs`), and the network
//! (`network.rs`), without the handshake and the mesh of connections. These files mirror the
//! product's, step by step.
//!
//! **What this proves**: these decisions and this store together keep every promise
//! (`invariants.rs`, `observer.rs`, `reads.rs`) under crashes, stops, drains, wrong clocks, lost
//! replies, cut links and failing servers, provided that a shell takes the steps in this order.
//! **What it does not prove**: that the product's shell does. A mistake that is only in the actor,
//! host, router, heartbeat or mesh is found by `registry/tests/node`, `registry/tests/peers` and the
//! tests with real processes. A change to the order of the shell's steps must be made in both.
#![allow(clippy::unwrap_used, unreachable_pub)]

mod activities;
mod actor;
mod erasures;
mod executor;
mod family;
mod forgetful;
mod host;
mod imports;
mod invariants;
mod mutation;
mod network;
mod node;
mod non_interference;
mod notices;
mod observer;
mod partition_cache;
mod random;
mod reads;
mod redis;
mod rollouts;
mod router;
mod run;
mod schedule;
mod server_faults;
mod steering;
mod store;
mod tasks;
mod ticks;
mod usage;
mod workers;
mod world;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use abide_registry::store::redis::Durability;
use mutation::Mutation;
use run::{RunSummary, run, run_seed, shrink};

/// mimalloc, because half of a schedule's time goes into short-lived allocations.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The schedules of an ordinary run, which takes 100 s of one core in an unoptimised build.
/// `SIM_SEED` sets another first seed, `SIM_SCHEDULES` another number. `--nocapture` shows what they
/// covered.
const SCHEDULES: u64 = 3_000;
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
    let total = run_all(&seeds()).unwrap_or_else(|violation| panic!("{violation}"));
    eprintln!("{} schedules: {total:#?}", seeds().count());
    let many = seeds().count() > 100;
    assert!(
        !many || total.fenced > 0 && total.promises > 0 && total.runs > 0,
        "the schedules tested nothing"
    );
    for what in [
        "server crashes",
        "server splits",
        "unknown scripts",
        "deletions",
        "forks",
        "conversations let out",
        "leases",
        "callbacks",
        "notices",
        "ticks",
        "persons erased",
        "imports",
        "imports undone",
        "rollouts changed",
        "revisions chosen",
    ] {
        assert!(!many || total.coverage.contains_key(what), "no schedule had {what}");
    }
}

/// Runs the schedules of these seeds on all cores, and adds up what they did.
fn run_all(seeds: &Range<u64>) -> Result<RunSummary, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let failed = AtomicBool::new(false);
    let share = |offset: usize| -> Result<RunSummary, String> {
        let mut total = RunSummary::default();
        for seed in seeds.clone().skip(offset).step_by(threads) {
            if failed.load(Ordering::Relaxed) {
                break;
            }
            let summary = run_seed(seed).inspect_err(|_| failed.store(true, Ordering::Relaxed));
            total.add(summary?);
        }
        Ok(total)
    };
    std::thread::scope(|scope| {
        let shares: Vec<_> = (0..threads).map(|it| scope.spawn(move || share(it))).collect();
        let mut total = RunSummary::default();
        for share in shares {
            total.add(share.join().unwrap()?);
        }
        Ok(total)
    })
}

#[test]
fn a_seed_always_gives_the_same_schedule_and_the_same_result() {
    // Three of each durability.
    for seed in 0..9 {
        let operations = schedule::schedule(seed);
        assert_eq!(operations, schedule::schedule(seed));
        let traces = [(); 2].map(|()| run(seed, &operations, None).map(|summary| summary.trace));
        assert_eq!(traces[0], traces[1]);
        assert_ne!(traces[0], Ok(0), "the schedule did nothing");
    }
}

/// Checks that a mutation makes some schedule fail with its complaint, and that a shorter schedule
/// fails in the same way, twice.
fn is_noticed(mutation: Mutation) {
    let failed = |seed: u64| {
        let operations = schedule::schedule(seed);
        let violation = run(seed, &operations, Some(mutation)).err()?;
        violation.contains(mutation.complaint()).then_some((seed, operations))
    };
    let waits = |seed: &u64| matches!(store::durability(*seed), Durability::Replicas(_));
    let shows = |seed: &u64| !mutation.concerns_replicas() || waits(seed);
    let found = (0..MAX_SEARCHED_SCHEDULES).filter(shows).find_map(failed);
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
    is_noticed(Mutation::NoFence);
}

#[test]
fn a_claim_that_takes_from_the_living_is_noticed() {
    is_noticed(Mutation::ClaimIgnoresHolder);
}

#[test]
fn a_first_commit_that_claims_what_is_there_is_noticed() {
    is_noticed(Mutation::FirstCommitClaimsAny);
}

#[test]
fn a_member_table_that_declares_the_living_dead_is_noticed() {
    is_noticed(Mutation::DeclaresLivingDead);
}

#[test]
fn a_member_table_that_declares_nobody_dead_is_noticed() {
    is_noticed(Mutation::NeverDeclaresDead);
}

#[test]
fn a_store_that_acknowledges_what_it_does_not_write_is_noticed() {
    is_noticed(Mutation::AckWithoutWrite);
}

#[test]
fn a_sweeper_that_closes_without_compare_and_set_is_noticed() {
    is_noticed(Mutation::WakeBypassesRouter);
}

#[test]
fn alarms_that_are_lost_are_noticed() {
    is_noticed(Mutation::NoAlarms);
}

#[test]
fn conversations_that_nobody_finds_are_noticed() {
    is_noticed(Mutation::NoActiveMark);
}

#[test]
fn a_node_that_starts_tools_after_its_lease_is_noticed() {
    is_noticed(Mutation::StoppedClock);
}

#[test]
fn a_host_that_lets_the_fenced_rest_is_noticed() {
    is_noticed(Mutation::FencedNotRestarted);
}

#[test]
fn a_request_that_is_carried_twice_is_noticed() {
    is_noticed(Mutation::NetworkCarriesTwice);
}

#[test]
fn an_append_that_does_not_know_its_repeat_is_noticed() {
    is_noticed(Mutation::AppendIgnoresNonce);
}

#[test]
fn an_append_that_is_acknowledged_before_a_replica_has_it_is_noticed() {
    is_noticed(Mutation::WaitAnswersAtOnce);
}

#[test]
fn an_answer_that_is_repeated_before_a_replica_has_it_is_noticed() {
    is_noticed(Mutation::AnswersWithoutWait);
}

#[test]
fn a_lease_that_counts_before_a_replica_has_it_is_noticed() {
    is_noticed(Mutation::RenewsWithoutWait);
}

#[test]
fn a_full_server_that_refuses_deletions_is_noticed() {
    is_noticed(Mutation::FullRefusesDelete);
}

#[test]
fn a_claim_that_counts_no_deaths_is_noticed() {
    is_noticed(Mutation::ForgetsDeaths);
}

#[test]
fn a_commit_that_counts_twice_is_noticed() {
    is_noticed(Mutation::CountsTwice);
}

#[test]
fn commits_that_do_not_tell_the_queues_are_noticed() {
    is_noticed(Mutation::ForgetsQueues);
}

#[test]
fn notices_that_are_settled_before_they_are_told_are_noticed() {
    is_noticed(Mutation::SettlesBeforeTelling);
}

#[test]
fn ticks_that_are_not_recognised_are_noticed() {
    is_noticed(Mutation::TicksHaveNoKey);
}

#[test]
fn a_rewrite_that_needs_no_claim_is_noticed() {
    is_noticed(Mutation::RewriteNeedsNoClaim);
}

#[test]
fn a_publication_that_forgets_what_is_aside_is_noticed() {
    is_noticed(Mutation::PublishesTheEndAlone);
}

#[test]
fn a_rollout_that_does_not_end_is_noticed() {
    is_noticed(Mutation::RolloutNeverEnds);
}

#[test]
fn requests_that_reach_another_tenant_are_noticed() {
    is_noticed(Mutation::NetworkForgetsTenant);
}

#[test]
fn replies_that_are_shown_before_what_they_follow_from_are_noticed() {
    is_noticed(Mutation::ShowsBeforeCommit);
}

#[test]
fn children_that_outlive_their_parents_are_noticed() {
    is_noticed(Mutation::ChildrenOutliveParents);
}
