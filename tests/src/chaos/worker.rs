//! A worker, which runs one conversation after another.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::agents::{Shape, shapes, sub_agents};
use super::artifacts::Artifacts;
use super::client_proxies::ClientProxies;
use super::fault_log::FaultLog;
use super::schedule::Episode;
use crate::client::{Answer, Client};
use crate::cluster::Cluster;
use crate::history::{History, Reader};
use crate::random::SeededRandom;
use crate::tool_server::ToolServer;

/// The pause before a request without a definite answer is repeated.
const RETRY_INTERVAL: Duration = Duration::from_millis(150);

/// What the workers of a run share.
pub(super) struct RunContext {
    pub(super) seed: u64,
    pub(super) clients: Vec<Client>,
    admins: Vec<Client>,
    pub(super) shapes: Vec<Shape>,
    sub_agents: Vec<(&'static str, Value)>,
    pub(super) fault_log: FaultLog,
    pub(super) artifacts: Artifacts,
    history: History,
    /// Set when no more conversations begin: the time by which the running ones must end.
    end: watch::Sender<Option<Instant>>,
    active: std::sync::Mutex<Vec<String>>,
}

impl RunContext {
    pub(super) fn new(
        seed: u64,
        cluster: &Cluster,
        client_proxies: &ClientProxies,
        [tools, hostile]: [&ToolServer; 2],
        fault_log: FaultLog,
    ) -> Self {
        Self {
            seed,
            clients: client_proxies.clients(cluster),
            admins: cluster.clients().cloned().collect(),
            shapes: shapes(tools, hostile),
            sub_agents: sub_agents(tools),
            fault_log,
            artifacts: Artifacts::default(),
            history: cluster.history.clone(),
            end: watch::channel(None).0,
            active: std::sync::Mutex::default(),
        }
    }

    pub(super) async fn define(&self, cluster: &Cluster) {
        let client = cluster.client(0);
        for (name, definition) in &self.sub_agents {
            client.define(name, definition).await;
        }
        for shape in &self.shapes {
            client.define(shape.agent, &shape.definition).await;
        }
    }

    pub(super) fn end(&self, until: Instant) {
        self.end.send_replace(Some(until));
    }

    pub(super) fn is_over(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// Whether the time is over by which everything must have ended.
    pub(super) fn gives_up(&self) -> bool {
        self.end.borrow().is_some_and(|until| Instant::now() > until)
    }

    /// The node that holds one of the running conversations, if any is held.
    pub(super) async fn some_holder(&self) -> Option<String> {
        let id = self.active.lock().unwrap().last().cloned()?;
        let client = self.clients[0].clone().without_history();
        let path = format!("/v1/conversations/{id}");
        let answer = client.ask(Method::GET, &path, None, None).await?;
        Some(answer.body["holder"]["node"].as_str()?.to_owned())
    }

    /// Crashes as many actors as the episode says, at most one per conversation: more crashes would
    /// rightly put it into quarantine.
    pub(super) async fn crash_actors(&self, episode: &Episode) {
        for number in 0..episode.crashed {
            let Some(id) = self.active.lock().unwrap().pop() else { return };
            let node = &self.admins[number as usize % self.admins.len()];
            self.fault_log.record(&format!("crashes the actor of {id}"));
            self.fault_log.count_crashed_actor();
            node.try_admin(Method::POST, &format!("/admin/actors/{id}/kill")).await;
        }
    }
}

/// A worker of a run.
pub(super) struct Worker {
    pub(super) context: Arc<RunContext>,
    pub(super) random: SeededRandom,
    pub(super) number: u64,
    /// The number of requests so far, from which their keys are made.
    requests: u64,
    /// Whether a request about the present conversation had no definite answer: it may take effect
    /// later.
    in_doubt: bool,
}

impl Worker {
    pub(super) fn new(context: &Arc<RunContext>, number: u64) -> Self {
        let random = SeededRandom(context.seed.wrapping_mul(1_000).wrapping_add(number));
        Self { context: context.clone(), random, number, requests: 0, in_doubt: false }
    }

    /// Runs conversations until the run is over.
    pub(super) async fn run(mut self) {
        let mut conversations = 0;
        while !self.context.is_over() {
            let id = format!("c{}-{conversations}", self.number);
            conversations += 1;
            let shape = self.random.below(self.context.shapes.len() as u64) as usize;
            let shape = self.context.shapes[shape].clone();
            self.converse(&id, &shape).await;
            self.store_artifacts().await;
        }
    }

    async fn converse(&mut self, id: &str, shape: &Shape) {
        let reader = (self.random.below(4) == 0)
            .then(|| self.context.history.listen(&self.context.clients, id));
        self.context.active.lock().unwrap().push(id.to_owned());
        self.in_doubt = false;
        let deletes = self.random.below(12) == 0;
        let turns = 1 + self.random.below(4);
        for turn in 0..turns {
            self.send_message(id, shape, turn).await;
            // The next message may then arrive during this turn.
            if self.random.below(3) == 0 {
                tokio::time::sleep(Duration::from_millis(self.random.below(400))).await;
            } else {
                self.attend(id, shape).await;
            }
        }
        // Some are deleted in the middle of a turn, unless a message could bring them back.
        if !deletes || self.in_doubt || self.random.below(2) == 0 {
            self.attend(id, shape).await;
        }
        self.context.active.lock().unwrap().retain(|known| known != id);
        if self.random.below(10) == 0 {
            let fork = json!({"id": format!("{id}-fork")});
            let key = format!("{id}/fork");
            self.insist(&format!("/v1/conversations/{id}/fork"), Some(&key), Some(&fork)).await;
        }
        let gone = deletes && self.delete(id, shape).await;
        if let Some(reader) = reader {
            self.leave(id, &reader, gone).await;
        }
    }

    /// Sends a message under a message id or an idempotency key, so that it can be repeated.
    async fn send_message(&mut self, id: &str, shape: &Shape, turn: u64) {
        let text = self.random.below(1_200).to_string();
        let busy = ["queue", "queue", "interrupt", "reject"][self.random.below(4) as usize];
        let mut body = json!({"text": text, "agent": shape.agent, "if_busy": busy});
        let key = match self.random.below(3) {
            0 => Some(format!("{id}/say/{turn}")),
            _ => {
                body["message_id"] = json!(format!("m{turn}"));
                None
            }
        };
        let path = format!("/v1/conversations/{id}/messages");
        self.insist(&path, key.as_deref(), Some(&body)).await;
        if self.random.below(5) == 0 {
            self.insist(&path, key.as_deref(), Some(&body)).await;
        }
    }

    /// Deletes a conversation, and looks for it at every node; sometimes creates another one of the
    /// same id, and deletes that. Returns whether it is gone.
    async fn delete(&mut self, id: &str, shape: &Shape) -> bool {
        let path = format!("/v1/conversations/{id}");
        if self.repeat(Method::DELETE, &path, None, None).await.is_none() {
            return false;
        }
        self.look_for(id).await;
        if self.random.below(2) == 0 {
            let (key, new) = (self.key(id), json!({"id": id, "agent": shape.agent}));
            if self.insist("/v1/conversations", Some(&key), Some(&new)).await.is_some() {
                self.node().clone().observe_journal(id).await;
            }
            let deleted = self.repeat(Method::DELETE, &path, None, None).await;
            self.look_for(id).await;
            return deleted.is_some();
        }
        true
    }

    /// Asks every node for a conversation that was deleted, so that the history has the answers.
    async fn look_for(&self, id: &str) {
        for client in &self.context.clients {
            for path in [
                format!("/v1/conversations/{id}"),
                format!("/v1/conversations/{id}/journal"),
                format!("/v1/pending?conversation={id}"),
            ] {
                client.ask(Method::GET, &path, None, None).await;
            }
        }
    }

    /// Lets the reader end at the journal's last frame, or at once if the conversation is gone.
    async fn leave(&mut self, id: &str, reader: &Reader, gone: bool) {
        let journal = self.node().clone().without_history().try_journal(id).await;
        let mirrored = journal.filter(|_| !gone).map(|journal| journal.mirrored());
        match mirrored.and_then(|mirrored| mirrored.last().copied()) {
            Some(last) => reader.ends_at(last),
            None if gone => reader.ends_at(0),
            // It reads on; the checks at the end report what it missed.
            None => {}
        }
    }

    /// Repeats a POST, each time at a random node, until the answer is anything but "try later".
    pub(super) async fn insist(
        &mut self,
        path: &str,
        key: Option<&str>,
        body: Option<&Value>,
    ) -> Option<Answer> {
        self.repeat(Method::POST, path, key, body).await
    }

    /// Repeats a request like `insist`.
    pub(super) async fn repeat(
        &mut self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<&Value>,
    ) -> Option<Answer> {
        loop {
            let answer = self.node().ask(method.clone(), path, key, body).await;
            if let Some(answer) = answer.filter(|answer| ![429, 503].contains(&answer.status)) {
                return Some(answer);
            }
            self.in_doubt = true;
            if self.context.gives_up() {
                return None;
            }
            self.pause_before_retry().await;
        }
    }

    pub(super) async fn pause_before_retry(&self) {
        tokio::time::sleep(RETRY_INTERVAL).await;
    }

    pub(super) fn node(&mut self) -> &Client {
        let index = self.random.below(self.context.clients.len() as u64);
        &self.context.clients[index as usize]
    }

    /// A unique idempotency key.
    pub(super) fn key(&mut self, id: &str) -> String {
        self.requests += 1;
        format!("{id}/{}", self.requests)
    }

    /// Whether a suspension has a short time-out.
    pub(super) fn expires_soon(entry: &Value) -> bool {
        let time = |name: &str| entry[name].as_str()?.parse::<Timestamp>().ok();
        let timeout = time("expires_at").zip(time("suspended_at"));
        timeout.is_some_and(|(end, start)| end.duration_since(start).as_secs() < 5)
    }
}
