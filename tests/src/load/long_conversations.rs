//! Measures the cost of a step in conversations with many events.

use std::path::Path;
use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::{Value, json};

use super::client::Client;
use super::event_stream::Stream;
use super::model_server::Model;
use super::node::Node;
use super::report::Report;
use super::{Load, LoadError, idle_conversations};

const AGENT: &str = "long";
/// `--passivate-after`: longer than the pause between two steps.
const PASSIVATE_AFTER: &str = "500ms";
/// The journal lengths that are measured, in events.
const JOURNAL_LENGTHS: [u64; 3] = [10, 1_000, 100_000];
/// The events of a turn: a message, its start, a reply, its end.
const EVENTS_PER_TURN: u64 = 4;
/// How many of the events fit into the model's context.
const CONTEXT_EVENTS: u64 = 1_000;
/// Messages that are queued at once while a journal grows; a conversation accepts a hundred.
const MAX_QUEUED_MESSAGES: u64 = 64;
/// Steps of a live actor that are measured per conversation.
const LIVE_STEPS: usize = 100;
/// Steps that revive an actor that are measured per conversation.
const REVIVED_STEPS: usize = 20;

/// The measurements of one conversation.
pub(super) struct LongMeasurement {
    pub(super) events: u64,
    /// From the message to the head of the provider's request, sorted.
    pub(super) live: Vec<Duration>,
    /// Latencies of steps that had to revive the actor, sorted.
    pub(super) revived: Vec<Duration>,
    /// The growth of the node's resident memory per step.
    pub(super) grown_kb: f64,
}

pub(super) async fn run(load: &Load, dir: &Path) -> Result<Report, LoadError> {
    let node = Node::start(load, &dir.join("store"), PASSIVATE_AFTER).await?;
    let model = Model::start().await?;
    let mut client = Client::new(node.public);
    let mut measured = Vec::new();
    for events in JOURNAL_LENGTHS {
        let id = format!("long-{events}");
        // Without delay, and about as long as a short answer.
        let reply = "Something that was said at some time, of no great length.";
        let scripted = agent(json!({"provider": "scripted", "script": [{"text": reply}]}));
        // Events beyond the context are made with a small context, which is faster.
        let mut forgetful = scripted.clone();
        forgetful["working_budget"] = json!(400);
        forgetful["injection_reserve"] = json!(1);
        client.define(AGENT, forgetful).await?;
        client.send(Method::POST, "/v1/conversations", json!({"id": id, "agent": AGENT})).await?;
        grow(&mut client, &id, events.saturating_sub(CONTEXT_EVENTS)).await?;
        client.define(AGENT, scripted).await?;
        grow(&mut client, &id, events.min(CONTEXT_EVENTS)).await?;
        client.define(AGENT, agent(model.settings(1))).await?;
        measured.push(steps(&node, &mut client, &model, &id, events).await?);
    }
    node.stop().await?;
    Ok(Report::of_long(load, &measured))
}

/// Adds `events` events to the conversation.
async fn grow(client: &mut Client, id: &str, events: u64) -> Result<(), LoadError> {
    let mut stream = Stream::open(client, id).await?;
    let path = format!("/v1/conversations/{id}/messages");
    let turns = events / EVENTS_PER_TURN;
    let (mut sent, mut done) = (0, 0);
    while done < turns {
        while sent < turns && sent - done < MAX_QUEUED_MESSAGES {
            let message = json!({"text": format!("message {sent}"), "if_busy": "queue"});
            client.send(Method::POST, &path, message).await?;
            sent += 1;
        }
        while stream.next().await?.name != "turn_completed" {}
        done += 1;
    }
    Ok(())
}

async fn steps(
    node: &Node,
    client: &mut Client,
    model: &Model,
    id: &str,
    events: u64,
) -> Result<LongMeasurement, LoadError> {
    let mut stream = Stream::open(client, id).await?;
    // The first steps may have to reduce the context that the script has left.
    for _ in 0..3 {
        step(client, &mut stream, model, id).await?;
    }
    let before = node.resident_kb()?;
    let mut live = Vec::new();
    for _ in 0..LIVE_STEPS {
        live.push(step(client, &mut stream, model, id).await?);
    }
    let grown_kb = (node.resident_kb()? as f64 - before as f64) / LIVE_STEPS as f64;
    let mut revived = Vec::new();
    for _ in 0..REVIVED_STEPS {
        idle_conversations::wait_until_passivated(node).await?;
        revived.push(step(client, &mut stream, model, id).await?);
    }
    live.sort();
    revived.sort();
    Ok(LongMeasurement { events, live, revived, grown_kb })
}

/// Runs one turn of one step. Returns the time from the message to the provider's request.
async fn step(
    client: &mut Client,
    stream: &mut Stream,
    model: &Model,
    id: &str,
) -> Result<Duration, LoadError> {
    model.take_request_times();
    let began = Instant::now();
    let path = format!("/v1/conversations/{id}/messages");
    client.send(Method::POST, &path, json!({"text": "What was said?"})).await?;
    loop {
        let frame = stream.next().await?;
        match frame.name.as_str() {
            "turn_completed" => break,
            "turn_failed" | "turn_halted" => return Err(LoadError(frame.data)),
            _ => {}
        }
    }
    let requested = model.take_request_times().first().copied();
    requested
        .map(|requested| requested - began)
        .ok_or_else(|| LoadError("the provider got no request".to_owned()))
}

fn agent(model: Value) -> Value {
    json!({"name": AGENT, "model": model, "system_prompt": "You last."})
}
