//! Many models that speak at once, each to one listener: how late their tokens come.

use std::path::Path;
use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::json;
use tokio::task::JoinSet;

use super::client::Client;
use super::model::{Model, PACE};
use super::node::Node;
use super::report::Report;
use super::stream::Stream;
use super::{Load, Wrong, wrong};

const AGENT: &str = "speaker";
/// Tokens of a message: ten seconds of speech.
const TOKENS: u32 = 1_000;

/// What was measured.
pub(super) struct Speakers {
    pub(super) count: u32,
    /// From the provider's byte to the listener's frame, of the first token of one that speaks alone.
    pub(super) first_alone: Vec<Duration>,
    /// The same of all tokens while all speak.
    pub(super) tokens: Vec<Duration>,
    /// How many tokens came, of those that were said. Several may come in one frame: a token counts
    /// when it is in one.
    pub(super) heard: f64,
    /// From the first message to the last turn's end, and how long it is at the model's pace.
    pub(super) took: Duration,
    pub(super) spoken: Duration,
    /// The node's processor time meanwhile.
    pub(super) worked: Option<Duration>,
}

pub(super) async fn run(load: &Load, count: u32, dir: &Path) -> Result<Report, Wrong> {
    let node = Node::start(load, &dir.join("store"), "30s").await?;
    let model = Model::start().await?;
    let mut client = Client::new(node.public);
    client.define(AGENT, json!({"model": model.settings(3)})).await?;
    let mut first_alone = Vec::new();
    for n in 0..50 {
        let id = format!("alone-{n}");
        let stream = conversation(&mut client, &id).await?;
        speak(&mut client, &id).await?;
        first_alone.extend(listen(stream, model.clone()).await?.first());
    }
    client.define(AGENT, json!({"model": model.settings(TOKENS)})).await?;
    let mut listening = JoinSet::new();
    for n in 0..count {
        let stream = conversation(&mut client, &format!("speaker-{n}")).await?;
        listening.spawn(listen(stream, model.clone()));
    }
    let (began, worked) = (Instant::now(), node.worked());
    for n in 0..count {
        speak(&mut client, &format!("speaker-{n}")).await?;
    }
    let mut tokens = Vec::new();
    while let Some(heard) = listening.join_next().await {
        tokens.extend(heard.map_err(|error| wrong("a listener", error))??);
    }
    let took = began.elapsed();
    let worked = worked.and_then(|before| Some(node.worked()? - before));
    node.stop().await?;
    first_alone.sort();
    tokens.sort();
    let heard = tokens.len() as f64 / (f64::from(count) * f64::from(TOKENS));
    let spoken = PACE * TOKENS;
    let measured = Speakers { count, first_alone, tokens, heard, took, spoken, worked };
    Ok(Report::of_speakers(load, &measured))
}

/// How late each token came, to the turn's end.
async fn listen(mut stream: Stream, model: Model) -> Result<Vec<Duration>, Wrong> {
    let mut late = Vec::new();
    loop {
        let frame = stream.next().await?;
        match frame.name.as_str() {
            "text_delta" => {
                let said = frame.json()?;
                let said = said["text"].as_str().unwrap_or_default();
                late.extend(said.split_whitespace().filter_map(|token| model.age(token)));
            }
            "turn_completed" => return Ok(late),
            "turn_failed" | "turn_halted" => return Err(Wrong(frame.data)),
            _ => {}
        }
    }
}

/// A new conversation, and a listener to it.
async fn conversation(client: &mut Client, id: &str) -> Result<Stream, Wrong> {
    client.tell(Method::POST, "/v1/conversations", json!({"id": id, "agent": AGENT})).await?;
    Stream::open(client, id).await
}

async fn speak(client: &mut Client, id: &str) -> Result<(), Wrong> {
    client
        .tell(Method::POST, &format!("/v1/conversations/{id}/messages"), json!({"text": "Speak."}))
        .await
}
