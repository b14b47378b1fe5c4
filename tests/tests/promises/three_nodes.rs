//! A cluster of three nodes over one Redis, with the queries and requests of its tests.

use std::time::Duration;

use abide_tests::client::{Answer, Client, resolution};
use abide_tests::cluster::{Cluster, Plan};
use abide_tests::deadline::poll;
use abide_tests::redis::Redis;
use reqwest::Method;
use serde_json::{Value, json};

use crate::ABIDE;

/// How much longer than promised something may take when all tests share two cores.
pub(crate) const SLACK_FACTOR: u32 = 4;
/// The lease of nodes that are stopped; a shorter one would expire on a busy machine.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// How long a take-over may take after the end of the lease.
pub(crate) const AFTER_LEASE: Duration = Duration::from_secs(1);

/// Starts three nodes with this lease, and waits until all see each other.
pub(crate) async fn start_three(lease: &str, flags: &[&str]) -> Cluster {
    start_cluster(Plan::new(ABIDE).with(&["--lease", lease]).with(flags)).await
}

/// Starts three nodes by this plan, and waits until all see each other.
pub(crate) async fn start_cluster(plan: Plan) -> Cluster {
    let cluster = plan.start(Redis::start().await, 3).await;
    wait_until_all_up(&cluster).await;
    cluster
}

/// Waits until each of the three sees all of them up.
pub(crate) async fn wait_until_all_up(cluster: &Cluster) {
    for client in cluster.clients() {
        poll("all nodes to be up", async || {
            let nodes = nodes(client).await?;
            let up = nodes.iter().filter(|node| node["state"] == "up").count();
            (up == 3).then_some(())
        })
        .await;
    }
}

/// The members that a node sees; `None` when it does not answer.
pub(crate) async fn nodes(client: &Client) -> Option<Vec<Value>> {
    let answer = client.try_admin(Method::GET, "/admin/nodes").await?;
    (answer.status == 200).then(|| answer.body["nodes"].as_array().unwrap().clone())
}

/// A member that a node sees, by name, or null.
pub(crate) async fn member(client: &Client, name: &str) -> Value {
    let nodes = nodes(client).await.unwrap();
    nodes.into_iter().find(|node| node["name"] == name).unwrap_or_default()
}

/// Waits until a node sees another in this state.
pub(crate) async fn wait_for_state(client: &Client, name: &str, state: &str) {
    poll(&format!("{name} to be {state}"), async || {
        (member(client, name).await["state"] == state).then_some(())
    })
    .await;
}

/// The node that holds a conversation, and the epoch.
pub(crate) async fn holder_and_epoch(client: &Client, id: &str) -> (String, u64) {
    let holder = &client.snapshot(id).await["holder"];
    let node = holder["node"].as_str().unwrap_or_default().to_owned();
    (node, holder["epoch"].as_u64().unwrap_or_default())
}

/// Resolves a call, repeatedly while the answer is 503; the idempotency key makes that safe.
pub(crate) async fn resolve(client: &Client, id: &str, call: &str, body: Value) -> Answer {
    let (path, key) = (resolution(id, call), format!("{id}/{call}"));
    retry_post(client, &path, Some(&key), &body).await
}

/// Sends a message, repeatedly while the answer is 503; the message id makes that safe.
pub(crate) async fn send_message(client: &Client, id: &str, agent: &str, name: &str) {
    let body = json!({"text": name, "agent": agent, "message_id": name});
    retry_post(client, &format!("/v1/conversations/{id}/messages"), None, &body).await.expect(202);
}

/// Posts, repeatedly while the answer is 503: a busy disk makes Redis unavailable for seconds.
pub(crate) async fn retry_post(
    client: &Client,
    path: &str,
    key: Option<&str>,
    body: &Value,
) -> Answer {
    poll(path, async || {
        let answer = client.ask(Method::POST, path, key, Some(body)).await?;
        (answer.status != 503).then_some(answer)
    })
    .await
}
