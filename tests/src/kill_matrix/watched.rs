//! A node that is killed at one of its commands to Redis, for what is no part of a turn.

use std::path::Path;
use std::time::Duration;

use reqwest::Method;
use tokio::time::timeout;

use super::gate::{Gate, InjectionPoint, Side};
use super::resp::{Scripts, scripts};
use super::tap::Tap;
use crate::client::Client;
use crate::deadline::poll;
use crate::node::{Node, Site};
use crate::redis::Redis;

/// The scripts that an actor calls whatever it is told to do, and those that only read.
const OTHER_SCRIPTS: [&str; 5] = ["claim", "claim_and_load", "release", "load", "page"];
/// How long a node may take to its place: some jobs begin once in 20 seconds.
const PLACE_TIMEOUT: Duration = Duration::from_secs(200);

/// One node over a Redis of its own, which sees each command of the node before it is carried out, and
/// each reply before the node has it.
pub struct WatchedNode {
    pub site: Site,
    node: Option<Node>,
    gate: Gate,
    tap: Tap,
    _redis: Redis,
}

impl WatchedNode {
    /// Starts a node with these flags, which is to be held at this place, if there is one.
    pub async fn start(program: &Path, flags: &[&str], place: Option<(&str, Side)>) -> Self {
        let redis = Redis::process().await;
        let mut known = Scripts::new();
        for (name, source) in scripts() {
            known.insert(redis.ask(&["SCRIPT", "LOAD", &source]).await, name);
        }
        let place = place.map(|(point, side)| InjectionPoint { point: point.to_owned(), side });
        let gate = Gate::new(place);
        let tap = Tap::to(redis.address(), &gate, &known).await;
        let store = format!("redis://{}", tap.address);
        let site = Site::new(program).with(flags).with_store(&store);
        let node = Some(site.start().await);
        wait_until_indexed(&site.client).await;
        Self { site, node, gate, tap, _redis: redis }
    }

    /// The node's client, which goes on with the node that is started in its place.
    pub fn client(&self) -> Client {
        self.site.client.clone()
    }

    /// From now on the node is held at its place.
    pub fn watch(&self) {
        self.gate.open();
    }

    /// Kills the node, and starts it again with the site as it is then.
    pub async fn restart(&mut self) {
        if let Some(node) = self.node.take() {
            node.kill().await;
        }
        self.node = Some(self.site.start().await);
    }

    /// Waits until the node is held at its place.
    pub async fn wait_until_held(&self) {
        let held = timeout(PLACE_TIMEOUT, self.gate.wait_until_held()).await;
        assert!(held.is_ok(), "the node was not held: {:#?}", self.gate.seen());
    }

    /// Lets the node go on from its place.
    pub fn release(&self) {
        self.gate.release();
    }

    /// Waits until the node is held at its place, and kills it there. What it has asked for and was not
    /// done is not done later, either.
    pub async fn kill_at_its_place(&mut self) {
        self.wait_until_held().await;
        if let Some(node) = self.node.take() {
            node.kill().await;
        }
        self.tap.cut();
        self.gate.release();
        self.restart().await;
    }

    /// The commands that were seen, each once, that call a script of the job to write.
    pub fn writes(&self) -> Vec<String> {
        let own = |point: &String| {
            let script = script_of(point);
            let is_script = script.chars().all(|it| it.is_ascii_lowercase() || it == '_');
            is_script && !OTHER_SCRIPTS.contains(&script)
        };
        self.gate.seen().into_iter().filter(own).collect()
    }
}

/// Waits until a node has rebuilt the indexes of its new store: whenever it does that, those are no
/// commands of what is watched.
pub(super) async fn wait_until_indexed(client: &Client) {
    poll("the indexes to be rebuilt", async || {
        let indexes = client.try_admin(Method::GET, "/admin/indexes").await?;
        (indexes.body["rebuild"]["state"] == "done").then_some(())
    })
    .await;
}

/// The script of a command, without the events that it writes.
pub fn script_of(command: &str) -> &str {
    command.split(':').next().unwrap_or_default()
}
