//! The same over a Redis, by one node or several: what is parked holds Redis' memory, not theirs.

use std::path::Path;
use std::time::{Duration, Instant};

use hyper::StatusCode;

use super::super::client::Client;
use super::super::ground::{Ground, Idle};
use super::super::report::Report;
use super::super::{Load, Wrong, agent, turns};
use super::{PASSIVATE, PATIENCE, all_wait, goes_on, name, park};

/// Asked again so soon: less than what is measured.
const AGAIN: Duration = Duration::from_millis(2);

/// What was measured.
pub(in super::super) struct Shared {
    pub(in super::super) count: u32,
    pub(in super::super) took: Duration,
    /// Before the first, with the first half parked, with all of them.
    pub(in super::super) held: [Held; 3],
    pub(in super::super) live_actors: u64,
    pub(in super::super) idle: Idle,
    /// From its start to its ready line, where the only node was killed.
    pub(in super::super) ready_after: Option<Duration>,
    /// From the kill to the 200, at another node if there is one.
    pub(in super::super) accepted_after: Duration,
}

/// Memory.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Held {
    pub(in super::super) nodes_kb: u64,
    pub(in super::super) redis: u64,
    pub(in super::super) dataset: u64,
}

/// Parks, kills the first node, and resolves one: at the next node, or at the same one started again.
pub(in super::super) async fn run(load: &Load, count: u32, dir: &Path) -> Result<Report, Wrong> {
    let mut ground = Ground::start(load, dir, PASSIVATE, None).await?;
    ground.define().await?;
    ground.quiet().await?;
    let before = held(&ground).await?;
    let mut took = park(load, &ground.nodes, 0..count / 2).await?;
    ground.quiet().await?;
    let half = held(&ground).await?;
    took += park(load, &ground.nodes, count / 2..count).await?;
    ground.quiet().await?;
    let held = [before, half, held(&ground).await?];
    all_wait(&ground.nodes[0], count).await?;
    let idle = ground.idle().await?;
    let mut live_actors = 0;
    for node in &ground.nodes {
        live_actors += node.counters().await?.live_actors;
    }
    let id = name(count / 2);
    let killed = ground.kill(0).await?;
    let ready_after = match ground.nodes.is_empty() {
        true => {
            ground.revive(load, 0).await?;
            Some(ground.nodes[0].ready_after)
        }
        false => None,
    };
    let mut client = Client::new(ground.nodes[0].public);
    accepted(&mut client, &id).await?;
    let accepted_after = killed.elapsed();
    goes_on(&mut client, &id).await?;
    all_wait(&ground.nodes[0], count - 1).await?;
    ground.stop().await?;
    let shared = Shared { count, took, held, live_actors, idle, ready_after, accepted_after };
    Ok(Report::of_shared(load, &shared))
}

async fn held(ground: &Ground) -> Result<Held, Wrong> {
    let info = ground.redis.info().await?;
    Ok(Held { nodes_kb: ground.resident_kb()?, redis: info.memory, dataset: info.dataset })
}

/// Approves the call until that is accepted: while nobody has seen yet that a node is dead, it may be
/// answered that it is unavailable.
pub(in super::super) async fn accepted(client: &mut Client, id: &str) -> Result<(), Wrong> {
    let asked = Instant::now();
    loop {
        match turns::ask_to_resolve(client, id, agent::CALL).await? {
            (StatusCode::OK, _) => return Ok(()),
            (status, _) if status.is_server_error() && asked.elapsed() < PATIENCE => {
                tokio::time::sleep(AGAIN).await;
            }
            (status, answer) => return Err(Wrong(format!("the resolution: {status} {answer}"))),
        }
    }
}
