//! Streams of turns in the protocols of existing clients, compared with event streams: their memory, the
//! node's processor time, and how soon the first delta arrives.

use std::path::Path;
use std::time::{Duration, Instant};

use axum::body::{Body, BodyDataStream};
use futures::StreamExt;
use hyper::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::client::Client;
use super::node::Node;
use super::report::Report;
use super::{Load, LoadError, load_error};
use crate::protocol_stream::Protocol;

/// Writes slowly, so that its deltas come one by one.
const WRITER: &str = "writer";
/// Pauses after its first word for longer than the measurement takes.
const PAUSER: &str = "pauser";
/// Writes one word at once.
const QUICK: &str = "quick";
/// The deltas of a turn whose processor time is measured.
const DELTAS: usize = 300;
/// The turns of a block, which run at the same time.
const TURNS_PER_BLOCK: u32 = 30;
/// The first deltas that are measured for each way to listen.
const FIRST_DELTAS: u32 = 100;

/// How a turn is listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listener {
    /// Nobody listens.
    None,
    /// By the conversation's event stream.
    Events,
    /// By the stream of a protocol.
    Protocol(Protocol),
}

impl Listener {
    const ALL: [Self; 6] = [
        Self::None,
        Self::Events,
        Self::Protocol(Protocol::AgUi),
        Self::Protocol(Protocol::AiSdk),
        Self::Protocol(Protocol::Responses),
        Self::Protocol(Protocol::Chat),
    ];
}

/// The measurements of one way to listen.
#[derive(Debug)]
pub(super) struct ListenerMeasurement {
    pub(super) listener: Listener,
    /// The resident memory in kB of a turn that runs and its listener.
    pub(super) kb: f64,
    /// The node's processor time of all turns of the writer.
    pub(super) cpu_time: Duration,
    /// From the message to its first delta, sorted.
    pub(super) first_delta: Vec<Duration>,
}

/// All measurements.
pub(super) struct ProtocolsMeasurement {
    pub(super) streams: u32,
    /// The turns of the writer for each way to listen.
    pub(super) turns: u32,
    pub(super) deltas: usize,
    pub(super) listeners: Vec<ListenerMeasurement>,
}

pub(super) async fn run(load: &Load, streams: u32, dir: &Path) -> Result<Report, LoadError> {
    let node = Node::start(load, &dir.join("store"), "1h").await?;
    let mut client = Client::new(node.public);
    for (agent, words, delay) in [(WRITER, DELTAS, "2ms"), (PAUSER, 2, "1h"), (QUICK, 1, "0ms")] {
        let script = json!([{"text": "word ".repeat(words), "delay": delay}]);
        let model = json!({"provider": "scripted", "script": script});
        client.define(agent, json!({"name": agent, "model": model, "tools": []})).await?;
    }
    let new = |listener| ListenerMeasurement {
        listener,
        kb: 0.0,
        cpu_time: Duration::ZERO,
        first_delta: Vec::new(),
    };
    let mut listeners = Listener::ALL.map(new);
    for n in 0..FIRST_DELTAS {
        for measured in &mut listeners {
            let id = format!("quick-{:?}-{n}", measured.listener);
            measured.first_delta.extend(first_delta(&mut client, measured.listener, &id).await?);
        }
    }
    for round in 0..load.rounds {
        for n in 0..listeners.len() {
            // Each block follows another one than in the round before.
            let index = (n + round as usize) % listeners.len();
            let Some(measured) = listeners.get_mut(index) else { continue };
            measured.cpu_time += block(&node, measured.listener, round).await?;
        }
    }
    // Held to the end, so that none uses the memory of another.
    let mut open = Vec::new();
    for measured in &mut listeners {
        let before = node.resident_kb()?;
        for n in 0..streams {
            let id = format!("pauses-{:?}-{n}", measured.listener);
            let mut turn = Turn::begin(&mut client, measured.listener, (PAUSER, &id)).await?;
            turn.read_to("word").await?;
            open.push(turn);
        }
        measured.kb = (node.resident_kb()? as f64 - before as f64) / f64::from(streams);
    }
    drop(open);
    node.kill().await?;
    listeners.iter_mut().for_each(|it| it.first_delta.sort());
    let turns = load.rounds * TURNS_PER_BLOCK;
    let listeners = listeners.into();
    let measured = ProtocolsMeasurement { streams, turns, deltas: DELTAS, listeners };
    Ok(Report::of_protocols(load, &measured))
}

/// From a message to its first delta; `None` where nobody listens.
async fn first_delta(
    client: &mut Client,
    listener: Listener,
    id: &str,
) -> Result<Option<Duration>, LoadError> {
    let mut turn = Turn::begin(client, listener, (QUICK, id)).await?;
    turn.read_to("word").await?;
    let took = turn.sent.elapsed();
    turn.read_to_end(client).await?;
    Ok((listener != Listener::None).then_some(took))
}

/// Lets the writer write to listeners. Returns the node's processor time.
async fn block(node: &Node, listener: Listener, round: u32) -> Result<Duration, LoadError> {
    let mut client = Client::new(node.public);
    let ids: Vec<String> =
        (0..TURNS_PER_BLOCK).map(|n| format!("writes-{listener:?}-{round}-{n}")).collect();
    for id in &ids {
        create(&mut client, WRITER, id).await?;
    }
    let before = node.cpu_time();
    let mut turns = JoinSet::new();
    for id in ids {
        let mut client = Client::new(node.public);
        turns.spawn(async move {
            let turn = Turn::begin_known(&mut client, listener, (WRITER, &id)).await?;
            turn.read_to_end(&mut client).await
        });
    }
    while let Some(ended) = turns.join_next().await {
        ended.map_err(|error| load_error("a listener", error))??;
    }
    let spent = before.and_then(|before| Some(node.cpu_time()? - before));
    spent.ok_or_else(|| LoadError("the node's processor time is not known".to_owned()))
}

async fn create(client: &mut Client, agent: &str, id: &str) -> Result<(), LoadError> {
    client.send(Method::POST, "/v1/conversations", json!({"id": id, "agent": agent})).await
}

/// A turn that was begun, and what is read of it.
struct Turn {
    listener: Listener,
    id: String,
    sent: Instant,
    pieces: Option<BodyDataStream>,
    /// What was read last, for text that is divided.
    read: String,
}

impl Turn {
    /// Begins a turn of a new conversation.
    async fn begin(
        client: &mut Client,
        listener: Listener,
        (agent, id): (&str, &str),
    ) -> Result<Self, LoadError> {
        create(client, agent, id).await?;
        Self::begin_known(client, listener, (agent, id)).await
    }

    async fn begin_known(
        client: &mut Client,
        listener: Listener,
        (agent, id): (&str, &str),
    ) -> Result<Self, LoadError> {
        let own = format!("/v1/conversations/{id}");
        let (pieces, sent) = match listener {
            Listener::Protocol(protocol) => {
                let (path, body) = protocol.message(agent, id, "go");
                let sent = Instant::now();
                (Some(client.open_with(Method::POST, &path, Some(body)).await?), sent)
            }
            Listener::None | Listener::Events => {
                let events = match listener {
                    Listener::Events => Some(client.open(&format!("{own}/events")).await?),
                    _ => None,
                };
                let sent = Instant::now();
                let message: Value = json!({"text": "go"});
                client.send(Method::POST, &format!("{own}/messages"), message).await?;
                (events, sent)
            }
        };
        let pieces = pieces.map(Body::into_data_stream);
        Ok(Self { listener, id: id.to_owned(), sent, pieces, read: String::new() })
    }

    /// Reads until this text came. Returns at once where nobody listens.
    async fn read_to(&mut self, text: &str) -> Result<(), LoadError> {
        while self.pieces.is_some() && !self.read.contains(text) {
            if !self.read_piece().await? {
                return Err(LoadError(format!("a stream of {:?} has ended", self.listener)));
            }
        }
        Ok(())
    }

    /// Reads on. Returns false at the end of the stream.
    async fn read_piece(&mut self) -> Result<bool, LoadError> {
        let Some(pieces) = &mut self.pieces else { return Ok(false) };
        let Some(piece) = pieces.next().await else { return Ok(false) };
        let piece = piece.map_err(|error| load_error("a stream", error))?;
        // The longest text that is looked for is shorter.
        let kept = self.read.len().saturating_sub(32);
        let kept = self.read.split_off(self.read.floor_char_boundary(kept));
        self.read = kept + &String::from_utf8_lossy(&piece);
        Ok(true)
    }

    /// Waits for the end of the turn.
    async fn read_to_end(mut self, client: &mut Client) -> Result<(), LoadError> {
        match self.listener {
            Listener::None => {
                let path = format!("/v1/conversations/{}", self.id);
                while client.ask(Method::GET, &path, None).await?.1["state"] != "idle" {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
            }
            Listener::Events => self.read_to("event: turn_completed").await?,
            Listener::Protocol(_) => while self.read_piece().await? {},
        }
        Ok(())
    }
}
