//! What the tests of the cluster ask and wait for.

use abide_tests::client::Client;
use abide_tests::cluster::{Cluster, Plan};
use abide_tests::deadline::{poll, within};
use abide_tests::redis::Redis;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use crate::ABIDE;

/// How much slower a machine may be that does other things at the same time; its disk is the worst.
pub(crate) const FACTOR: u32 = 10;

/// The lease of nodes that are to be out soon. Others keep the usual one: a machine that is busy
/// must not make them forget to renew it.
pub(crate) const SHORT: [&str; 2] = ["--lease", "2s"];

/// Nodes over a Redis of their own.
pub(crate) async fn cluster(count: usize, flags: &[&str]) -> Cluster {
    Plan::new(ABIDE).with(flags).start(Redis::own().await, count).await
}

/// What an operators' path answers, which must be 200.
pub(crate) async fn admin(client: &Client, path: &str) -> Value {
    client.admin(Method::GET, path).await.expect(200)
}

/// What all nodes say of one of them, by its name; null when it is none.
pub(crate) async fn node(client: &Client, name: &str) -> Value {
    let nodes = admin(client, "/admin/nodes").await["nodes"].take();
    let found = nodes.as_array().unwrap().iter().find(|node| node["name"] == name);
    found.cloned().unwrap_or_default()
}

/// Waits until a node sees so many nodes that are up.
pub(crate) async fn all_up(client: &Client, count: usize) {
    poll(&format!("{count} nodes that are up"), async || {
        let nodes = client.try_admin(Method::GET, "/admin/nodes").await?.body["nodes"].take();
        let up = nodes.as_array()?.iter().filter(|node| node["state"] == "up").count();
        (up == count && nodes.as_array()?.len() == count).then_some(())
    })
    .await;
}

/// Waits until every node that serves sees every other one.
pub(crate) async fn whole(cluster: &Cluster) {
    let count = cluster.clients().count();
    for client in cluster.clients() {
        all_up(client, count).await;
    }
}

/// Waits until no actor lives.
pub(crate) async fn all_parked(client: &Client) {
    poll("every actor to be passivated", async || {
        let live = admin(client, "/admin/actors").await;
        live["actors"].as_array().unwrap().is_empty().then_some(())
    })
    .await;
}

/// Waits until the node says that it is ready, or that it is not.
pub(crate) async fn readiness(client: &Client, status: u16) {
    poll(&format!("/readyz to answer {status}"), async || {
        let answer = client.try_admin(Method::GET, "/readyz").await?;
        (answer.status == status).then_some(())
    })
    .await;
}

/// A counter or gauge of a node, with all its labels added up.
pub(crate) async fn metric(client: &Client, name: &str) -> f64 {
    let text = admin(client, "/metrics").await;
    let lines = text.as_str().unwrap().lines().filter(|line| line.starts_with(name));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

pub(crate) fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

/// Waits until a moment comes; nothing else can be waited for that happens only then.
pub(crate) async fn moment(moment: Timestamp) {
    let left = moment.duration_since(Timestamp::now());
    tokio::time::sleep(left.try_into().unwrap_or_default()).await;
}

/// Says something to a new conversation, which must be answered "unavailable" and when to try
/// again.
pub(crate) async fn is_unavailable(client: &Client, id: &str, agent: &str) {
    let url = format!("http://{}/v1/conversations/{id}/messages", client.public_address());
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let said = http.post(url).json(&json!({"text": "go", "agent": agent})).send();
    let answer = within("an answer", said).await.unwrap();
    assert_eq!(answer.status(), 503);
    assert!(answer.headers().contains_key("retry-after"), "{answer:?}");
    let problem: Value = within("the problem", answer.json()).await.unwrap();
    assert_eq!(problem["type"], "/problems/unavailable", "{problem:#}");
    assert_eq!(client.admin(Method::GET, "/healthz").await.status, 200);
}

/// Says something under a message id until it is accepted.
pub(crate) async fn insist(client: &Client, id: &str, agent: &str, message: &str) -> Value {
    let path = format!("/v1/conversations/{id}/messages");
    let body = json!({"text": "go", "agent": agent, "message_id": message, "if_busy": "queue"});
    poll(&format!("{message} to be accepted"), async || {
        let answer = client.ask(Method::POST, &path, None, Some(&body)).await?;
        assert!([202, 503].contains(&answer.status), "{answer:#?}");
        (answer.status == 202).then_some(answer.body)
    })
    .await
}
