//! Three nodes over one Redis, and the facts that the tests wait for.

use std::time::Duration;

use abide_tests::client::{Answer, Client, resolution};
use abide_tests::cluster::{Cluster, Plan};
use abide_tests::deadline::poll;
use abide_tests::redis::Redis;
use reqwest::Method;
use serde_json::{Value, json};

use crate::ABIDE;

/// How much longer than promised things may take where all tests share two cores.
pub(crate) const SLACK: u32 = 4;
/// The lease of nodes that are stopped; a shorter one would lapse on a busy machine.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// What a take-over may take after the lease.
pub(crate) const AFTER_LEASE: Duration = Duration::from_secs(1);

/// Three nodes of this lease that know one another.
pub(crate) async fn three(lease: &str, flags: &[&str]) -> Cluster {
    begin(Plan::new(ABIDE).with(&["--lease", lease]).with(flags)).await
}

/// Three nodes that know one another.
pub(crate) async fn begin(plan: Plan) -> Cluster {
    let cluster = plan.start(Redis::start().await, 3).await;
    together(&cluster).await;
    cluster
}

/// Waits until each of the three sees all of them up.
pub(crate) async fn together(cluster: &Cluster) {
    for client in cluster.clients() {
        poll("all nodes to be up", async || {
            let nodes = nodes(client).await?;
            let up = nodes.iter().filter(|node| node["state"] == "up").count();
            (up == 3).then_some(())
        })
        .await;
    }
}

/// The members as a node sees them; `None` when it does not answer.
pub(crate) async fn nodes(client: &Client) -> Option<Vec<Value>> {
    let answer = client.try_admin(Method::GET, "/admin/nodes").await?;
    (answer.status == 200).then(|| answer.body["nodes"].as_array().unwrap().clone())
}

/// A member as another node sees it; null when it is none.
pub(crate) async fn member(client: &Client, name: &str) -> Value {
    let nodes = nodes(client).await.unwrap();
    nodes.into_iter().find(|node| node["name"] == name).unwrap_or_default()
}

/// Waits until a node sees another in this state.
pub(crate) async fn is(client: &Client, name: &str, state: &str) {
    poll(&format!("{name} to be {state}"), async || {
        (member(client, name).await["state"] == state).then_some(())
    })
    .await;
}

/// Who holds a conversation, and the epoch.
pub(crate) async fn held(client: &Client, id: &str) -> (String, u64) {
    let holder = &client.snapshot(id).await["holder"];
    let node = holder["node"].as_str().unwrap_or_default().to_owned();
    (node, holder["epoch"].as_u64().unwrap_or_default())
}

/// Answers a call, again while the answer is "not now": the key makes that safe.
pub(crate) async fn resolve(client: &Client, id: &str, call: &str, body: Value) -> Answer {
    let (path, key) = (resolution(id, call), format!("{id}/{call}"));
    insist(client, &path, Some(&key), &body).await
}

/// Says something, again while the answer is "not now": the name makes that safe.
pub(crate) async fn say(client: &Client, id: &str, agent: &str, name: &str) {
    let body = json!({"text": name, "agent": agent, "message_id": name});
    insist(client, &format!("/v1/conversations/{id}/messages"), None, &body).await.expect(202);
}

/// Asks again while the answer is "not now": a disk that other tests keep busy is away for seconds.
pub(crate) async fn insist(client: &Client, path: &str, key: Option<&str>, body: &Value) -> Answer {
    poll(path, async || {
        let answer = client.ask(Method::POST, path, key, Some(body)).await?;
        (answer.status != 503).then_some(answer)
    })
    .await
}
