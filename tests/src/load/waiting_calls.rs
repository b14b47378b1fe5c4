//! Leases of a queue in which many calls wait, beside leases of one in which few do. Each call is of a
//! conversation of its own, and none is in memory, so that only the length of the queue differs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::json;
use tokio::task::JoinSet;

use super::client::Client;
use super::comparison::{median, ratio_summary};
use super::node_group::NodeGroup;
use super::report::Report;
use super::{Load, LoadError, load_error};

/// The two queues, which are also the names of their agents.
const QUEUES: [&str; 2] = ["short", "long"];
/// How many calls wait in the short queue: as many as are leased of each.
const SHORT: u32 = 600;
/// The leases of each queue that a ratio is of.
const LEASES_PER_ROUND: u32 = 20;
const PASSIVATE_AFTER: &str = "1s";
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long the calls may take to arrive in their queues after the last message.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(120);

/// Lets `count` calls wait in the long queue, and leases from both in turn.
pub(super) async fn run(load: &Load, count: u32, dir: &Path) -> Result<Report, LoadError> {
    let group = NodeGroup::start(load, dir, PASSIVATE_AFTER, None).await?;
    let [node, ..] = &*group.nodes else { return Err(LoadError("there is no node".to_owned())) };
    let mut client = Client::new(node.public);
    let mut queued_in = Duration::ZERO;
    for (queue, calls) in QUEUES.into_iter().zip([SHORT, count]) {
        define(&mut client, queue).await?;
        let begun = Instant::now();
        send_messages(load, &group, queue, calls).await?;
        wait_until_queued(&mut Client::new(node.admin), queue, calls).await?;
        queued_in = begun.elapsed();
    }
    group.wait_until_quiet().await?;
    let resident = group.resident_kb()?;
    let (mut took, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
    for _ in 0..SHORT / LEASES_PER_ROUND {
        let mut sums = [Duration::ZERO; 2];
        for n in 0..LEASES_PER_ROUND {
            // The queues alternate in going first.
            let order = if n % 2 == 0 { [0, 1] } else { [1, 0] };
            for side in order {
                let lease = lease(&mut client, QUEUES[side]).await?;
                sums[side] += lease;
                took[side].push(lease);
            }
        }
        ratios.push(sums[1].as_secs_f64() / sums[0].as_secs_f64());
    }
    group.stop().await?;
    let [short, long] = took.map(|took| format!("{:.2} ms", median(took).as_secs_f64() * 1e3));
    Ok(Report::of([
        ("waiting calls", format!("{SHORT} and {count}")),
        ("queued", format!("{:.0}/s", f64::from(count) / queued_in.as_secs_f64())),
        ("resident with all of them", format!("{} MB", resident >> 10)),
        ("a lease of the short queue, median", short),
        ("a lease of the long queue, median", long),
        ("long ÷ short", ratio_summary(ratios)),
    ]))
}

async fn define(client: &mut Client, queue: &str) -> Result<(), LoadError> {
    let definition = json!({
        "name": queue,
        "model": {"provider": "scripted", "script": [
            {"calls": [{"name": "print", "args": {}}]},
            {"text": "Printed."},
        ]},
        "tools": [{"name": "print", "run": {"queue": queue}, "timeout": "1h"}],
    });
    client.define(queue, definition).await
}

/// Sends the first message of each of `count` conversations.
async fn send_messages(
    load: &Load,
    group: &NodeGroup,
    queue: &'static str,
    count: u32,
) -> Result<(), LoadError> {
    let (next, mut workers) = (Arc::new(AtomicU32::new(0)), JoinSet::new());
    for worker in 0..load.concurrency as usize {
        let next = next.clone();
        let mut client = Client::new(group.nodes[worker % group.nodes.len()].public);
        workers.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= count {
                    return Ok::<_, LoadError>(());
                }
                let path = format!("/v1/conversations/{queue}-{n}/messages");
                let message = json!({"agent": queue, "text": "Print."});
                client.send(Method::POST, &path, message).await?;
            }
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker.map_err(|error| load_error("a worker", error))??;
    }
    Ok(())
}

async fn wait_until_queued(
    operator: &mut Client,
    queue: &str,
    count: u32,
) -> Result<(), LoadError> {
    let begun = Instant::now();
    loop {
        let (_, answer) = operator.ask(Method::GET, "/admin/queues", None).await?;
        let rows = answer["queues"].as_array().cloned().unwrap_or_default();
        let row = rows.iter().find(|row| row["queue"] == queue);
        if row.is_some_and(|row| row["depth"] == json!(count)) {
            return Ok(());
        }
        if begun.elapsed() > QUEUE_TIMEOUT {
            return Err(LoadError(format!("{count} calls should wait in {queue}: {answer}")));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Leases one call. Returns how long that took.
async fn lease(client: &mut Client, queue: &str) -> Result<Duration, LoadError> {
    let path = format!("/v1/queues/{queue}/lease");
    let lease = json!({"max": 1, "wait": "5s", "lease": "10m", "worker": "load"});
    let begun = Instant::now();
    let (status, answer) = client.ask(Method::POST, &path, Some(lease)).await?;
    let took = begun.elapsed();
    match answer["work"].as_array() {
        Some(work) if work.len() == 1 => Ok(took),
        Some(_) | None => Err(LoadError(format!("{path}: {status} {answer}"))),
    }
}
