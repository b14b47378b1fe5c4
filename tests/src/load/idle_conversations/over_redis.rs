//! Idle conversations over a Redis, on one node or several: they take memory of Redis, not of the
//! nodes.

use std::path::Path;
use std::time::{Duration, Instant};

use hyper::StatusCode;

use super::super::client::Client;
use super::super::node_group::{Idle, NodeGroup};
use super::super::report::Report;
use super::super::{Load, LoadError, agent, turns};
use super::{
    PASSIVATE_AFTER, SETTLE_TIMEOUT, conversation_id, expect_completion, expect_open_calls, park,
};

/// The pause before a repeated resolution: less than the measured times.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// The measurements.
pub(in super::super) struct SharedMeasurement {
    pub(in super::super) count: u32,
    pub(in super::super) took: Duration,
    /// The memory before the first conversation, with half of them parked, and with all of them.
    pub(in super::super) memory: [MemoryUse; 3],
    /// What of it Redis needs for all of them if their events and inbox entries are empty.
    pub(in super::super) redis_without_content: u64,
    pub(in super::super) live_actors: u64,
    pub(in super::super) idle: Idle,
    /// From the restart to the ready line, if the only node was killed.
    pub(in super::super) ready_after: Option<Duration>,
    /// From the kill to the accepted resolution, at another node if there is one.
    pub(in super::super) accepted_after: Duration,
}

/// The memory in use.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct MemoryUse {
    pub(in super::super) nodes_kb: u64,
    pub(in super::super) redis: u64,
    pub(in super::super) dataset: u64,
}

/// Parks the conversations, kills the first node, and resolves one of them at another node, or at
/// the same one after a restart.
pub(in super::super) async fn run(
    load: &Load,
    count: u32,
    dir: &Path,
) -> Result<Report, LoadError> {
    let mut group = NodeGroup::start(load, dir, PASSIVATE_AFTER, None).await?;
    group.define().await?;
    group.wait_until_quiet().await?;
    let before = memory_use(&group).await?;
    let mut took = park(load, &group.nodes, 0..count / 2).await?;
    group.wait_until_quiet().await?;
    let half = memory_use(&group).await?;
    took += park(load, &group.nodes, count / 2..count).await?;
    group.wait_until_quiet().await?;
    let memory = [before, half, memory_use(&group).await?];
    expect_open_calls(&group.nodes[0], count).await?;
    let idle = group.idle().await?;
    let mut live_actors = 0;
    for node in &group.nodes {
        live_actors += node.counters().await?.live_actors;
    }
    let id = conversation_id(count / 2);
    let killed = group.kill(0).await?;
    let ready_after = if group.nodes.is_empty() {
        group.restart(load, 0).await?;
        Some(group.nodes[0].ready_after)
    } else {
        None
    };
    let mut client = Client::new(group.nodes[0].public);
    resolve_with_retries(&mut client, &id).await?;
    let accepted_after = killed.elapsed();
    expect_completion(&mut client, &id).await?;
    expect_open_calls(&group.nodes[0], count - 1).await?;
    let redis = group.stop().await?;
    redis.empty_content().await?;
    let redis_without_content = redis.info().await?.memory;
    let shared = SharedMeasurement {
        count,
        took,
        memory,
        redis_without_content,
        live_actors,
        idle,
        ready_after,
        accepted_after,
    };
    Ok(Report::of_shared(load, &shared))
}

async fn memory_use(group: &NodeGroup) -> Result<MemoryUse, LoadError> {
    let info = group.redis.info().await?;
    Ok(MemoryUse { nodes_kb: group.resident_kb()?, redis: info.memory, dataset: info.dataset })
}

/// Approves the call until the approval is accepted: the answer may be 503 until the death of the
/// holder has been noticed.
pub(in super::super) async fn resolve_with_retries(
    client: &mut Client,
    id: &str,
) -> Result<(), LoadError> {
    let started = Instant::now();
    loop {
        match turns::ask_to_resolve(client, id, agent::CALL).await? {
            (StatusCode::OK, _) => return Ok(()),
            (status, _) if status.is_server_error() && started.elapsed() < SETTLE_TIMEOUT => {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            (status, answer) => {
                return Err(LoadError(format!("the resolution: {status} {answer}")));
            }
        }
    }
}
