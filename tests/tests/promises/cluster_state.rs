//! Queries of a cluster's state, and waits for it.

use abide_tests::client::Client;
use abide_tests::cluster::{Cluster, Plan};
use abide_tests::deadline::{poll, within};
use abide_tests::redis::Redis;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use crate::ABIDE;

/// How much slower a machine with other load may be, mostly because of its disk.
pub(crate) const LOAD_FACTOR: u32 = 10;

/// A short lease, for nodes that must lose their membership soon. Other tests keep the usual lease,
/// which a busy node can renew in time.
pub(crate) const SHORT_LEASE_FLAGS: [&str; 2] = ["--lease", "2s"];

/// Starts nodes over a new Redis.
pub(crate) async fn cluster(count: usize, flags: &[&str]) -> Cluster {
    Plan::new(ABIDE).with(flags).start(Redis::own().await, count).await
}

/// Reads a path of the operators' API, which must answer 200.
pub(crate) async fn admin(client: &Client, path: &str) -> Value {
    client.admin(Method::GET, path).await.expect(200)
}

/// A member by its name, or null.
pub(crate) async fn node(client: &Client, name: &str) -> Value {
    let nodes = admin(client, "/admin/nodes").await["nodes"].take();
    let found = nodes.as_array().unwrap().iter().find(|node| node["name"] == name);
    found.cloned().unwrap_or_default()
}

/// Waits until a node sees exactly `count` nodes, all of them up.
pub(crate) async fn wait_for_up_nodes(client: &Client, count: usize) {
    poll(&format!("{count} nodes that are up"), async || {
        let nodes = client.try_admin(Method::GET, "/admin/nodes").await?.body["nodes"].take();
        let up = nodes.as_array()?.iter().filter(|node| node["state"] == "up").count();
        (up == count && nodes.as_array()?.len() == count).then_some(())
    })
    .await;
}

/// Waits until every node sees all nodes up.
pub(crate) async fn wait_until_connected(cluster: &Cluster) {
    let count = cluster.clients().count();
    for client in cluster.clients() {
        wait_for_up_nodes(client, count).await;
    }
}

/// Waits until no actor is live.
pub(crate) async fn wait_until_passivated(client: &Client) {
    poll("every actor to be passivated", async || {
        let live = admin(client, "/admin/actors").await;
        live["actors"].as_array().unwrap().is_empty().then_some(())
    })
    .await;
}

/// Waits until `/readyz` answers with this status.
pub(crate) async fn wait_for_readiness(client: &Client, status: u16) {
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

/// Sleeps until a moment, when there is nothing else to wait for.
pub(crate) async fn sleep_until(moment: Timestamp) {
    let left = moment.duration_since(Timestamp::now());
    tokio::time::sleep(left.try_into().unwrap_or_default()).await;
}

/// Sends a message to a new conversation, and fails unless the answer is 503 with `Retry-After`.
pub(crate) async fn expect_unavailable(client: &Client, id: &str, agent: &str) {
    let url = format!("http://{}/v1/conversations/{id}/messages", client.public_address());
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let sent = http.post(url).json(&json!({"text": "go", "agent": agent})).send();
    let answer = within("an answer", sent).await.unwrap();
    assert_eq!(answer.status(), 503);
    assert!(answer.headers().contains_key("retry-after"), "{answer:?}");
    let problem: Value = within("the problem", answer.json()).await.unwrap();
    assert_eq!(problem["type"], "/problems/unavailable", "{problem:#}");
    assert_eq!(client.admin(Method::GET, "/healthz").await.status, 200);
}

/// Repeats a message under this id until it is accepted.
pub(crate) async fn send_until_accepted(
    client: &Client,
    id: &str,
    agent: &str,
    message: &str,
) -> Value {
    let path = format!("/v1/conversations/{id}/messages");
    let body = json!({"text": "go", "agent": agent, "message_id": message, "if_busy": "queue"});
    poll(&format!("{message} to be accepted"), async || {
        let answer = client.ask(Method::POST, &path, None, Some(&body)).await?;
        assert!([202, 503].contains(&answer.status), "{answer:#?}");
        (answer.status == 202).then_some(answer.body)
    })
    .await
}
