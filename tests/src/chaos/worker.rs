//! One worker of conversations: each begins when the last one is done.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::agents::{Shape, kids, shapes};
use super::client_proxies::ClientProxies;
use super::fault_log::FaultLog;
use super::schedule::Episode;
use crate::client::{Answer, Client};
use crate::cluster::Cluster;
use crate::history::{History, Reader};
use crate::random::SeededRandom;
use crate::tool_server::ToolServer;

/// Between two tries of what was not answered.
const RETRY_INTERVAL: Duration = Duration::from_millis(150);

/// What the workers of a run share.
pub(super) struct RunContext {
    pub(super) seed: u64,
    pub(super) clients: Vec<Client>,
    admins: Vec<Client>,
    pub(super) shapes: Vec<Shape>,
    kids: Vec<(&'static str, Value)>,
    pub(super) fault_log: FaultLog,
    history: History,
    /// No conversation begins any more, and until when those that run may end.
    end: watch::Sender<Option<Instant>>,
    active: std::sync::Mutex<Vec<String>>,
}

impl RunContext {
    pub(super) fn new(
        seed: u64,
        cluster: &Cluster,
        client_proxies: &ClientProxies,
        tools: &ToolServer,
        fault_log: FaultLog,
    ) -> Self {
        Self {
            seed,
            clients: client_proxies.clients(cluster),
            admins: cluster.clients().cloned().collect(),
            shapes: shapes(tools),
            kids: kids(tools),
            fault_log,
            history: cluster.history.clone(),
            end: watch::channel(None).0,
            active: std::sync::Mutex::default(),
        }
    }

    pub(super) async fn define(&self, cluster: &Cluster) {
        let client = cluster.client(0);
        for (name, definition) in &self.kids {
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

    /// Whether what is not done by now never will be.
    pub(super) fn gives_up(&self) -> bool {
        self.end.borrow().is_some_and(|until| Instant::now() > until)
    }

    /// Crashes as many actors as the episode says, each conversation's once in its life: more would
    /// rightly put it into quarantine.
    pub(super) async fn crash_actors(&self, episode: &Episode) {
        for number in 0..episode.crashed {
            let Some(id) = self.active.lock().unwrap().pop() else { return };
            let node = &self.admins[number as usize % self.admins.len()];
            self.fault_log.record(&format!("crashes the actor of {id}"));
            self.fault_log.count("actor crashed");
            node.try_admin(Method::POST, &format!("/admin/actors/{id}/kill")).await;
        }
    }
}

/// One of them.
pub(super) struct Worker {
    pub(super) context: Arc<RunContext>,
    pub(super) random: SeededRandom,
    number: u64,
    /// Requests so far: each has a key of its own.
    requests: u64,
}

impl Worker {
    pub(super) fn new(context: &Arc<RunContext>, number: u64) -> Self {
        let random = SeededRandom(context.seed.wrapping_mul(1_000).wrapping_add(number));
        Self { context: context.clone(), random, number, requests: 0 }
    }

    /// Conversation after conversation, until it is over.
    pub(super) async fn run(mut self) {
        let mut conversations = 0;
        while !self.context.is_over() {
            let id = format!("c{}-{conversations}", self.number);
            conversations += 1;
            let shape = self.random.below(self.context.shapes.len() as u64) as usize;
            let shape = self.context.shapes[shape].clone();
            self.converse(&id, &shape).await;
        }
    }

    async fn converse(&mut self, id: &str, shape: &Shape) {
        let reader = (self.random.below(4) == 0)
            .then(|| self.context.history.listen(&self.context.clients, id));
        self.context.active.lock().unwrap().push(id.to_owned());
        let turns = 1 + self.random.below(4);
        for turn in 0..turns {
            self.send_message(id, shape, turn).await;
            // The next message may find this turn at work.
            if self.random.below(3) == 0 {
                tokio::time::sleep(Duration::from_millis(self.random.below(400))).await;
            } else {
                self.attend(id, shape).await;
            }
        }
        self.attend(id, shape).await;
        self.context.active.lock().unwrap().retain(|known| known != id);
        if self.random.below(10) == 0 {
            let fork = json!({"id": format!("{id}-fork")});
            let key = format!("{id}/fork");
            self.insist(&format!("/v1/conversations/{id}/fork"), Some(&key), Some(&fork)).await;
        }
        let gone = self.random.below(12) == 0 && self.delete(id).await;
        if let Some(reader) = reader {
            self.leave(id, &reader, gone).await;
        }
    }

    /// A message; which one it is when the answer got lost is told by its name or its key.
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

    /// Whether it is gone; a deletion is repeated until that is known.
    async fn delete(&mut self, id: &str) -> bool {
        let path = format!("/v1/conversations/{id}");
        loop {
            let answer = self.node().ask(Method::DELETE, &path, None, None).await;
            if answer.is_some_and(|answer| [204, 404].contains(&answer.status)) {
                return true;
            }
            if self.context.gives_up() {
                return false;
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// The reader goes once it has heard the end; of what is gone there is none.
    async fn leave(&mut self, id: &str, reader: &Reader, gone: bool) {
        let journal = self.node().clone().without_history().try_journal(id).await;
        let mirrored = journal.filter(|_| !gone).map(|journal| journal.mirrored());
        match mirrored.and_then(|mirrored| mirrored.last().copied()) {
            Some(last) => reader.ends_at(last),
            None if gone => reader.ends_at(0),
            // It listens on; the run's end tells what it missed.
            None => {}
        }
    }

    /// Asks until it is answered by anything but "not now"; of any node, each time another one.
    pub(super) async fn insist(
        &mut self,
        path: &str,
        key: Option<&str>,
        body: Option<&Value>,
    ) -> Option<Answer> {
        loop {
            let answer = self.node().ask(Method::POST, path, key, body).await;
            if let Some(answer) = answer.filter(|answer| ![429, 503].contains(&answer.status)) {
                return Some(answer);
            }
            if self.context.gives_up() {
                return None;
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    pub(super) fn node(&mut self) -> &Client {
        let index = self.random.below(self.context.clients.len() as u64);
        &self.context.clients[index as usize]
    }

    /// A key that nothing else has.
    pub(super) fn key(&mut self, id: &str) -> String {
        self.requests += 1;
        format!("{id}/{}", self.requests)
    }

    /// Whether a suspension would soon expire by its own time.
    pub(super) fn is_hasty(entry: &Value) -> bool {
        let time = |name: &str| entry[name].as_str()?.parse::<Timestamp>().ok();
        let lasts = time("expires_at").zip(time("suspended_at"));
        lasts.is_some_and(|(end, start)| end.duration_since(start).as_secs() < 5)
    }
}
