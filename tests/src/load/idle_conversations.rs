//! Conversations that wait for a person: the memory that they take, and how soon a node serves them
//! after a restart.

pub(super) mod over_redis;

use std::path::Path;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hyper::Method;
use tokio::task::JoinSet;

use super::client::Client;
use super::event_stream::Stream;
use super::node::Node;
use super::report::Report;
use super::{Load, LoadError, agent, load_error, turns};

/// `--passivate-after` of the nodes.
pub(super) const PASSIVATE_AFTER: &str = "1s";
/// How long the last actors may take to be passivated.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The measurements.
pub(super) struct IdleMeasurement {
    pub(super) count: u32,
    pub(super) took: Duration,
    /// From the last message until no actor was live.
    pub(super) passivated_after: Duration,
    pub(super) resident_kb: Resident,
    pub(super) ready_after: Duration,
    pub(super) accepted_after: Duration,
    pub(super) store_bytes: u64,
}

/// The resident memory before the first conversation, with half of them parked, and with all of
/// them.
pub(super) struct Resident {
    pub(super) before: u64,
    pub(super) half: u64,
    pub(super) all: u64,
}

/// Parks the conversations, kills and restarts the node, and resolves one of them.
pub(super) async fn run(load: &Load, count: u32, dir: &Path) -> Result<Report, LoadError> {
    let store = dir.join("store");
    let node = Node::start(load, &store, PASSIVATE_AFTER).await?;
    agent::define(&mut Client::new(node.public)).await?;
    let before = node.resident_kb()?;
    let mut took = park(load, slice::from_ref(&node), 0..count / 2).await?;
    wait_until_passivated(&node).await?;
    let half = node.resident_kb()?;
    took += park(load, slice::from_ref(&node), count / 2..count).await?;
    let passivated_after = wait_until_passivated(&node).await?;
    let resident_kb = Resident { before, half, all: node.resident_kb()? };
    expect_open_calls(&node, count).await?;
    node.kill().await?;
    let size = std::fs::metadata(store.join("abide.redb"));
    let store_bytes = size.map_err(|error| load_error("the store's file", error))?.len();

    let node = Node::start(load, &store, PASSIVATE_AFTER).await?;
    let (ready_after, id) = (node.ready_after, conversation_id(count / 2));
    let mut client = Client::new(node.public);
    turns::resolve(&mut client, &id, agent::CALL).await?;
    let accepted_after = node.age();
    expect_completion(&mut client, &id).await?;
    expect_open_calls(&node, count - 1).await?;
    node.stop().await?;
    Ok(Report::of_parked(
        load,
        &IdleMeasurement {
            count,
            took,
            passivated_after,
            resident_kb,
            ready_after,
            accepted_after,
            store_bytes,
        },
    ))
}

pub(super) fn conversation_id(n: u32) -> String {
    format!("parked-{n}")
}

/// Parks the conversations of a range, with the workers spread over the nodes. Returns how long it
/// took.
pub(super) async fn park(
    load: &Load,
    nodes: &[Node],
    numbers: std::ops::Range<u32>,
) -> Result<Duration, LoadError> {
    let started = Instant::now();
    let next = Arc::new(AtomicU32::new(numbers.start));
    let mut workers = JoinSet::new();
    for node in nodes.iter().cycle().take(load.concurrency as usize) {
        let next = next.clone();
        let mut client = Client::new(node.public);
        workers.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= numbers.end {
                    return Ok(());
                }
                turns::send_message(&mut client, &conversation_id(n)).await?;
            }
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker.map_err(|error| load_error("a worker", error))??;
    }
    Ok(started.elapsed())
}

/// Waits until no actor is live. Returns how long it took.
pub(super) async fn wait_until_passivated(node: &Node) -> Result<Duration, LoadError> {
    let started = Instant::now();
    while started.elapsed() < SETTLE_TIMEOUT {
        if node.counters().await?.live_actors == 0 {
            return Ok(started.elapsed());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Err(LoadError(format!("actors were still live after {SETTLE_TIMEOUT:?}")))
}

/// Fails unless the inbox has exactly `count` open calls.
pub(super) async fn expect_open_calls(node: &Node, count: u32) -> Result<(), LoadError> {
    let mut client = Client::new(node.public);
    let (mut found, mut path) = (0, "/v1/pending?limit=1000".to_owned());
    loop {
        let (_, page) = client.ask(Method::GET, &path, None).await?;
        let entries = page["pending"].as_array();
        found += entries.ok_or_else(|| LoadError(format!("{path}: {page}")))?.len();
        match page["cursor"].as_str() {
            Some(cursor) => path = format!("/v1/pending?limit=1000&cursor={cursor}"),
            None if found == count as usize => return Ok(()),
            None => return Err(LoadError(format!("{found} calls are open instead of {count}"))),
        }
    }
}

/// Waits for the end of the turn that was resolved after the restart, and fails unless it
/// completed.
pub(super) async fn expect_completion(client: &mut Client, id: &str) -> Result<(), LoadError> {
    let mut stream = Stream::open(client, id).await?;
    let end = async {
        loop {
            let frame = stream.next().await?;
            let is_over = match frame.name.as_str() {
                "snapshot" => frame.json()?["state"] == "idle",
                name => name.starts_with("turn_"),
            };
            if is_over {
                return Ok::<_, LoadError>(());
            }
        }
    };
    let end = tokio::time::timeout(SETTLE_TIMEOUT, end).await;
    end.map_err(|_| LoadError(format!("{id}: had not ended within {SETTLE_TIMEOUT:?}")))??;
    let path = format!("/v1/conversations/{id}/journal?limit=1000");
    let (_, page) = client.ask(Method::GET, &path, None).await?;
    let last = page["events"].as_array().and_then(|events| events.last());
    if last.is_some_and(|last| last["data"]["outcome"] == "completed") {
        Ok(())
    } else {
        Err(LoadError(format!("{id}: the turn did not complete: {last:?}")))
    }
}
