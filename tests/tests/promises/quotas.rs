//! Quotas that two nodes share, and usage that outlives the node that counted it.

use std::fmt::Write;
use std::path::Path;

use abide_tests::client::Client;
use abide_tests::cluster::{Cluster, Plan};
use abide_tests::redis::Redis;
use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::ABIDE;

const KEY: &str = "abide_all_secret-of-a-test-that-nobody-else-has";

/// A cluster of two nodes whose only tenant has these quotas, and a client of each.
async fn limited(directory: &Path, quotas: Value) -> (Cluster, [Client; 2]) {
    let mut sha256 = String::new();
    for byte in Sha256::digest(KEY) {
        write!(sha256, "{byte:02x}").unwrap();
    }
    let line = json!({"id": "all", "sha256": sha256, "tenant": "default",
        "roles": ["user", "backend", "author", "tenant-admin"]});
    let auth = directory.join("auth.json");
    let document = json!({"keys": [line], "tenants": {"default": {"quotas": quotas}}});
    std::fs::write(&auth, document.to_string()).unwrap();
    let plan = Plan::new(ABIDE).with(&["--lease", "1m", "--auth", auth.to_str().unwrap()]);
    let cluster = plan.start(Redis::start().await, 2).await;
    let clients = [0, 1].map(|node| cluster.client(node).clone().with_credential(KEY));
    (cluster, clients)
}

fn agent() -> Value {
    let usage = json!({"input_tokens": 40, "output_tokens": 2});
    json!({"model": {"provider": "scripted", "script": [{"text": "hi", "usage": usage}]}})
}

async fn create(client: &Client, id: &str) -> u16 {
    client.post("/v1/conversations", &json!({"id": id, "agent": "a"})).await.status
}

#[tokio::test]
async fn each_node_admits_its_share_of_a_quota() {
    let directory = tempfile::tempdir().unwrap();
    let (_cluster, clients) = limited(directory.path(), json!({"requests_per_minute": 5})).await;
    for client in &clients {
        let mut admitted = 0;
        while client.get("/v1/agents").await.status == 200 {
            admitted += 1;
        }
        // Half of five, rounded up; one more if the test takes as long as a request costs.
        assert!((3..=4).contains(&admitted), "{admitted}");
        client.get("/v1/agents").await.expect_problem(429, "quota-exceeded");
    }
}

#[tokio::test]
async fn what_one_node_creates_counts_on_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let (_cluster, [one, other]) = limited(directory.path(), json!({"conversations": 3})).await;
    one.define("a", &agent()).await;
    assert_eq!((create(&one, "c").await, create(&one, "d").await), (201, 201));
    assert_eq!(create(&other, "e").await, 201);
    let refused = other.post("/v1/conversations", &json!({"agent": "a"})).await;
    assert_eq!(refused.expect(429)["quota"], "conversations");
    let deleted = other.ask(Method::DELETE, "/v1/conversations/c", None, None).await.unwrap();
    assert_eq!(deleted.status, 204);
    assert_eq!(create(&other, "f").await, 201);
    assert_eq!(create(&other, "g").await, 429);
}

#[tokio::test]
async fn usage_outlives_the_node_that_counted_it() {
    let directory = tempfile::tempdir().unwrap();
    let (mut cluster, [one, other]) = limited(directory.path(), json!({})).await;
    one.define("a", &agent()).await;
    for number in 0..8 {
        let id = format!("c{number}");
        one.send_message(&id, "a", "go").await;
        one.wait_until_settled(&id, 1).await;
    }
    let before = one.get("/v1/usage").await.expect(200);
    assert_eq!(before["total"]["turns"], 8);
    assert_eq!(before["total"]["input_tokens"], 8 * 40);
    cluster.kill(0).await;
    assert_eq!(other.get("/v1/usage").await.expect(200), before);
    other.send_message("c0", "a", "again").await;
    other.wait_until_settled("c0", 2).await;
    let after = other.get("/v1/usage").await.expect(200);
    assert_eq!(
        (&after["total"]["turns"], &after["total"]["output_tokens"]),
        (&json!(9), &json!(18))
    );
}
