//! Many open event streams: their memory, and how much a burst of deltas to all of them delays
//! commits.

use std::path::Path;
use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::json;
use tokio::task::JoinSet;

use super::client::Client;
use super::event_stream::Stream;
use super::idle_conversations;
use super::node::Node;
use super::report::Report;
use super::{Load, LoadError, load_error};

/// The agent whose model sends a burst of deltas.
const AGENT: &str = "bursts";
/// The deltas of a burst, one word each.
pub(super) const DELTAS_PER_BURST: usize = 100;
/// The conversation that all streams follow.
const SHARED_CONVERSATION: &str = "watched";
/// `--passivate-after`, short so that idle actors are not part of the memory.
const PASSIVATE_AFTER: &str = "1s";
/// Commits that are measured without a burst.
const QUIET_COMMITS: usize = 500;
/// Bursts that are measured.
const BURSTS: usize = 10;
/// How long one burst may take to reach all readers.
const BURST_TIMEOUT: Duration = Duration::from_secs(120);

/// The measurements.
pub(super) struct StreamsMeasurement {
    pub(super) count: u32,
    /// The resident memory per stream in kB, for many streams of one conversation.
    pub(super) shared_kb: f64,
    /// The resident memory per stream in kB, for one stream per conversation.
    pub(super) own_kb: f64,
    /// From a request that makes one commit to its answer, without a burst, sorted.
    pub(super) quiet: Vec<Duration>,
    /// Latencies during bursts, sorted.
    pub(super) bursts: Vec<Duration>,
    /// From a burst's message until every reader has received the end of its turn, sorted.
    pub(super) delivered: Vec<Duration>,
    /// The share of the deltas that arrived.
    pub(super) deltas: f64,
}

/// Opens streams, and lets the model send bursts to them while another client commits.
pub(super) async fn run(load: &Load, count: u32, dir: &Path) -> Result<Report, LoadError> {
    let node = Node::start(load, &dir.join("store"), PASSIVATE_AFTER).await?;
    let mut client = Client::new(node.public);
    let words =
        json!({"provider": "scripted", "script": [{"text": "word ".repeat(DELTAS_PER_BURST)}]});
    let definition = json!({"name": AGENT, "model": words, "tools": []});
    client.define(AGENT, definition).await?;
    create(&mut client, SHARED_CONVERSATION).await?;
    for n in 0..count {
        create(&mut client, &own(n)).await?;
    }
    // One of each, so that one-time allocations are not measured.
    let warm = [open(&node, SHARED_CONVERSATION).await?, open(&node, &own(0)).await?];
    idle_conversations::wait_until_passivated(&node).await?;
    let before = node.resident_kb()?;
    let mut alone = Vec::new();
    for n in 0..count {
        alone.push(open(&node, &own(n)).await?);
    }
    let own_kb = kb_per_stream(before, node.resident_kb()?, count);
    let before = node.resident_kb()?;
    let mut readers = Vec::new();
    for _ in 0..count {
        readers.push(open(&node, SHARED_CONVERSATION).await?);
    }
    let shared_kb = kb_per_stream(before, node.resident_kb()?, count);
    drop((warm, alone));

    let quiet = commits(&mut client, "quiet", QUIET_COMMITS).await?;
    let mut bursts = Vec::new();
    let mut delivered = Vec::new();
    let mut deltas = 0;
    for number in 0..BURSTS {
        let burst = burst(&node, &mut client, readers, number).await?;
        readers = burst.readers;
        deltas += burst.deltas;
        bursts.extend(burst.commits);
        delivered.push(burst.delivered);
    }
    drop(readers);
    node.stop().await?;
    let sorted = |mut timings: Vec<Duration>| {
        timings.sort();
        timings
    };
    let quiet = sorted(quiet);
    let bursts = sorted(bursts);
    let delivered = sorted(delivered);
    let deltas = deltas as f64 / (count as usize * DELTAS_PER_BURST * BURSTS) as f64;
    let measured =
        StreamsMeasurement { count, shared_kb, own_kb, quiet, bursts, delivered, deltas };
    Ok(Report::of_streams(load, &measured))
}

struct Burst {
    readers: Vec<Stream>,
    commits: Vec<Duration>,
    delivered: Duration,
    deltas: usize,
}

/// Sends one message whose reply all readers receive, and commits in the meantime.
async fn burst(
    node: &Node,
    client: &mut Client,
    readers: Vec<Stream>,
    number: usize,
) -> Result<Burst, LoadError> {
    let mut reading = JoinSet::new();
    for reader in readers {
        reading.spawn(to_the_end(reader));
    }
    let mut sender = Client::new(node.public);
    let path = format!("/v1/conversations/{SHARED_CONVERSATION}/messages");
    let message = json!({"text": "go"});
    let started = Instant::now();
    let sending = tokio::spawn(async move { sender.send(Method::POST, &path, message).await });
    let mut commits = Vec::new();
    let mut readers = Vec::new();
    let mut deltas = 0;
    while started.elapsed() < BURST_TIMEOUT {
        let name = format!("burst-{number}-{}", commits.len());
        let requested = Instant::now();
        create(client, &name).await?;
        commits.push(requested.elapsed());
        while let Some(read) = reading.try_join_next() {
            let (reader, delivered) = read.map_err(|error| load_error("a reader", error))??;
            readers.push(reader);
            deltas += delivered;
        }
        if reading.is_empty() {
            let delivered = started.elapsed();
            sending.await.map_err(|error| load_error("the message", error))??;
            return Ok(Burst { readers, commits, delivered, deltas });
        }
    }
    Err(LoadError(format!("a burst was not delivered within {BURST_TIMEOUT:?}")))
}

/// Reads to the end of the turn. Returns the number of deltas.
async fn to_the_end(mut reader: Stream) -> Result<(Stream, usize), LoadError> {
    let mut deltas = 0;
    loop {
        match reader.next().await?.name.as_str() {
            "text_delta" => deltas += 1,
            "turn_completed" => return Ok((reader, deltas)),
            _ => {}
        }
    }
}

fn own(n: u32) -> String {
    format!("own-{n}")
}

fn kb_per_stream(before: u64, after: u64, streams: u32) -> f64 {
    (after as f64 - before as f64) / f64::from(streams)
}

/// Opens a stream and reads its snapshot.
async fn open(node: &Node, conversation: &str) -> Result<Stream, LoadError> {
    let mut stream = Stream::open(&Client::new(node.public), conversation).await?;
    stream.next().await?;
    Ok(stream)
}

/// Makes `count` commits one after another. Returns how long each took.
async fn commits(
    client: &mut Client,
    name: &str,
    count: usize,
) -> Result<Vec<Duration>, LoadError> {
    let mut timings = Vec::new();
    for n in 0..count {
        let requested = Instant::now();
        create(client, &format!("{name}-{n}")).await?;
        timings.push(requested.elapsed());
    }
    Ok(timings)
}

/// Makes a conversation, which is one commit.
async fn create(client: &mut Client, id: &str) -> Result<(), LoadError> {
    let new = json!({"id": id, "agent": AGENT});
    client.send(Method::POST, "/v1/conversations", new).await
}
