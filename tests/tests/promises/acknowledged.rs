//! Nodes are killed at random moments, and nothing that was acknowledged is lost.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use abide_tests::client::{Answer, Client, resolution};
use abide_tests::deadline::poll;
use abide_tests::random::SeededRandom;
use abide_tests::tool_server::ToolServer;
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::agents::{calls_once, client, gated_client, http, human};
use crate::three_nodes::{start_three, wait_until_all_up};

/// The default seed; CHAOS_SEED overrides it.
const SEED: u64 = 20_261_122;
const CLIENTS: u64 = 6;
const KILLS: usize = 6;
/// The least number of acknowledged requests.
const MIN_ACKNOWLEDGED: usize = 300;

/// A client that sends its requests to random nodes.
struct Caller<'t> {
    nodes: Vec<Client>,
    random: SeededRandom,
    id: String,
    acknowledged: &'t AtomicUsize,
    requests: usize,
}

impl Caller<'_> {
    /// Sends a request to a random node, and once to the next when the first does not answer or
    /// answers 503.
    async fn ask(&mut self, path: &str, key: Option<&str>, body: Option<&Value>) -> Option<Answer> {
        let first = self.random.below(self.nodes.len() as u64) as usize;
        for index in [first, first + 1] {
            let client = &self.nodes[index % self.nodes.len()];
            let answer = client.ask(Method::POST, path, key, body).await;
            if let Some(answer) = answer.filter(|answer| answer.status != 503) {
                assert!(answer.status < 500, "{path}: {answer:?}");
                self.acknowledged.fetch_add(usize::from(answer.status < 300), Ordering::Relaxed);
                return Some(answer);
            }
        }
        None
    }

    /// Sends a message. After a failure it is unknown whether the message was appended.
    async fn send_message(&mut self) {
        self.requests += 1;
        let name = format!("m{}", self.requests);
        let body = json!({"text": name, "agent": "a", "message_id": name, "if_busy": "queue"});
        let path = format!("/v1/conversations/{}/messages", self.id);
        self.ask(&path, None, Some(&body)).await;
    }

    /// Resolves every call, and occasionally cancels, until the conversation is idle.
    async fn resolve_until_idle(&mut self) {
        loop {
            let (nodes, path) = (self.nodes.clone(), format!("/v1/conversations/{}", self.id));
            let mut turn = 0;
            // Running work needs no client; this client resolves every open call.
            let open = poll("an open call, or rest", async || {
                turn += 1;
                let client = &nodes[turn % nodes.len()];
                let answer = client.ask(Method::GET, &path, None, None).await?;
                match answer.status {
                    200 => {}
                    404 => return Some(None),
                    _ => return None,
                }
                let rests = answer.body["turn"].is_null() && answer.body["queued"] == 0;
                let open = answer.body["pending"].as_array()?.first().cloned();
                (rests || open.is_some()).then_some(open)
            })
            .await;
            let Some(open) = open else { return };
            self.requests += 1;
            let key = format!("k{}", self.requests);
            if self.random.below(12) == 0 {
                self.ask(&format!("{path}/cancel"), Some(&key), None).await;
                continue;
            }
            let answer = match open["kind"].as_str().unwrap() {
                "approval" => json!({"approved": true}),
                kind => json!({"result": kind}),
            };
            let path = resolution(&self.id, open["call_id"].as_str().unwrap());
            self.ask(&path, Some(&key), Some(&answer)).await;
        }
    }

    /// Runs turns until the test is over and enough requests were acknowledged.
    async fn converse(mut self, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed)
            || self.acknowledged.load(Ordering::Relaxed) < MIN_ACKNOWLEDGED
        {
            self.send_message().await;
            if self.random.below(3) == 0 {
                self.send_message().await;
            }
            self.resolve_until_idle().await;
        }
    }
}

#[tokio::test]
async fn nothing_that_was_acknowledged_is_lost_when_nodes_are_killed() {
    let (mut cluster, tools) = (start_three("5s", &[]).await, ToolServer::start().await);
    let gated = http("send", &tools, "/slow", json!({"approval": "requires_approval"}));
    let plain = http("look", &tools, "/slow", json!({}));
    let once = http("once", &tools, "/slow", json!({"on_interrupt": "fail"}));
    let tools_of = vec![gated, human("ask"), gated_client("page"), client("map"), plain, once];
    cluster.client(0).define("a", &calls_once(tools_of)).await;
    let from_env = std::env::var("CHAOS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = from_env.unwrap_or(SEED);
    let (acknowledged, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let caller = |n: u64| Caller {
        nodes: cluster.clients().cloned().collect(),
        random: SeededRandom(seed + n),
        id: format!("c{n}"),
        acknowledged: &acknowledged,
        requests: 0,
    };
    let callers: Vec<_> = (1..=CLIENTS).map(caller).collect();
    for caller in &callers {
        cluster.history.listen(&caller.nodes, &caller.id);
    }
    let kills = async {
        let mut random = SeededRandom(seed);
        for _ in 0..KILLS {
            let node = random.below(3) as usize;
            // A random moment is the point: this waits for nothing.
            tokio::time::sleep(Duration::from_millis(random.below(500))).await;
            cluster.kill(node).await;
            tokio::time::sleep(Duration::from_millis(random.below(300))).await;
            cluster.restart(node).await;
        }
        over.store(true, Ordering::Relaxed);
    };
    tokio::join!(kills, join_all(callers.into_iter().map(|caller| caller.converse(&over))));
    wait_until_all_up(&cluster).await;
    let evidence = cluster.evidence(&[&tools]).await;
    evidence.assert_no_violations();
    let resolved: usize =
        evidence.journals.values().map(|journal| journal.of("resolution").count()).sum();
    let acknowledged = acknowledged.into_inner();
    println!(
        "measured {acknowledged} requests acknowledged through {KILLS} kills, {resolved} resolutions"
    );
    assert!(
        acknowledged >= MIN_ACKNOWLEDGED && resolved >= MIN_ACKNOWLEDGED / 3,
        "{acknowledged} acknowledged, {resolved} resolved"
    );
}
