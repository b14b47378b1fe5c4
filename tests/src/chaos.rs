//! Runs many conversations of every shape on three nodes while a seeded schedule of faults breaks
//! them.
//!
//! The seed decides the kind of store, the faults with their order and lengths, and the
//! conversations of each worker. Time is real, so a repeated seed makes the same kind of run, not
//! the same run.

mod agents;
mod artifacts;
mod attend;
mod client_proxies;
mod fault;
mod fault_log;
mod faults;
mod outside;
mod quiescence;
mod receiver;
mod redis_cluster;
mod report;
mod resources;
mod schedule;
mod slot_move;
mod store_setup;
mod summary;
mod worker;

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use futures::FutureExt;
use futures::future::join_all;
use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};

pub use self::fault::FaultKind;
use self::fault_log::FaultLog;
use self::faults::Faults;
use self::outside::Programs;
use self::receiver::Receiver;
use self::resources::Baseline;
use self::schedule::{Schedule, Scope};
pub use self::store_setup::StoreKind;
use self::store_setup::StoreSetup;
use self::worker::{RunContext, Worker};
use crate::checks::{Evidence, alarms};
use crate::cluster::{Cluster, Plan};
use crate::fake_clock;
use crate::program;
use crate::random::SeededRandom;
use crate::tool_server::ToolServer;

/// How long a silent node counts as alive.
const LEASE: Duration = Duration::from_secs(2);
/// How long everything may take to come to rest after the last fault: the longest time-out of a
/// call, and the slowness of the machine.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(90);
/// How late an expiry may be without faults: an alarm's claim, a revival, a busy machine.
const MAX_ALARM_DELAY: Duration = Duration::from_secs(10);

/// Breaks nodes and their store in every way while conversations go on, then checks every
/// promise against the journals, the tools' logs and the clients' own histories.
#[derive(Clone, Debug, Parser)]
#[command(name = "chaos")]
pub struct Chaos {
    /// The seed of everything that happens; by the clock if not given
    #[arg(long)]
    pub seed: Option<u64>,
    /// For how many minutes faults happen
    #[arg(long, default_value_t = 1.0)]
    pub minutes: f64,
    /// The kind of store; by the seed if not given
    #[arg(long, value_enum)]
    pub store: Option<StoreKind>,
    /// The only kinds of fault that happen; all that the store has if not given
    #[arg(long, value_enum, value_delimiter = ',')]
    pub faults: Vec<FaultKind>,
    /// The program of an earlier build, by which nodes are replaced now and then
    #[arg(long)]
    pub previous: Option<PathBuf>,
    /// How many concurrent conversations
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=200))]
    pub workers: u64,
    /// The node's program; a release build of this source if not given
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// The directory for the nodes' logs when a promise was broken; a new temporary directory if
    /// not given
    #[arg(long)]
    pub keep: Option<PathBuf>,
}

/// Runs the faults and the checks. Returns a one-line summary.
///
/// # Errors
///
/// The broken promises, with a report of the conversations concerned.
pub async fn run(chaos: Chaos) -> Result<String, String> {
    let seed = chaos.seed.unwrap_or_else(|| Timestamp::now().as_second().unsigned_abs());
    let kind = chaos.store.unwrap_or_else(|| StoreKind::for_seed(seed));
    fault_log::print_progress(&format!("seed {seed}: {} minutes over {kind:?}", chaos.minutes));
    let program = program::release(chaos.binary.as_deref()).await?;
    let output = match &chaos.keep {
        Some(dir) => dir.join(format!("chaos-{seed}")),
        None => tempfile::Builder::new().prefix("chaos-").tempdir().map_err(text)?.keep(),
    };
    std::fs::create_dir_all(&output).map_err(text)?;
    let (fault_log, dir) = (FaultLog::default(), output.clone());
    let run = AssertUnwindSafe(run_faults(chaos, seed, kind, program, fault_log.clone(), dir));
    // The harness fails by panicking; the panic's message is on standard error.
    let outcome = run
        .catch_unwind()
        .await
        .unwrap_or_else(|_| Err(format!("the harness panicked, see above\n{}", fault_log.lines())));
    match outcome {
        Ok(summary) => {
            let _ = std::fs::remove_dir_all(&output);
            Ok(format!("seed {seed} kept every promise: {summary}"))
        }
        Err(report) => {
            std::fs::write(output.join("report.txt"), &report).map_err(text)?;
            let printed: Vec<&str> = report.lines().take(report::MAX_PRINTED_LINES).collect();
            Err(format!(
                "seed {seed} broke a promise\n{}\nthe whole report and the nodes' logs: {}",
                printed.join("\n"),
                output.display()
            ))
        }
    }
}

async fn run_faults(
    chaos: Chaos,
    seed: u64,
    kind: StoreKind,
    program: PathBuf,
    fault_log: FaultLog,
    output: PathBuf,
) -> Result<String, String> {
    let scope = scope(&chaos, kind)?;
    let (store_setup, redis) = StoreSetup::start(kind, SeededRandom(seed)).await;
    let workspaces = tempfile::tempdir().map_err(text)?;
    let mut plan = plan(&program, &store_setup, workspaces.path(), &output);
    // A build of before knows no compression.
    if chaos.previous.is_none() && kind != StoreKind::Embedded {
        plan = plan.some_compress();
    }
    let jumps = scope.has(FaultKind::ClockJump);
    if jumps {
        plan = plan.with_fake_clocks();
    }
    // Below four, which fits.
    let mut cluster = plan.start(redis, kind.nodes() as usize).await;
    let (tools, hostile) = (ToolServer::start().await, ToolServer::start().await);
    let client_proxies = client_proxies::ClientProxies::before(&cluster);
    let mut context =
        RunContext::new(seed, &cluster, &client_proxies, [&tools, &hostile], fault_log.clone());
    // A node of an earlier build may know no queue and no schedule.
    let has_programs = chaos.previous.is_none();
    if has_programs {
        context.shapes.push(outside::shape(&tools));
    }
    let context = Arc::new(context);
    context.define(&cluster).await;
    let receiver = Receiver::start(&cluster).await;
    let programs =
        if has_programs { Some(Programs::start(&context, &cluster, &tools).await) } else { None };
    let baseline = Baseline::of(&cluster);
    let workers =
        (0..chaos.workers).map(|number| tokio::spawn(Worker::new(&context, number).run()));
    let workers: Vec<_> = workers.collect();

    let end = Instant::now() + Duration::from_secs_f64(chaos.minutes * 60.0);
    let previous = chaos.previous.clone().unwrap_or_else(|| program.clone());
    let mut faults = Faults {
        cluster: &mut cluster,
        store_setup,
        client_proxies,
        context: context.clone(),
        programs: [previous, program],
        killed_holders: Vec::new(),
        starved: Vec::new(),
    };
    let mut schedule = Schedule::new(SeededRandom(seed), scope);
    while Instant::now() < end {
        let episode = schedule.episode();
        tokio::time::sleep(episode.pause).await;
        context.crash_actors(&episode).await;
        faults.play(&episode).await?;
    }
    faults.wait_until_all_up().await?;
    fault_log.record("all faults are healed");
    context.end(Instant::now() + SETTLE_TIMEOUT);
    let workers = timeout_at(Instant::now() + SETTLE_TIMEOUT * 2, join_all(workers)).await;
    let workers = workers.map_err(|_| "workers hang, which is a fault of the harness")?;
    for worker in workers {
        worker.map_err(|panic| format!("a worker panicked: {panic}"))?;
    }
    let Faults { store_setup: _running, client_proxies, .. } = faults;
    let outside = match programs {
        Some(programs) => Some(programs.finish(&cluster, !jumps).await),
        None => None,
    };
    let mut evidence = cluster.evidence(&[&tools]).await;
    evidence.outside = outside;
    // A node of an earlier build owes nothing.
    if chaos.previous.is_none() {
        evidence.notices = Some(receiver.notices(&cluster).await);
    }
    let mut violations = broken_promises(&cluster, &context, &evidence).await;
    // The clients' connections would count as descriptors of the nodes.
    drop(client_proxies);
    violations.extend(baseline.exceeded(&cluster).await);
    let summary = summary::of(&evidence, &fault_log, &context);
    if violations.is_empty() {
        return Ok(summary);
    }
    let lines = report::of(&violations, &evidence, &fault_log, &output);
    Err(format!("{summary}\n{lines}"))
}

/// What the run can break.
fn scope(chaos: &Chaos, kind: StoreKind) -> Result<Scope, String> {
    let scope = Scope {
        kind,
        chosen: chaos.faults.clone(),
        has_previous_build: chaos.previous.is_some(),
        has_faketime: fake_clock::library().is_some(),
    };
    if scope.has_faults() { Ok(scope) } else { Err(format!("{kind:?} has no such faults")) }
}

fn plan(program: &Path, store_setup: &StoreSetup, workspaces: &Path, logs: &Path) -> Plan {
    let lease = format!("{}s", LEASE.as_secs());
    let workspaces = workspaces.display().to_string();
    let plan = Plan::new(program).supervised().with_logs_in(logs).with(&[
        "--lease",
        &lease,
        // Short, so that conversations are revived all the time.
        "--passivate-after",
        "1s",
        "--drain-timeout",
        "2s",
        "--placement",
        "rendezvous",
        "--log-format",
        "json",
        "--workspaces",
        &workspaces,
    ]);
    store_setup.plan(plan)
}

async fn broken_promises(
    cluster: &Cluster,
    context: &RunContext,
    evidence: &Evidence,
) -> Vec<String> {
    let mut violations = evidence.violations();
    violations.extend(refused_requests(evidence));
    let tolerance = context.fault_log.longest_fault() + MAX_ALARM_DELAY;
    violations.extend(alarms::late(evidence, tolerance));
    violations.extend(quiescence::leftovers(cluster.client(0), evidence).await);
    violations.extend(context.artifacts.violations(cluster.clients()).await);
    violations
}

/// Requests that were refused as invalid, although the workers never send an invalid one.
fn refused_requests(evidence: &Evidence) -> Vec<String> {
    let violations = evidence.exchanges.iter().filter_map(|exchange| {
        let answer = exchange.answer.as_ref().ok().filter(|answer| answer.status == 422)?;
        Some(format!("{} {} was refused: {}", exchange.method, exchange.path, answer.body))
    });
    violations.collect()
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
