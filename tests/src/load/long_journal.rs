//! A conversation with a journal of many megabytes that is loaded whole: how long that takes, and
//! how much it delays others.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::{Commit, Holder};
use abide_conversation::{ConversationId, Event, Scoped, State, Tenant, replay};
use abide_registry::store::Store;
use abide_registry::store::embedded::{self, Embedded};
use hyper::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::client::Client;
use super::node::{Node, Start};
use super::redis::Redis;
use super::report::Report;
use super::{Durability, Load, LoadError, bare_node, load_error};

pub(super) const AGENT: &str = "long-journal";
pub(super) const LONG: &str = "long";
const PASSIVATE_AFTER: &str = "30s";
/// The text of each message of the long journal, nearly the most that a request may have.
const TEXT_BYTES: usize = 1_000_000;
/// The other conversations, and how many of them are sent a message at the same time.
const OTHERS: usize = 50;
const WORKERS: usize = 4;
/// How long the others are measured alone.
const QUIET: Duration = Duration::from_secs(3);

/// The measurements.
pub(super) struct JournalMeasurement {
    pub(super) megabytes: u32,
    /// From the message to the long conversation to its answer.
    pub(super) opened_after: Duration,
    /// The peak of the node's resident memory before and after.
    pub(super) peak_kb: [u64; 2],
    /// From a message to another conversation to its answer, before and meanwhile, sorted.
    pub(super) quiet: Vec<Duration>,
    pub(super) meanwhile: Vec<Duration>,
}

/// The store under the node, and the Redis that was started for it.
pub(super) struct Stored {
    pub(super) url: String,
    pub(super) redis: Option<Redis>,
}

impl Stored {
    /// Starts a Redis if there are nodes over one; otherwise the store is embedded in this directory.
    pub(super) async fn start(load: &Load, dir: &Path) -> Result<Self, LoadError> {
        if load.nodes.is_some() {
            let redis = Redis::start(load.durability, dir).await?;
            return Ok(Self { url: redis.url.clone(), redis: Some(redis) });
        }
        Ok(Self { url: format!("embedded:{}", dir.join("store").display()), redis: None })
    }

    /// Opens it as a node does. No node may run on an embedded one meanwhile.
    pub(super) async fn open(&self, load: &Load, dir: &Path) -> Result<Arc<dyn Store>, LoadError> {
        if let Some(redis) = &self.redis {
            return redis.store(load.durability).await;
        }
        let durability = match load.durability {
            Durability::Fsync => embedded::Durability::Fsync,
            Durability::Os => embedded::Durability::Os,
        };
        let store = Embedded::open(&dir.join("store"), durability);
        Ok(Arc::new(store.map_err(|error| load_error("the store", error))?))
    }
}

/// Writes the journal, and lets a node load it while others send messages.
pub(super) async fn run(load: &Load, megabytes: u32, dir: &Path) -> Result<Report, LoadError> {
    let stored = Stored::start(load, dir).await?;
    write(&*stored.open(load, dir).await?, megabytes).await?;
    let start =
        Start { store: &stored.url, passivate: PASSIVATE_AFTER, dir, name: "load", otlp: None };
    let node = Node::start_as(load, &start).await?;
    let mut client = Client::new(node.public);
    let words = json!({"provider": "scripted", "script": [{"text": "Done."}]});
    client.define(AGENT, json!({"name": AGENT, "model": words, "tools": []})).await?;
    let workers = OtherMessages::start(&node);
    tokio::time::sleep(QUIET).await;
    let quiet = workers.stop().await?;
    let before = node.peak_kb()?;
    let workers = OtherMessages::start(&node);
    let started = Instant::now();
    let path = format!("/v1/conversations/{LONG}/messages");
    client.send(Method::POST, &path, json!({"text": "What was said?"})).await?;
    let opened_after = started.elapsed();
    let meanwhile = workers.stop().await?;
    let peak_kb = [before, node.peak_kb()?];
    node.stop().await?;
    let measured = JournalMeasurement { megabytes, opened_after, peak_kb, quiet, meanwhile };
    Ok(Report::of_long_journal(load, &measured))
}

/// Writes turns whose messages have `megabytes` in all. No commit stores the folded state, so that
/// the whole journal is read.
async fn write(store: &dyn Store, megabytes: u32) -> Result<(), LoadError> {
    let failed = |refusal| load_error("writing the journal", refusal);
    let id = Scoped::new(&Tenant::default(), &ConversationId::new(LONG));
    let me = Holder { node: NodeName::new("writer"), incarnation: Incarnation::new("1") };
    let claim = store.claim_and_load(&id, &me, None).await.map_err(failed)?.claim;
    let mut state = State::default();
    for number in 0..megabytes.max(1) {
        let events = turn(state.seq.get(), number)?;
        state = replay(state, &events);
        let summary = bare_node::summary(&state)?;
        store.append(&id, &claim, Commit::new(events.into(), summary)).await.map_err(failed)?;
    }
    store.release(&id, &claim).await.map_err(failed)
}

/// The events of a turn after `seq`; the first turn creates the conversation.
pub(super) fn turn(seq: u64, number: u32) -> Result<Vec<Event>, LoadError> {
    let text = |text: String| json!([{"type": "text", "text": text}]);
    let question = json!({"id": format!("msg_q{number}"), "role": "user",
        "content": text("x".repeat(TEXT_BYTES))});
    let answer = json!({"id": format!("msg_a{number}"), "role": "assistant",
        "content": text("Done.".to_owned())});
    let started = json!({"agent": AGENT, "revision": "0000000000000000", "max_steps": 25});
    let events = [
        ("created", json!({"agent": AGENT})),
        ("user_msg", json!({"message": question, "principal": "anonymous"})),
        ("turn_started", started),
        ("assistant_msg", json!({"message": answer, "status": "complete", "step": 1})),
        ("turn_ended", json!({"outcome": "completed"})),
    ];
    let events = events.into_iter().skip(usize::from(seq > 0)).zip(seq + 1..);
    let events = events.map(|((kind, data), seq)| {
        let mut event = json!({"seq": seq, "at": "2026-11-22T21:59:02.781Z", "type": kind,
            "data": data});
        if kind != "created" {
            event["turn_id"] = Value::String(format!("turn_{number}"));
        }
        abide_conversation::from_json(event.to_string().as_bytes())
    });
    let events: Result<_, _> = events.collect();
    events.map_err(|error| load_error("an event of the long journal", error))
}

/// Clients that send messages to the other conversations until they are stopped.
pub(super) struct OtherMessages {
    stop: Arc<AtomicBool>,
    workers: JoinSet<Result<Vec<Duration>, LoadError>>,
}

impl OtherMessages {
    pub(super) fn start(node: &Node) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut workers = JoinSet::new();
        for worker in 0..WORKERS {
            let (mut client, stop) = (Client::new(node.public), stop.clone());
            workers.spawn(async move {
                let mut took = Vec::new();
                let others = (worker..OTHERS).step_by(WORKERS).cycle();
                for other in others.take_while(|_| !stop.load(Ordering::Relaxed)) {
                    let path = format!("/v1/conversations/other-{other}/messages");
                    let message = json!({"agent": AGENT, "text": "go", "if_busy": "queue"});
                    let requested = Instant::now();
                    client.send(Method::POST, &path, message).await?;
                    took.push(requested.elapsed());
                }
                Ok(took)
            });
        }
        Self { stop, workers }
    }

    /// Returns how long each message took, sorted.
    pub(super) async fn stop(self) -> Result<Vec<Duration>, LoadError> {
        self.stop.store(true, Ordering::Relaxed);
        let mut took = Vec::new();
        for worker in self.workers.join_all().await {
            took.extend(worker?);
        }
        took.sort_unstable();
        Ok(took)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_turns_of_the_long_journal_follow_each_other_and_end() {
        let first = turn(0, 0).unwrap();
        let state = replay(State::default(), &first);
        let second = turn(state.seq.get(), 1).unwrap();
        let state = replay(state, &second);
        assert_eq!((first.len(), second.len(), state.seq.get()), (5, 4, 9));
        assert!(abide_conversation::wanted(&state).is_empty());
    }
}
