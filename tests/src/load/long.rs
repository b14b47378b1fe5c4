//! Conversations of many events: what a step of theirs costs by itself, whatever lies behind it.

use std::path::Path;
use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::{Value, json};

use super::client::Client;
use super::model::Model;
use super::node::Node;
use super::report::Report;
use super::stream::Stream;
use super::{Load, Wrong, park};

const AGENT: &str = "long";
/// How soon an actor with nothing to do leaves: longer than between two steps.
const PASSIVATE: &str = "500ms";
/// The journal lengths that are measured.
const EVENTS: [u64; 3] = [10, 1_000, 100_000];
/// A turn is that many events: a message, its start, an answer, its end.
const TURN: u64 = 4;
/// How many of the events the model reads.
const SHOWN: u64 = 1_000;
/// Messages that wait at once while a journal is made; a conversation takes a hundred.
const QUEUED: u64 = 64;
/// Steps that are measured of each, of a live actor and of one that must be revived.
const STEPS: usize = 100;
const REVIVALS: usize = 20;

/// What was measured of one conversation.
pub(super) struct Long {
    pub(super) events: u64,
    /// From the message to the head of the request at the provider, sorted.
    pub(super) live: Vec<Duration>,
    /// The same, of one whose actor had left memory.
    pub(super) revived: Vec<Duration>,
    /// By how much the node's resident memory grew over all steps, for each of them.
    pub(super) grown_kb: f64,
}

pub(super) async fn run(load: &Load, dir: &Path) -> Result<Report, Wrong> {
    let node = Node::start(load, &dir.join("store"), PASSIVATE).await?;
    let model = Model::start().await?;
    let mut client = Client::new(node.public);
    let mut measured = Vec::new();
    for events in EVENTS {
        let id = format!("long-{events}");
        // Without a delay, and with as many tokens as a short answer has.
        let says = "Something that was said at some time, of no great length.";
        let scripted = agent(json!({"provider": "scripted", "script": [{"text": says}]}));
        // What lies further back than the context reaches is made with a short one: that is faster.
        let mut forgetful = scripted.clone();
        (forgetful["working_budget"], forgetful["injection_reserve"]) = (json!(400), json!(1));
        client.define(AGENT, forgetful).await?;
        client.tell(Method::POST, "/v1/conversations", json!({"id": id, "agent": AGENT})).await?;
        grow(&mut client, &id, events.saturating_sub(SHOWN)).await?;
        client.define(AGENT, scripted).await?;
        grow(&mut client, &id, events.min(SHOWN)).await?;
        client.define(AGENT, agent(model.settings(1))).await?;
        measured.push(steps(&node, &mut client, &model, &id, events).await?);
    }
    node.stop().await?;
    Ok(Report::of_long(load, &measured))
}

/// Lets the conversation go on for so many events.
async fn grow(client: &mut Client, id: &str, events: u64) -> Result<(), Wrong> {
    let mut stream = Stream::open(client, id).await?;
    let path = format!("/v1/conversations/{id}/messages");
    let turns = events / TURN;
    let (mut sent, mut done) = (0, 0);
    while done < turns {
        while sent < turns && sent - done < QUEUED {
            let said = json!({"text": format!("message {sent}"), "if_busy": "queue"});
            client.tell(Method::POST, &path, said).await?;
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
) -> Result<Long, Wrong> {
    let mut stream = Stream::open(client, id).await?;
    // The first may have to reduce what the script has left behind.
    for _ in 0..3 {
        step(client, &mut stream, model, id).await?;
    }
    let before = node.resident_kb()?;
    let mut live = Vec::new();
    for _ in 0..STEPS {
        live.push(step(client, &mut stream, model, id).await?);
    }
    let grown_kb = (node.resident_kb()? as f64 - before as f64) / STEPS as f64;
    let mut revived = Vec::new();
    for _ in 0..REVIVALS {
        park::gone(node).await?;
        revived.push(step(client, &mut stream, model, id).await?);
    }
    live.sort();
    revived.sort();
    Ok(Long { events, live, revived, grown_kb })
}

/// One turn of one step; how long it took until the provider was asked.
async fn step(
    client: &mut Client,
    stream: &mut Stream,
    model: &Model,
    id: &str,
) -> Result<Duration, Wrong> {
    model.asked();
    let began = Instant::now();
    let path = format!("/v1/conversations/{id}/messages");
    client.tell(Method::POST, &path, json!({"text": "What was said?"})).await?;
    loop {
        let frame = stream.next().await?;
        match frame.name.as_str() {
            "turn_completed" => break,
            "turn_failed" | "turn_halted" => return Err(Wrong(frame.data)),
            _ => {}
        }
    }
    let asked = model.asked().first().copied();
    asked.map(|asked| asked - began).ok_or_else(|| Wrong("the provider was not asked".to_owned()))
}

fn agent(model: Value) -> Value {
    json!({"name": AGENT, "model": model, "system_prompt": "You last."})
}
