//! In a rolling restart of three nodes no client needs more than one retry.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use abide_tests::client::{Answer, Client};
use abide_tests::cluster::Plan;
use abide_tests::deadline::poll;
use abide_tests::tool_server::ToolServer;
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{calls_once, http, human};
use crate::cluster_state::wait_until_connected;
use crate::three_nodes::{start_cluster, start_three, wait_until_all_up};

const CLIENTS: usize = 6;

/// The load and its counters.
struct Load {
    nodes: Vec<Client>,
    over: AtomicBool,
    requests: AtomicUsize,
    retried: AtomicUsize,
}

impl Load {
    /// Sends a request to a node, and once to the next when the first does not answer or answers
    /// 5xx.
    async fn ask(&self, node: usize, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let key = body.map(|body| body["message_id"].as_str().unwrap());
        let once = async |node: usize| {
            let client = &self.nodes[node % self.nodes.len()];
            client.ask(method.clone(), path, key, body).await
        };
        self.requests.fetch_add(1, Ordering::Relaxed);
        let first = once(node).await;
        if let Some(answer) = first.clone().filter(|answer| answer.status < 500) {
            return answer;
        }
        self.retried.fetch_add(1, Ordering::Relaxed);
        let second = once(node + 1).await;
        match second {
            Some(answer) if answer.status < 500 => answer,
            second => panic!("no retry saved {method} {path}: {first:?}, then {second:?}"),
        }
    }

    /// Runs turns, each through the next node, until the load ends. Returns their number.
    async fn converse(&self, client: usize) -> usize {
        let id = format!("c{client}");
        let mut turns = 0;
        while !self.over.load(Ordering::Relaxed) {
            let name = format!("m{turns}");
            let path = format!("/v1/conversations/{id}/messages");
            let body = json!({"text": name, "agent": "a", "message_id": name, "if_busy": "queue"});
            let node = client + turns;
            let sent = self.ask(node, Method::POST, &path, Some(&body)).await.expect(202);
            turns += 1;
            loop {
                let path = format!("/v1/conversations/{id}");
                let snapshot = self.ask(node + turns, Method::GET, &path, None).await.expect(200);
                if snapshot["turn"]["id"] != sent["turn_id"] && snapshot["queued"] == 0 {
                    break;
                }
                // This client polls; there is nothing else to wait for.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        turns
    }
}

#[tokio::test]
async fn a_rolling_restart_under_load_fails_nothing_that_one_retry_would_not_save() {
    let (mut cluster, tools) = (start_three("5s", &[]).await, ToolServer::start().await);
    cluster
        .client(0)
        .define("a", &calls_once(vec![http("slow", &tools, "/slow", json!({}))]))
        .await;
    let load = Load {
        nodes: cluster.clients().cloned().collect(),
        over: AtomicBool::new(false),
        requests: AtomicUsize::new(0),
        retried: AtomicUsize::new(0),
    };
    let restarts = async {
        for node in 0..3 {
            // Every node has work before its restart.
            let so_far = load.requests.load(Ordering::Relaxed);
            poll("load", async || {
                (load.requests.load(Ordering::Relaxed) >= so_far + 10 * CLIENTS).then_some(())
            })
            .await;
            cluster.terminate(node).await;
            cluster.restart(node).await;
            wait_until_all_up(&cluster).await;
        }
        load.over.store(true, Ordering::Relaxed);
    };
    let clients = join_all((0..CLIENTS).map(|client| load.converse(client)));
    let (turns, ()) = tokio::join!(clients, restarts);
    let (requests, retried) =
        (load.requests.load(Ordering::Relaxed), load.retried.load(Ordering::Relaxed));
    println!("measured: of {requests} requests in a rolling restart {retried} were retried");
    for (client, turns) in turns.into_iter().enumerate() {
        let journal = cluster.client(0).wait_until_settled(&format!("c{client}"), turns).await;
        assert_eq!(journal.outcomes(), vec!["completed"; turns]);
    }
    let attempts = tools.requests.all().into_iter().map(|run| run.body["attempt"].clone());
    assert!(attempts.into_iter().all(|attempt| attempt == 1), "a drain cut a tool off");
    cluster.evidence(&[&tools]).await.assert_no_violations();
}

/// Accept the new secret, show it, forget the old one: in each of the three restarts nodes of two steps
/// work together.
#[tokio::test]
async fn three_rolling_restarts_change_the_secret() {
    const OLD: &str = "the secret that the cluster was started with";
    const NEW: &str = "the secret that the cluster is to have in the end";
    let mut cluster = start_cluster(Plan::new(ABIDE).with_secret(OLD)).await;
    cluster.client(0).define("a", &calls_once(vec![human("ask")])).await;
    for (step, (shown, also)) in [(OLD, NEW), (NEW, OLD), (NEW, "")].into_iter().enumerate() {
        for node in 0..3 {
            cluster.set_env(node, "ABIDE_CLUSTER_SECRET", shown);
            cluster.set_env(node, "ABIDE_CLUSTER_SECRET_ALSO", also);
            cluster.terminate(node).await;
            cluster.restart(node).await;
            wait_until_connected(&cluster).await;
            for held_by in 0..3 {
                let id = format!("c-{step}-{node}-{held_by}");
                let other = cluster.client((held_by + 1) % 3);
                cluster.client(held_by).send_message(&id, "a", "go").await;
                cluster.client(held_by).wait_for_pending(&id, "ask", "elicitation").await;
                other.resolve(&id, "ask", json!({"result": 1})).await.expect(200);
                other.wait_until_settled(&id, 1).await;
            }
        }
    }
    for node in 0..3 {
        assert!(!cluster.log(node).contains("peer rejected"), "{}", cluster.log(node));
    }
    cluster.evidence(&[]).await.assert_no_violations();
}
