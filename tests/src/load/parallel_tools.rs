//! Compares turns that call many tools at once with turns that call the slowest of them alone.

use std::time::{Duration, Instant};

use axum::extract::Path;
use axum::routing::post;
use axum::{Json, Router};
use hyper::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::client::Client;
use super::event_stream::Stream;
use super::node::Node;
use super::report::Report;
use super::{Load, LoadError, load_error};

/// How long the slowest tool takes; the others take less, in equal steps.
const SLOWEST_MS: u32 = 200;
/// Turns per agent.
const TURNS_PER_AGENT: u32 = 25;

/// The measurements.
pub(super) struct ParallelMeasurement {
    pub(super) tools: u32,
    /// From the message to the frame that ends the turn, with the slowest tool alone, sorted.
    pub(super) alone: Vec<Duration>,
    /// From the message to the frame that ends the turn, with all tools at once, sorted.
    pub(super) together: Vec<Duration>,
}

/// Alternates turns that call the slowest tool with turns that call all of them.
pub(super) async fn run(
    load: &Load,
    tools: u32,
    dir: &std::path::Path,
) -> Result<Report, LoadError> {
    let node = Node::start(load, &dir.join("store"), "30s").await?;
    let server = serve().await?;
    let mut client = Client::new(node.public);
    define(&mut client, "alone", &server, SLOWEST_MS..=SLOWEST_MS, 1).await?;
    define(&mut client, "together", &server, SLOWEST_MS / tools..=SLOWEST_MS, tools).await?;
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    for n in 0..TURNS_PER_AGENT {
        alone.push(turn(&mut client, "alone", n).await?);
        together.push(turn(&mut client, "together", n).await?);
    }
    node.stop().await?;
    alone.sort();
    together.sort();
    Ok(Report::of_parallel(load, &ParallelMeasurement { tools, alone, together }))
}

/// Starts a server whose path is the time of an answer in milliseconds.
async fn serve() -> Result<String, LoadError> {
    let listener =
        TcpListener::bind("127.0.0.1:0").await.map_err(|error| load_error("tools", error))?;
    let at = listener.local_addr().map_err(|error| load_error("tools", error))?;
    let answer = async |Path(ms): Path<u64>| {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        Json(json!({"took_ms": ms}))
    };
    let router = Router::new().route("/{ms}", post(answer));
    // The server runs until the program ends.
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(format!("http://{at}"))
}

async fn define(
    client: &mut Client,
    name: &str,
    server: &str,
    ms: std::ops::RangeInclusive<u32>,
    count: u32,
) -> Result<(), LoadError> {
    let step = (ms.end() - ms.start()) / count.saturating_sub(1).max(1);
    let tool = |n: u32| {
        let ms = ms.end() - n * step;
        json!({"name": format!("tool_{n}"), "run": {"http": {"url": format!("{server}/{ms}")}}})
    };
    let call = |n: u32| json!({"name": format!("tool_{n}"), "args": {}});
    let calls: Vec<Value> = (0..count).map(call).collect();
    let definition = json!({
        "model": {"provider": "scripted", "script": [{"calls": calls}, {"text": "Done."}]},
        "tools": (0..count).map(tool).collect::<Vec<_>>(),
    });
    client.define(name, definition).await
}

/// Runs one turn of the agent. Returns how long it took.
async fn turn(client: &mut Client, agent: &str, n: u32) -> Result<Duration, LoadError> {
    let id = format!("{agent}-{n}");
    let new = json!({"id": id, "agent": agent});
    client.ask(Method::POST, "/v1/conversations", Some(new)).await?;
    let mut stream = Stream::open(client, &id).await?;
    let begun = Instant::now();
    let path = format!("/v1/conversations/{id}/messages");
    let (status, answer) = client.ask(Method::POST, &path, Some(json!({"text": "go"}))).await?;
    if !status.is_success() {
        return Err(LoadError(format!("{path}: {status} {answer}")));
    }
    loop {
        let frame = stream.next().await?;
        match frame.name.as_str() {
            "turn_completed" => return Ok(begun.elapsed()),
            "tool_call_errored" | "turn_failed" => return Err(LoadError(frame.data)),
            _ => {}
        }
    }
}
