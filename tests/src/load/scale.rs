//! Clusters of more and more nodes: what they cost idle and for each turn, what messages wait while all
//! nodes are restarted, and how long the conversations of nodes that die at once are without one.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use super::client::Client;
use super::idle_conversations::{PASSIVATE_AFTER, conversation_id, over_redis, park};
use super::node_group::{Idle, NodeGroup};
use super::report::Report;
use super::turns::{Turns, send_message};
use super::{Load, LoadError, load_error};

/// The sizes of the clusters, all on one machine.
const CLUSTER_SIZES: [u32; 4] = [1, 3, 10, 30];
/// How many nodes are killed at once, of a cluster with at least twice as many.
const KILLED_NODES: usize = 5;
/// Clusters of fewer nodes are not restarted one node after the other.
const MIN_RESTARTED_NODES: usize = 3;
/// The conversations that wait when the nodes are killed.
const PARKED_CONVERSATIONS: u32 = 100;

/// The measurements of one cluster.
pub(super) struct ScaleMeasurement {
    pub(super) nodes: u32,
    pub(super) idle: Idle,
    pub(super) resident_kb: u64,
    pub(super) turns: Turns,
    /// One node with as many clients as each node of the cluster has: a node with few clients does
    /// little at once, which makes its turns dear however many nodes there are.
    pub(super) alone: Turns,
    pub(super) restart: Option<RollingRestart>,
    /// From the kill until all that wait were resolved at the nodes that are left.
    pub(super) resolved_after: Option<Duration>,
}

/// All nodes restarted one after the other, each drained first.
pub(super) struct RollingRestart {
    pub(super) took: Duration,
    /// How long each message took to be acknowledged that was sent meanwhile, sorted.
    pub(super) accepted: Vec<Duration>,
}

/// Measures one cluster after the other.
pub(super) async fn run(load: &Load, dir: &Path) -> Result<Report, LoadError> {
    let mut measured = Vec::new();
    for nodes in CLUSTER_SIZES {
        let alone = alone(load, nodes, &dir.join(format!("alone-{nodes}"))).await?;
        let load = Load { nodes: Some(nodes), ..load.clone() };
        measured.push(measure(&load, alone, &dir.join(nodes.to_string())).await?);
    }
    Ok(Report::of_scale(load, &measured))
}

/// The turns of one node with the clients that each of N nodes has.
async fn alone(load: &Load, nodes: u32, dir: &Path) -> Result<Turns, LoadError> {
    let concurrency = load.concurrency.div_ceil(nodes);
    let load = Load { nodes: Some(1), concurrency, ..load.clone() };
    let group = NodeGroup::start(&load, dir, PASSIVATE_AFTER, None).await?;
    let turns = Turns::run(&load, &group.nodes, Some(&group.redis), "alone").await?;
    group.stop().await?;
    Ok(turns)
}

async fn measure(load: &Load, alone: Turns, dir: &Path) -> Result<ScaleMeasurement, LoadError> {
    let nodes = load.nodes.unwrap_or(1);
    let mut group = NodeGroup::start(load, dir, PASSIVATE_AFTER, None).await?;
    group.wait_until_connected().await?;
    let idle = group.idle().await?;
    let resident_kb = group.resident_kb()? / u64::from(nodes);
    let turns = Turns::run(load, &group.nodes, Some(&group.redis), "scale").await?;
    let restart = if group.nodes.len() >= MIN_RESTARTED_NODES {
        Some(restart_all(load, &mut group).await?)
    } else {
        None
    };
    let resolved_after = if group.nodes.len() >= 2 * KILLED_NODES {
        Some(kill_some(load, &mut group).await?)
    } else {
        None
    };
    group.stop().await?;
    Ok(ScaleMeasurement { nodes, idle, resident_kb, turns, alone, restart, resolved_after })
}

/// Restarts one node after the other while messages are sent to the next one, one at a time. Each must be
/// accepted at once.
async fn restart_all(load: &Load, group: &mut NodeGroup) -> Result<RollingRestart, LoadError> {
    let (started_at, mut accepted) = (Instant::now(), Vec::new());
    let count = group.nodes.len();
    for n in 0..count {
        let mut client = Client::new(group.nodes[(n + 1) % count].public);
        let is_restarted = Cell::new(false);
        let restart = async {
            let restarted = group.replace(load, n).await;
            is_restarted.set(true);
            restarted
        };
        let messages = async {
            while !is_restarted.get() {
                let sent_at = Instant::now();
                send_message(&mut client, &format!("restart-{}", accepted.len())).await?;
                accepted.push(sent_at.elapsed());
            }
            Ok(())
        };
        tokio::try_join!(restart, messages)?;
    }
    accepted.sort();
    Ok(RollingRestart { took: started_at.elapsed(), accepted })
}

/// Kills nodes while conversations wait on all of them, live or not.
async fn kill_some(load: &Load, group: &mut NodeGroup) -> Result<Duration, LoadError> {
    park(load, &group.nodes, 0..PARKED_CONVERSATIONS).await?;
    let killed_at = Instant::now();
    for _ in 0..KILLED_NODES {
        group.kill(0).await?;
    }
    let addresses: Vec<_> = group.nodes.iter().map(|node| node.public).collect();
    let resolutions = (0..PARKED_CONVERSATIONS).zip(addresses.into_iter().cycle());
    let mut running = tokio::task::JoinSet::new();
    for (n, public) in resolutions {
        running.spawn(async move {
            let mut client = Client::new(public);
            over_redis::resolve_with_retries(&mut client, &conversation_id(n)).await
        });
    }
    while let Some(resolved) = running.join_next().await {
        resolved.map_err(|error| load_error("a resolution", error))??;
    }
    Ok(killed_at.elapsed())
}
