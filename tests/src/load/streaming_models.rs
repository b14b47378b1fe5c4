//! Many models that stream at once, each to one listener: how late their tokens arrive.

use std::path::Path;
use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::json;
use tokio::task::JoinSet;

use super::client::Client;
use super::event_stream::Stream;
use super::model_server::{Model, TOKEN_INTERVAL};
use super::node::Node;
use super::report::Report;
use super::{Load, LoadError, load_error};

const AGENT: &str = "speaker";
/// Tokens of a message: ten seconds at the model's rate.
const TOKENS_PER_MESSAGE: u32 = 1_000;

/// The measurements.
pub(super) struct StreamingMeasurement {
    pub(super) count: u32,
    /// From the provider's byte to the listener's frame, for the first token of a model that
    /// streams alone.
    pub(super) first_alone: Vec<Duration>,
    /// Latencies of all tokens while all models stream.
    pub(super) tokens: Vec<Duration>,
    /// The share of the tokens that arrived. Several may arrive in one frame.
    pub(super) delivered: f64,
    /// From the first message to the end of the last turn.
    pub(super) took: Duration,
    /// How long a message takes at the model's rate.
    pub(super) expected: Duration,
    /// The node's processor time while all models stream.
    pub(super) cpu_time: Option<Duration>,
}

pub(super) async fn run(load: &Load, count: u32, dir: &Path) -> Result<Report, LoadError> {
    let node = Node::start(load, &dir.join("store"), "30s").await?;
    let model = Model::start().await?;
    let mut client = Client::new(node.public);
    client.define(AGENT, json!({"model": model.settings(3)})).await?;
    let mut first_alone = Vec::new();
    for n in 0..50 {
        let id = format!("alone-{n}");
        let stream = conversation(&mut client, &id).await?;
        send_message(&mut client, &id).await?;
        first_alone.extend(listen(stream, model.clone()).await?.first());
    }
    client.define(AGENT, json!({"model": model.settings(TOKENS_PER_MESSAGE)})).await?;
    let mut listening = JoinSet::new();
    for n in 0..count {
        let stream = conversation(&mut client, &format!("speaker-{n}")).await?;
        listening.spawn(listen(stream, model.clone()));
    }
    let (began, cpu_time) = (Instant::now(), node.cpu_time());
    for n in 0..count {
        send_message(&mut client, &format!("speaker-{n}")).await?;
    }
    let mut tokens = Vec::new();
    while let Some(delivered) = listening.join_next().await {
        tokens.extend(delivered.map_err(|error| load_error("a listener", error))??);
    }
    let took = began.elapsed();
    let cpu_time = cpu_time.and_then(|before| Some(node.cpu_time()? - before));
    node.stop().await?;
    first_alone.sort();
    tokens.sort();
    let delivered = tokens.len() as f64 / (f64::from(count) * f64::from(TOKENS_PER_MESSAGE));
    let expected = TOKEN_INTERVAL * TOKENS_PER_MESSAGE;
    let measured =
        StreamingMeasurement { count, first_alone, tokens, delivered, took, expected, cpu_time };
    Ok(Report::of_streaming_models(load, &measured))
}

/// Reads to the end of the turn. Returns how late each token arrived.
async fn listen(mut stream: Stream, model: Model) -> Result<Vec<Duration>, LoadError> {
    let mut late = Vec::new();
    loop {
        let frame = stream.next().await?;
        match frame.name.as_str() {
            "text_delta" => {
                let delta = frame.json()?;
                let text = delta["text"].as_str().unwrap_or_default();
                late.extend(text.split_whitespace().filter_map(|token| model.age(token)));
            }
            "turn_completed" => return Ok(late),
            "turn_failed" | "turn_halted" => return Err(LoadError(frame.data)),
            _ => {}
        }
    }
}

/// Creates a conversation, and opens its event stream.
async fn conversation(client: &mut Client, id: &str) -> Result<Stream, LoadError> {
    client.send(Method::POST, "/v1/conversations", json!({"id": id, "agent": AGENT})).await?;
    Stream::open(client, id).await
}

async fn send_message(client: &mut Client, id: &str) -> Result<(), LoadError> {
    client
        .send(Method::POST, &format!("/v1/conversations/{id}/messages"), json!({"text": "Speak."}))
        .await
}
