//! Measures whole turns, which every worker runs one after another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::client::Client;
use super::event_stream::Stream;
use super::node::{Counters, Node};
use super::redis::{self, Redis, Usage};
use super::{Load, LoadError, agent};

/// How long a turn may take.
const TURN_TIMEOUT: Duration = Duration::from_secs(60);
/// Turns before the measurement starts, so that caches are warm.
pub(super) const WARM_UP_TURNS: u32 = 200;

/// The measurements of all turns.
pub(super) struct Turns {
    pub(super) count: u32,
    pub(super) took: Duration,
    pub(super) counters: Counters,
    /// The processor time of the nodes' threads.
    pub(super) cpu_time: Option<Duration>,
    pub(super) redis: Option<Usage>,
    /// From the resolution to its 200, sorted.
    pub(super) accepted: Vec<Duration>,
    /// From the resolution to the frame that ends the turn, sorted.
    pub(super) ended: Vec<Duration>,
    /// From the time at which a conversation was to begin to its beginning, sorted; all zero in a
    /// closed loop.
    pub(super) late: Vec<Duration>,
    /// The bytes of one turn's events as JSON.
    pub(super) turn_bytes: usize,
}

struct Timing {
    accepted: Duration,
    ended: Duration,
}

/// What a worker measured.
#[derive(Default)]
struct Timings {
    turns: Vec<Timing>,
    late: Vec<Duration>,
}

impl Turns {
    /// Runs the turns. Each worker sends messages to one node and resolves at the next.
    /// Conversations stay: a second run on the same store needs another name.
    pub(super) async fn run(
        load: &Load,
        nodes: &[Node],
        redis: Option<&Redis>,
        name: &str,
    ) -> Result<Self, LoadError> {
        let [first, ..] = nodes else { return Err(LoadError("there is no node".to_owned())) };
        let mut client = Client::new(first.public);
        agent::define(&mut client).await?;
        let name = format!("{name}-{}", std::process::id());
        run_workers(load, nodes, format!("{name}-warm"), WARM_UP_TURNS.div_ceil(load.turns))
            .await?;
        let journal = journal_bytes(&mut client, &format!("{name}-warm-0")).await?;
        let turn_bytes = journal / load.turns as usize;
        let cpu_before = cpu_time(nodes);
        let redis_before = redis::usage(redis).await?;
        let before = counters(nodes).await?;
        let started = Instant::now();
        let Timings { turns: timings, mut late } =
            run_workers(load, nodes, name, load.conversations).await?;
        let took = started.elapsed();
        let after = counters(nodes).await?;
        let cpu_time = cpu_before.zip(cpu_time(nodes));
        let cpu_time = cpu_time.map(|(before, after)| after.saturating_sub(before));
        let redis = redis::usage(redis).await?.zip(redis_before);
        let redis = redis.map(|(after, before)| after.since(before));
        let mut accepted: Vec<_> = timings.iter().map(|timing| timing.accepted).collect();
        let mut ended: Vec<_> = timings.iter().map(|timing| timing.ended).collect();
        accepted.sort();
        ended.sort();
        late.sort();
        let count = load.conversations.saturating_mul(load.turns);
        let counters = after.since(before);
        Ok(Self { count, took, counters, cpu_time, redis, accepted, ended, late, turn_bytes })
    }

    /// The sum of two measurements.
    pub(super) fn plus(mut self, other: Self) -> Self {
        self.count += other.count;
        self.took += other.took;
        self.counters = self.counters.plus(other.counters);
        self.cpu_time = self.cpu_time.zip(other.cpu_time).map(|(one, other)| one + other);
        self.redis = self.redis.zip(other.redis).map(|(one, other)| one.plus(other));
        self.accepted.extend(other.accepted);
        self.ended.extend(other.ended);
        self.late.extend(other.late);
        self.accepted.sort();
        self.ended.sort();
        self.late.sort();
        self
    }
}

fn cpu_time(nodes: &[Node]) -> Option<Duration> {
    nodes.iter().map(Node::cpu_time).sum()
}

async fn counters(nodes: &[Node]) -> Result<Counters, LoadError> {
    let mut all = Counters::default();
    for node in nodes {
        all = all.plus(node.counters().await?);
    }
    Ok(all)
}

async fn run_workers(
    load: &Load,
    nodes: &[Node],
    name: String,
    conversations: u32,
) -> Result<Timings, LoadError> {
    let turns = load.turns;
    let started = Instant::now();
    let interval = load.rate.map(|rate| Duration::from_secs(1) / rate);
    let (next, name) = (Arc::new(AtomicU32::new(0)), Arc::new(name));
    let mut workers = JoinSet::new();
    let pairs = nodes.iter().zip(nodes.iter().cycle().skip(1)).cycle();
    for (sends, resolves) in pairs.take(load.concurrency as usize) {
        let (next, name) = (next.clone(), name.clone());
        let mut client = Client::new(sends.public);
        let mut other = Client::new(resolves.public);
        workers.spawn(async move {
            let mut timings = Timings::default();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= conversations {
                    return Ok(timings);
                }
                timings.late.push(match interval {
                    Some(interval) => wait_until(started + interval * n).await,
                    None => Duration::ZERO,
                });
                let id = format!("{name}-{n}");
                timings.turns.extend(run_conversation(&mut client, &mut other, &id, turns).await?);
            }
        });
    }
    let mut timings = Timings::default();
    while let Some(worker) = workers.join_next().await {
        let worker: Result<Timings, LoadError> =
            worker.map_err(|error| LoadError(format!("a worker: {error}")))?;
        let worker = worker?;
        timings.turns.extend(worker.turns);
        timings.late.extend(worker.late);
    }
    Ok(timings)
}

/// Waits for a time. Returns by how much it has passed.
async fn wait_until(time: Instant) -> Duration {
    tokio::time::sleep_until(time.into()).await;
    time.elapsed()
}

/// Runs all turns of a conversation on one event stream.
async fn run_conversation(
    client: &mut Client,
    other: &mut Client,
    id: &str,
    turns: u32,
) -> Result<Vec<Timing>, LoadError> {
    let mut stream = None;
    let mut timings = Vec::new();
    for _ in 0..turns {
        timings.push(run_turn(client, other, id, &mut stream).await?);
    }
    Ok(timings)
}

async fn run_turn(
    client: &mut Client,
    other: &mut Client,
    id: &str,
    stream: &mut Option<Stream>,
) -> Result<Timing, LoadError> {
    let turn = async {
        send_message(client, id).await?;
        let stream = match stream {
            Some(open) => open,
            None => stream.insert(Stream::open(client, id).await?),
        };
        let call = wait_for_suspension(stream).await?;
        let sent = Instant::now();
        let resolved = async {
            resolve(other, id, &call).await?;
            Ok(sent.elapsed())
        };
        let ended = async {
            wait_for_completion(stream, &call).await?;
            Ok(sent.elapsed())
        };
        let (accepted, ended) = tokio::try_join!(resolved, ended)?;
        Ok(Timing { accepted, ended })
    };
    let turn = tokio::time::timeout(TURN_TIMEOUT, turn).await;
    let turn = turn.map_err(|_| LoadError(format!("did not complete within {TURN_TIMEOUT:?}")));
    turn.and_then(|turn| turn).map_err(|LoadError(why)| LoadError(format!("{id}: {why}")))
}

/// Sends the message, the first of which creates the conversation.
pub(super) async fn send_message(client: &mut Client, id: &str) -> Result<(), LoadError> {
    let path = format!("/v1/conversations/{id}/messages");
    let body = json!({"agent": agent::NAME, "text": "Tell Ada that the load is on."});
    match client.ask(Method::POST, &path, Some(body)).await? {
        (StatusCode::ACCEPTED, _) => Ok(()),
        (status, answer) => Err(LoadError(format!("the message: {status} {answer}"))),
    }
}

/// Approves the call. Returns the node's answer.
pub(super) async fn ask_to_resolve(
    client: &mut Client,
    id: &str,
    call: &str,
) -> Result<(StatusCode, Value), LoadError> {
    let path = format!("/v1/conversations/{id}/calls/{call}/resolution");
    client.ask(Method::POST, &path, Some(json!({"approved": true}))).await
}

/// Approves the call, which must be accepted.
pub(super) async fn resolve(client: &mut Client, id: &str, call: &str) -> Result<(), LoadError> {
    match ask_to_resolve(client, id, call).await? {
        (StatusCode::OK, _) => Ok(()),
        (status, answer) => Err(LoadError(format!("the resolution: {status} {answer}"))),
    }
}

/// Waits until the call is suspended, and returns its id.
pub(super) async fn wait_for_suspension(stream: &mut Stream) -> Result<String, LoadError> {
    loop {
        let frame = stream.next().await?;
        let open = match frame.name.as_str() {
            "snapshot" => frame.json()?.pointer("/pending/0/call_id").cloned(),
            "suspended" => frame.json()?.pointer("/call_id").cloned(),
            "turn_completed" | "turn_failed" | "turn_halted" | "turn_cancelled" => {
                return Err(LoadError(format!("{} before its call: {}", frame.name, frame.data)));
            }
            _ => continue,
        };
        if let Some(Value::String(call)) = open {
            return Ok(call);
        }
    }
}

/// Waits until the turn has completed with exactly one successful result of its call.
async fn wait_for_completion(stream: &mut Stream, call: &str) -> Result<(), LoadError> {
    let mut results = 0;
    loop {
        let frame = stream.next().await?;
        match frame.name.as_str() {
            "tool_call_resolved" | "tool_call_errored" => {
                let data = frame.json()?;
                let good = data["call_id"] == call
                    && data["result"]["result"]["sent_to"] == "ada@example.com";
                if !good {
                    return Err(LoadError(format!("the result is wrong: {data}")));
                }
                results += 1;
            }
            "turn_completed" if results == 1 => return Ok(()),
            "turn_completed" | "turn_failed" | "turn_halted" | "turn_cancelled" => {
                return Err(LoadError(format!(
                    "{} with {results} results: {}",
                    frame.name, frame.data
                )));
            }
            _ => {}
        }
    }
}

/// The bytes of a conversation's events.
async fn journal_bytes(client: &mut Client, id: &str) -> Result<usize, LoadError> {
    let path = format!("/v1/conversations/{id}/journal?limit=1000");
    let (_, page) = client.ask(Method::GET, &path, None).await?;
    match page["events"].as_array() {
        Some(events) => Ok(events.iter().map(|event| event.to_string().len()).sum()),
        None => Err(LoadError(format!("{path}: has no events"))),
    }
}
