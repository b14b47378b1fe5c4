//! Notices that wait for a receiver that hangs: the memory that they take, and how fast they go out
//! once it answers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use hyper::Method;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::client::Client;
use super::node::Node;
use super::node_group::NodeGroup;
use super::report::Report;
use super::{Load, LoadError, load_error};

/// How long all of them may take.
const TIMEOUT: Duration = Duration::from_secs(600);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const PASSIVATE_AFTER: &str = "1s";

/// A receiver that hangs until it is opened.
#[derive(Clone)]
struct Receiver {
    received: Arc<AtomicU32>,
    open: watch::Sender<bool>,
}

async fn receive(State(receiver): State<Receiver>) -> StatusCode {
    // The sender is part of the state: this cannot fail.
    let _ = receiver.open.subscribe().wait_for(|open| *open).await;
    receiver.received.fetch_add(1, Ordering::Relaxed);
    StatusCode::NO_CONTENT
}

/// Creates conversations of which each owes a notice, and lets the receiver take them.
pub(super) async fn run(load: &Load, count: u32, dir: &Path) -> Result<Report, LoadError> {
    let receiver = Receiver { received: Arc::default(), open: watch::channel(false).0 };
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.map_err(|error| load_error("the receiver", error))?;
    let address = listener.local_addr().map_err(|error| load_error("the receiver", error))?;
    let app = Router::new().fallback(receive).with_state(receiver.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });

    let (node, others) = match load.nodes {
        None => (Node::start(load, &dir.join("store"), PASSIVATE_AFTER).await?, None),
        Some(_) => {
            let mut group = NodeGroup::start(load, dir, PASSIVATE_AFTER, None).await?;
            (group.nodes.remove(0), Some(group))
        }
    };
    let mut client = Client::new(node.public);
    let webhook = json!({"url": format!("http://{address}/"), "events": "all"});
    client.send(Method::PUT, "/v1/webhooks/load", webhook).await?;
    create(load, &node, 0..count / 10).await?;
    let tenth = node.resident_kb()?;
    let took = create(load, &node, count / 10..count).await?;
    let all = node.resident_kb()?;
    let status = client.ask(Method::GET, "/v1/webhooks/load", None).await?.1;
    let opened_at = Instant::now();
    receiver.open.send_replace(true);
    while receiver.received.load(Ordering::Relaxed) < count {
        if opened_at.elapsed() > TIMEOUT {
            let received = receiver.received.load(Ordering::Relaxed);
            return Err(LoadError(format!("{received} of {count} notices came")));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let delivered_in = opened_at.elapsed();
    let after = node.resident_kb()?;
    node.stop().await?;
    drop(others);

    let a_second =
        |count: u32, took: Duration| format!("{:.0}/s", f64::from(count) / took.as_secs_f64());
    let megabytes = |kb: u64| format!("{:.0} MB", kb as f64 * 1_024.0 / 1e6);
    Ok(Report::of([
        ("owed", status["owed"].to_string()),
        ("conversations created", a_second(count - count / 10, took)),
        ("resident with a tenth of them", megabytes(tenth)),
        ("resident with all of them", megabytes(all)),
        ("received", a_second(count, delivered_in)),
        ("resident after that", megabytes(after)),
    ]))
}

/// Creates conversations. Returns how long it took.
async fn create(
    load: &Load,
    node: &Node,
    range: std::ops::Range<u32>,
) -> Result<Duration, LoadError> {
    let next = Arc::new(AtomicU32::new(range.start));
    let (begun, mut workers) = (Instant::now(), JoinSet::new());
    for _ in 0..load.concurrency {
        let (next, end) = (next.clone(), range.end);
        let mut client = Client::new(node.public);
        workers.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= end {
                    return Ok::<_, LoadError>(());
                }
                let new = json!({"id": format!("owing-{n}"), "agent": "demo"});
                client.send(Method::POST, "/v1/conversations", new).await?;
            }
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker.map_err(|error| load_error("a worker", error))??;
    }
    Ok(begun.elapsed())
}
