//! One run of the matrix: a whole turn on two nodes, of which one thing breaks at one place.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::gate::{Gate, InjectionPoint};
use super::resp::{FORK, Scripts, scripts};
use super::servers::Servers;
use super::tap::Tap;
use super::watched::wait_until_indexed;
use crate::checks::Evidence;
use crate::client::{Addresses, Client, resolution};
use crate::deadline::{POLL_INTERVAL, poll};
use crate::history::{Exchange, History};
use crate::journal::Journal;
use crate::node::{Node, Site};
use crate::proxy::Proxy;
use crate::redis::Redis;

/// The conversation.
const ID: &str = "x";
/// How long the turn may take with its break: less than a wait of the client's part, which would panic.
const TURN_TIMEOUT: Duration = Duration::from_secs(25);
/// Short, so that a run takes no longer than it must.
const FLAGS: [&str; 2] = ["--lease", "2s"];

/// What breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Break {
    /// SIGKILL of the node; another one is there.
    Node,
    /// SIGKILL of Redis, which is restarted.
    Redis,
    /// The connection on which the node waits for an answer.
    Link,
    /// The connection of the client whose request the node carries out.
    Client,
}

pub(super) const BREAKS: [Break; 4] = [Break::Node, Break::Redis, Break::Link, Break::Client];

/// What was observed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Observed {
    /// The answers to each of the client's requests, in order, without repetitions.
    pub(super) answers: BTreeMap<String, Vec<String>>,
    /// How often each type of event is in the journal.
    pub(super) events: BTreeMap<String, u64>,
    /// How often the model, the tool and the hook were asked.
    pub(super) requests: BTreeMap<String, u64>,
    /// The await points, in order.
    pub(super) points: Vec<String>,
}

/// The node that the client prefers, whose commands to Redis are watched, and another one.
struct World {
    gate: Gate,
    tap: Tap,
    servers: Servers,
    first: Site,
    first_node: Option<Node>,
    second: Site,
    _second_node: Node,
    /// Between the client and the first node.
    front: Proxy,
    history: History,
    redis: Redis,
}

impl World {
    async fn start(program: &Path, gate: Gate) -> Self {
        let redis = Redis::process().await;
        let mut known = Scripts::new();
        for (name, source) in scripts() {
            known.insert(redis.ask(&["SCRIPT", "LOAD", &source]).await, name);
        }
        let tap = Tap::to(redis.address(), &gate, &known).await;
        let servers = Servers::start(&gate).await;
        let site =
            |name: &str, store: &str| Site::new(program).named(name).with(&FLAGS).with_store(store);
        let first = site("first", &format!("redis://{}", tap.address));
        let second = site("second", redis.url());
        let (first_node, second_node) = tokio::join!(first.start(), second.start());
        let front = Proxy::to(&first.client.public_address());
        let (first_node, history) = (Some(first_node), History::default());
        let world = Self {
            gate,
            tap,
            servers,
            first,
            first_node,
            second,
            _second_node: second_node,
            front,
            history,
            redis,
        };
        world.define().await;
        world.gate.open();
        world
    }

    async fn define(&self) {
        let client = &self.second.client;
        for site in [&self.first, &self.second] {
            poll("both nodes to be up", async || {
                let answer = site.client.try_admin(Method::GET, "/admin/nodes").await?;
                let nodes = answer.body["nodes"].as_array()?;
                let up = nodes.iter().filter(|node| node["state"] == "up").count();
                (up == 2).then_some(())
            })
            .await;
        }
        wait_until_indexed(client).await;
        let kid = json!({"model": {"provider": "scripted", "script": [{"text": "Seven."}]}});
        client.define("kid", &kid).await;
        let parameters = json!({"type": "object"});
        let model = json!({"provider": "openai", "name": "test",
            "base_url": self.servers.url("/v1")});
        let pay = json!({"name": "pay", "description": "pay", "parameters": parameters,
            "approval": "requires_approval",
            "run": {"http": {"url": self.servers.url("/tool")}}});
        let ask = json!({"name": "ask_kid", "description": "ask", "parameters": parameters,
            "run": {"agent": "kid"}});
        let hook = json!({"on": "pre", "http": {"url": self.servers.url("/hook")}});
        let agent = json!({"model": model, "tools": [pay, ask], "hooks": [hook]});
        client.define("boss", &agent).await;
    }

    /// The clients of both nodes, the first of them through the proxy.
    fn clients(&self) -> [Client; 2] {
        let first = Client::default().with_history(&self.history, "first");
        let public = self.front.address().to_string();
        first.move_to(Addresses { public, ..Addresses::default() });
        [first, self.second.client.clone().with_history(&self.history, "second")]
    }
}

/// Runs the turn, and breaks this at the place if there is one.
///
/// # Errors
///
/// A broken promise, or a place that was not reached.
pub(super) async fn run(
    program: &Path,
    fault: Option<(InjectionPoint, Break)>,
) -> Result<Observed, String> {
    let gate = Gate::new(fault.as_ref().map(|(place, _)| place.clone()));
    let mut world = World::start(program, gate).await;
    let clients = world.clients();
    let reader = world.history.listen([&clients[1]], ID);
    let observer = world.second.client.clone().without_history();
    let mut story = Box::pin(timeout(TURN_TIMEOUT, play(clients.clone())));
    let ended = if let Some((place, what)) = fault {
        tokio::select! {
            _ = &mut story => return Err(format!("{place:?} was not reached")),
            () = world.gate.wait_until_held() => {}
        }
        let breaking = cause(&mut world, what, &place.point);
        tokio::join!(breaking, &mut story).1
    } else {
        story.await
    };
    if ended.is_err() {
        let journal = observer.try_journal(ID).await;
        return Err(format!("the turn has not ended after {TURN_TIMEOUT:?}: {journal:#?}"));
    }
    let evidence = Evidence::gather(&observer, &world.history, &[]).await;
    let last = evidence.journals.get(ID).and_then(|journal| journal.mirrored().last().copied());
    reader.ends_at(last.unwrap_or_default());
    let violations = evidence.violations();
    if violations.is_empty() { Ok(observe(&world, &evidence)) } else { Err(violations.join("\n")) }
}

async fn cause(world: &mut World, what: Break, point: &str) {
    match what {
        Break::Node => {
            if let Some(node) = world.first_node.take() {
                node.kill().await;
            }
        }
        Break::Redis => world.redis.kill().await,
        Break::Link if ["model", "model with results", "tool", "hook"].contains(&point) => {
            world.servers.cut()
        }
        Break::Link => world.tap.cut(),
        Break::Client => world.front.cut(),
    }
    world.gate.release();
    if what == Break::Redis {
        world.redis.restart().await;
    }
}

/// The client's part: a message, an approval that is to be remembered, and a fork at the end.
async fn play(clients: [Client; 2]) {
    let message = json!({"text": "Pay Ada.", "agent": "boss", "message_id": "m"});
    insist(&clients, &format!("/v1/conversations/{ID}/messages"), None, &message).await;
    let observer = clients[1].clone().without_history();
    // A hook whose answer is lost halts the message, and then nobody is asked.
    let is_asked_or_over =
        |its: &Journal| its.of("suspension").count() == 1 || its.of("turn_ended").count() == 1;
    let journal = observer.wait_for(ID, "the approval", is_asked_or_over).await;
    if journal.of("suspension").count() == 0 {
        return fork(&clients, &observer).await;
    }
    let remember = json!({"scope": "agent", "match": "exact", "for": "1h"});
    let approval = json!({"approved": true, "remember": remember});
    insist(&clients, &resolution(ID, "pay"), Some("approval"), &approval).await;
    observer.wait_for(ID, "the end of the turn", is_over).await;
    fork(&clients, &observer).await;
}

/// Whether the only turn has ended, and all its calls.
fn is_over(journal: &Journal) -> bool {
    journal.of("turn_ended").count() == 1 && journal.open().is_empty()
}

async fn fork(clients: &[Client; 2], observer: &Client) {
    let fork = json!({"id": FORK});
    insist(clients, &format!("/v1/conversations/{ID}/fork"), Some("fork"), &fork).await;
    observer.wait_for(FORK, "the whole fork", is_over).await;
}

/// Repeats a request, at the two nodes in turn, until it is acknowledged.
async fn insist(clients: &[Client; 2], path: &str, key: Option<&str>, body: &Value) {
    for client in clients.iter().cycle() {
        let answer = client.ask(Method::POST, path, key, Some(body)).await;
        if answer.is_some_and(|answer| (200..300).contains(&answer.status)) {
            return;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn observe(world: &World, evidence: &Evidence) -> Observed {
    let mut observed = Observed {
        requests: world.servers.counts(),
        points: world.gate.seen(),
        ..Observed::default()
    };
    for exchange in &evidence.exchanges {
        let answers = observed.answers.entry(exchange.verb().to_owned()).or_default();
        let answer = describe(exchange);
        if answers.last() != Some(&answer) {
            answers.push(answer);
        }
    }
    for event in evidence.journals.get(ID).iter().flat_map(|journal| &journal.0) {
        let mut kind = event["type"].as_str().unwrap_or_default().to_owned();
        if event["data"]["ok"] == false {
            kind += " with an error";
        }
        *observed.events.entry(kind).or_default() += 1;
    }
    observed
}

fn describe(exchange: &Exchange) -> String {
    exchange.answer.as_ref().map_or("nothing".to_owned(), |answer| answer.status.to_string())
}
