//! Three nodes, many conversations of every shape, and whatever can break, by a seed.
//!
//! The seed decides the kind of Redis, the faults with their order and lengths, and what each lane
//! of conversations is and does. Time is real, so the same seed meets other moments: it makes the
//! same kind of run, not the same run.

mod agents;
mod asking;
mod faults;
mod ground;
mod lane;
mod links;
mod notes;
mod numbers;
mod rest;
mod schedule;
mod story;

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use futures::FutureExt;
use futures::future::join_all;
use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};

use self::faults::Faults;
use self::ground::Ground;
pub use self::ground::Kind;
use self::lane::{Lane, World};
use self::notes::Notes;
use self::schedule::Schedule;
use crate::chance::Chance;
use crate::cluster::{Cluster, Plan};
use crate::program;
use crate::promises::{Evidence, alarms};
use crate::tool_server::ToolServer;

/// How long a silent node is believed alive.
const LEASE: Duration = Duration::from_secs(2);
/// How long all may take to come to rest once nothing breaks any more: the longest time-out of a
/// call that anything waits for, and the machine's own slowness.
const SETTLE: Duration = Duration::from_secs(90);
/// How late an expiry may be that nothing hindered: an alarm's claim, a revival, a busy machine.
const LATE: Duration = Duration::from_secs(10);

/// Breaks three nodes and their Redis in every way, while conversations go on; then checks every
/// promise against the journals, the tools' record and the clients' own histories.
#[derive(Clone, Debug, Parser)]
#[command(name = "chaos")]
pub struct Chaos {
    /// Decides what happens; by the clock if not given
    #[arg(long)]
    pub seed: Option<u64>,
    /// How long faults happen
    #[arg(long, default_value_t = 1.0)]
    pub minutes: f64,
    /// The Redis; by the seed if not given
    #[arg(long, value_enum)]
    pub store: Option<Kind>,
    /// How many conversations at once
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=200))]
    pub lanes: u64,
    /// The node's program; else it is built in release
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// Where the nodes' logs are kept when a promise was broken; a new temporary directory if not
    /// given
    #[arg(long)]
    pub keep: Option<PathBuf>,
}

/// Runs it. Returns a line of numbers.
///
/// # Errors
///
/// What was promised and not kept, with the story of the conversations concerned.
pub async fn run(chaos: Chaos) -> Result<String, String> {
    let seed = chaos.seed.unwrap_or_else(|| Timestamp::now().as_second().unsigned_abs());
    let kind = chaos.store.unwrap_or_else(|| Kind::of(seed));
    notes::say(&format!("seed {seed}: {} minutes over {kind:?}", chaos.minutes));
    let program = program::release(chaos.binary.as_deref()).await?;
    let kept = match &chaos.keep {
        Some(dir) => dir.join(format!("chaos-{seed}")),
        None => tempfile::Builder::new().prefix("chaos-").tempdir().map_err(text)?.keep(),
    };
    std::fs::create_dir_all(&kept).map_err(text)?;
    let (notes, dir) = (Notes::default(), kept.clone());
    let run = AssertUnwindSafe(broken(chaos, seed, kind, program, notes.clone(), dir));
    // The harness fails by panicking; what it panics about is on standard error.
    let outcome = run
        .catch_unwind()
        .await
        .unwrap_or_else(|_| Err(format!("the run itself broke, as said above\n{}", notes.told())));
    match outcome {
        Ok(numbers) => {
            let _ = std::fs::remove_dir_all(&kept);
            Ok(format!("seed {seed} kept every promise: {numbers}"))
        }
        Err(story) => {
            std::fs::write(kept.join("story.txt"), &story).map_err(text)?;
            let story: Vec<&str> = story.lines().take(story::SHOWN).collect();
            Err(format!(
                "seed {seed} broke a promise\n{}\nall of it, and the nodes' logs: {}",
                story.join("\n"),
                kept.display()
            ))
        }
    }
}

async fn broken(
    chaos: Chaos,
    seed: u64,
    kind: Kind,
    program: PathBuf,
    notes: Notes,
    kept: PathBuf,
) -> Result<String, String> {
    let (ground, redis) = Ground::start(kind).await;
    let workspaces = tempfile::tempdir().map_err(text)?;
    let (mut cluster, tools) = (
        plan(&program, &ground, workspaces.path(), &kept).start(redis, 3).await,
        ToolServer::start().await,
    );
    let fronts = links::Fronts::before(&cluster);
    let world = Arc::new(World::new(seed, &cluster, &fronts, &tools, notes.clone()));
    world.define(&cluster).await;
    let lanes = (0..chaos.lanes).map(|number| tokio::spawn(Lane::new(&world, number).run()));
    let lanes: Vec<_> = lanes.collect();

    let end = Instant::now() + Duration::from_secs_f64(chaos.minutes * 60.0);
    let mut faults = Faults { cluster: &mut cluster, ground, fronts, notes: notes.clone() };
    let mut schedule = Schedule::new(Chance(seed), kind);
    while Instant::now() < end {
        let episode = schedule.episode();
        tokio::time::sleep(episode.pause).await;
        world.crash_actors(&episode).await;
        faults.play(&episode).await?;
    }
    faults.together().await?;
    notes.fault("everything is whole again");
    world.end(Instant::now() + SETTLE);
    let lanes = timeout_at(Instant::now() + SETTLE * 2, join_all(lanes)).await;
    let lanes = lanes.map_err(|_| "lanes of conversations hang, which is the harness's fault")?;
    for lane in lanes {
        lane.map_err(|panic| format!("a lane broke: {panic}"))?;
    }
    judge(&cluster, &world, &tools, &notes, &kept).await
}

fn plan(program: &Path, ground: &Ground, workspaces: &Path, logs: &Path) -> Plan {
    let lease = format!("{}s", LEASE.as_secs());
    let workspaces = workspaces.display().to_string();
    let plan = Plan::new(program).proxied().supervised().with_logs_in(logs).with(&[
        "--lease",
        &lease,
        // Sooner than usual, so that conversations are revived all the time.
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
    ground.plan(plan)
}

async fn judge(
    cluster: &Cluster,
    world: &World,
    tools: &ToolServer,
    notes: &Notes,
    kept: &Path,
) -> Result<String, String> {
    let evidence = cluster.evidence(&[tools]).await;
    let mut wrong = evidence.violations();
    wrong.extend(refused(&evidence));
    wrong.extend(alarms::late(&evidence, notes.longest() + LATE));
    wrong.extend(rest::left(cluster.client(0), &evidence).await);
    let numbers = numbers::of(&evidence, notes, world);
    if wrong.is_empty() {
        return Ok(numbers);
    }
    let lines = story::of(&wrong, &evidence, notes, kept);
    Err(format!("{numbers}\n{lines}"))
}

/// No request of ours is wrong: a key that was used is used for the same again.
fn refused(evidence: &Evidence) -> Vec<String> {
    let asked = evidence.exchanges.iter();
    let wrong = asked.filter_map(|exchange| {
        let answer = exchange.answer.as_ref().ok().filter(|answer| answer.status == 422)?;
        Some(format!("{} {} was refused: {}", exchange.method, exchange.path, answer.body))
    });
    wrong.collect()
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
