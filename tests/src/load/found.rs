//! What lists, sweeps, rebuilds and erasures take beside many conversations, and beside a thousand.

mod fill;
mod passes;
mod requests;
mod work;

use std::path::Path;
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use super::client::Client;
use super::long_journal::Stored;
use super::node::{Node, Start};
use super::report::Report;
use super::{Load, LoadError, agent};
use work::Probe;

/// The conversations of the store with which the other is compared.
const FEW_CONVERSATIONS: u32 = 1_000;
const PASSIVATE_AFTER: &str = "1s";
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The two agents to whom the conversations belong, each half of them.
const AGENTS: [&str; 2] = ["north", "south"];
/// An agent with a few conversations, which its retention ends.
const BRIEF: &str = "brief";
/// The metadata that both agents index from the beginning.
const INDEXED: [&str; 2] = ["area", "customer"];

/// The name of each measurement and its value.
type Rows = Vec<(String, String)>;

/// Fills a store with few and one with many conversations, and measures both.
pub(super) async fn run(load: &Load, many: u32, dir: &Path) -> Result<Report, LoadError> {
    let mut sides = Vec::new();
    for (count, name) in [(FEW_CONVERSATIONS, "few"), (many, "many")] {
        sides.push(measure(load, count, &dir.join(name)).await?);
    }
    let head = ["measured".to_owned(), format!("of {FEW_CONVERSATIONS}"), format!("of {many}")];
    let mut report = Report::with_head(head.into());
    let store = if load.nodes.is_some() { "Redis" } else { "embedded" };
    report.row("store", &[store.to_owned(), store.to_owned()]);
    let [few, many] = <[Rows; 2]>::try_from(sides)
        .map_err(|_| LoadError("both stores must be measured".to_owned()))?;
    for ((name, few), (_, many)) in few.into_iter().zip(many) {
        report.row(&name, &[few, many]);
    }
    Ok(report)
}

/// Fills a store, and measures a node over it.
async fn measure(load: &Load, count: u32, dir: &Path) -> Result<Rows, LoadError> {
    std::fs::create_dir_all(dir).map_err(|error| super::load_error("a directory", error))?;
    let stored = Stored::start(load, dir).await?;
    let start =
        Start { store: &stored.url, passivate: PASSIVATE_AFTER, dir, name: "load", otlp: None };
    let node = Node::start_as(load, &start).await?;
    define(&mut Client::new(node.public), &INDEXED).await?;
    passes::wait_for_rebuild(&mut Client::new(node.admin)).await?;
    node.stop().await?;
    let filled = fill::fill(load, stored.open(load, dir).await?, count).await?;
    let node = Node::start_as(load, &start).await?;
    let mut rows = Rows::new();
    let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
    row("filled", format!("{:.0}/s", f64::from(count) / filled.as_secs_f64()));
    if let Some(redis) = &stored.redis {
        row("memory of Redis", format!("{} MB", redis.info().await?.memory >> 20));
    }
    row("start → ready", format!("{} ms", node.ready_after.as_millis()));
    let probe = Probe { node: &node, redis: stored.redis.as_ref() };
    requests::park(&node).await?;
    requests::measure(&probe, &mut rows).await?;
    passes::measure(&probe, count, &mut rows).await?;
    node.stop().await?;
    Ok(rows)
}

/// Defines the agents, the two large ones with this index.
async fn define(client: &mut Client, index: &[&str]) -> Result<(), LoadError> {
    agent::define(client).await?;
    for name in AGENTS {
        client.define(name, definition(name, index, "3650d")).await?;
    }
    Ok(())
}

fn definition(name: &str, index: &[&str], idle: &str) -> Value {
    json!({
        "name": name,
        "model": {"provider": "scripted", "script": [{"text": "Done."}]},
        "index": index,
        "retention": {"idle": idle},
    })
}

/// Reads a document, which must be there.
async fn read(client: &mut Client, path: &str) -> Result<Value, LoadError> {
    match client.ask(Method::GET, path, None).await? {
        (status, document) if status.is_success() => Ok(document),
        (status, answer) => Err(LoadError(format!("{path}: {status} {answer}"))),
    }
}
