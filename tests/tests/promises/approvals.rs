//! An approval that two must give, at two nodes, one of which is killed in between.

use std::fmt::Write;

use abide_tests::client::resolution;
use abide_tests::cluster::Plan;
use abide_tests::deadline::poll;
use abide_tests::redis::Redis;
use abide_tests::tool_server::ToolServer;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::ABIDE;
use crate::agents::{calls_once, http};

/// Those who use the cluster, each with one role.
const PEOPLE: [(&str, &str); 4] =
    [("author", "author"), ("dan", "user"), ("ada", "approver"), ("bob", "approver")];

fn key(id: &str) -> String {
    format!("abide_{id}_secret-of-a-test-that-nobody-else-has-{id}")
}

/// A file of `--auth` with a key for each.
fn auth_file() -> Value {
    let line = |(id, role): (&str, &str)| {
        let mut sha256 = String::new();
        for byte in Sha256::digest(key(id)) {
            write!(sha256, "{byte:02x}").unwrap();
        }
        json!({"id": id, "sha256": sha256, "tenant": "default", "roles": [role]})
    };
    let tenants = json!({"default": {"allowed_hosts": ["127.0.0.1"]}});
    json!({"keys": PEOPLE.map(line), "tenants": tenants})
}

#[tokio::test]
async fn a_vote_outlives_the_node_that_took_it() {
    let directory = tempfile::tempdir().unwrap();
    let auth = directory.path().join("auth.json");
    std::fs::write(&auth, auth_file().to_string()).unwrap();
    let plan = Plan::new(ABIDE).with(&["--lease", "1m", "--auth", auth.to_str().unwrap()]);
    let mut cluster = plan.start(Redis::start().await, 2).await;
    let tools = ToolServer::start().await;
    let as_of = |node: usize, who: &str| cluster.client(node).clone().with_credential(&key(who));
    let by = json!({"quorum": 2, "services": true});
    let pay = http("pay", &tools, "/answer", json!({"approval": {"by": by}}));
    as_of(0, "author").define("payer", &calls_once(vec![pay])).await;
    let [dan, ada, bob] = [(1, "dan"), (0, "ada"), (1, "bob")].map(|(node, who)| as_of(node, who));
    as_of(0, "dan").send_message("c", "payer", "go").await;
    dan.wait_for_pending("c", "pay", "approval").await;

    let vote = json!({"approved": true});
    let recorded = ada.post(&resolution("c", "pay"), &vote).await.expect(200);
    assert_eq!((&recorded["status"], &recorded["needed"]), (&json!("recorded"), &json!(2)));
    cluster.kill(0).await;
    // Until its node has seen that the other one is gone, his vote may be lost on the way.
    poll("the second vote", async || {
        let answer = bob.post(&resolution("c", "pay"), &vote).await;
        assert!([200, 503].contains(&answer.status), "{answer:#?}");
        (answer.status == 200).then(|| assert_eq!(answer.body["status"], "accepted"))
    })
    .await;
    let asked = tools.requests.nth(1).await;
    let approvals = asked.body["approvals"].as_array().unwrap();
    let subs: Vec<&Value> = approvals.iter().map(|approver| &approver["sub"]).collect();
    assert_eq!(subs, ["key:ada", "key:bob"]);
    let journal = dan.wait_until_settled("c", 1).await;
    assert_eq!((journal.of("voted").count(), journal.of("resolution").count()), (1, 1));
    assert_eq!(tools.requests.all().len(), 1, "the call ran once");
}
