//! Operators see and do the same through any node, also while another one is stopped.

use std::collections::BTreeSet;
use std::time::Duration;

use abide_tests::client::Client;
use abide_tests::cluster::{Cluster, Plan};
use abide_tests::deadline::poll;
use abide_tests::redis::Redis;
use abide_tests::tool_server::ToolServer;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::ABIDE;
use crate::agents::{agent, calls_once, http, human};
use crate::cluster_state::{
    LOAD_FACTOR, admin, node, time, wait_for_readiness, wait_until_connected,
};

/// How long an answer may take that involves a stopped node.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(7);

/// Starts a cluster with two suspended conversations and an idle one on each node.
async fn start_with_conversations(count: usize) -> Cluster {
    // Long enough that a stopped node is seen as suspect.
    let plan = Plan::new(ABIDE).with(&["--lease", "4s"]);
    let cluster = plan.start(Redis::own().await, count).await;
    wait_until_connected(&cluster).await;
    cluster.client(0).define("asks", &calls_once(vec![human("ask")])).await;
    let speaks = json!({"provider": "scripted", "script": [{"text": "Done."}]});
    cluster.client(0).define("speaks", &agent(speaks, vec![])).await;
    for (index, client) in cluster.clients().enumerate() {
        client.send_message(&format!("idle-{index}"), "speaks", "go").await;
        client.wait_until_settled(&format!("idle-{index}"), 1).await;
        for id in [format!("a-{index}"), format!("b-{index}")] {
            client.send_message(&id, "asks", "go").await;
            client.wait_for_pending(&id, "ask", "elicitation").await;
        }
    }
    cluster
}

fn ids(actors: &Value) -> Vec<String> {
    let rows = actors["actors"].as_array().unwrap().iter();
    rows.map(|row| row["conversation_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn everything_is_seen_from_every_node() {
    let cluster = start_with_conversations(3).await;
    for client in cluster.clients() {
        for index in 0..3 {
            let name = cluster.name(index);
            let node = node(client, name).await;
            assert_eq!(node["state"], "up", "{node:#}");
            assert_eq!(node["address"], json!(cluster.client(index).cluster_address()));
            assert!(node["heartbeat_age_ms"].as_u64().unwrap() < 4_000, "{node:#}");
            assert!(node["incarnation"].is_string() && node["version"].is_string(), "{node:#}");
            let here = admin(client, &format!("/admin/actors?node={name}")).await;
            let lives = ["a", "b", "idle"].map(|kind| format!("{kind}-{index}"));
            assert_eq!(ids(&here), lives);
            assert!(here["actors"].as_array().unwrap().iter().all(|row| row["node"] == *name));
        }
        let idle = admin(client, "/admin/actors?state=idle").await;
        assert_eq!(ids(&idle), ["idle-0", "idle-1", "idle-2"]);
        let waiting = admin(client, "/admin/actors?state=awaiting_input").await;
        assert_eq!(ids(&waiting), ["a-0", "a-1", "a-2", "b-0", "b-1", "b-2"]);
        assert_eq!(all_actor_ids(client).await.len(), 9);
        check_details(client).await;
    }
}

/// The ids of all rows, read two at a time.
async fn all_actor_ids(client: &Client) -> BTreeSet<String> {
    let (mut all, mut cursor) = (BTreeSet::new(), String::new());
    for _ in 0..9 {
        let page = admin(client, &format!("/admin/actors?limit=2{cursor}")).await;
        for id in ids(&page) {
            assert!(all.insert(id.clone()), "{id} is there twice");
        }
        let Some(next) = page["cursor"].as_str() else { return all };
        cursor = format!("&cursor={next}");
    }
    panic!("the list has no end");
}

/// Checks the conversations and alarms of all nodes, as one node shows them.
async fn check_details(client: &Client) {
    let alarms = admin(client, "/admin/alarms?limit=3").await;
    assert_eq!(alarms["alarms"].as_array().unwrap().len(), 3);
    assert!(alarms["alarms"].as_array().unwrap().iter().all(|row| row["lag_ms"] == 0));
    for index in 0..3 {
        let actor = admin(client, &format!("/admin/actors/a-{index}")).await;
        assert_eq!(actor["node"], format!("node-{index}"));
        assert!(actor["epoch"].as_u64().unwrap() > 0, "{actor:#}");
        assert_eq!((&actor["state"], &actor["open_calls"]), (&json!("awaiting_input"), &json!(1)));
        let why = &actor["why"];
        assert_eq!(why["waits_for"], "an answer to ask (ask)", "{why:#}");
        assert_eq!(why["next_at"], actor["alarm"]);
        assert!(time(&why["since"]) < time(&why["next_at"]));
    }
    let missing = client.admin(Method::GET, "/admin/actors/nobody").await;
    missing.expect_problem(404, "not-found");
}

#[tokio::test]
async fn an_actor_is_killed_from_another_node_and_revived_where_it_was() {
    let cluster = start_with_conversations(2).await;
    for (from, index) in [(0, 1), (1, 0), (0, 0)] {
        let path = format!("/admin/actors/a-{index}");
        let before = admin(cluster.client(from), &path).await;
        let killed = cluster.client(from).admin(Method::POST, &format!("{path}/kill")).await;
        assert_eq!(killed.status, 202);
        let after = poll("the actor to be revived", async || {
            let after = cluster.client(from).try_admin(Method::GET, &path).await?.body;
            (after["restarts"] != before["restarts"] && !after["node"].is_null()).then_some(after)
        })
        .await;
        assert_eq!(after["node"], before["node"]);
        assert_eq!(after["state"], "awaiting_input");
    }
    let missing = cluster.client(0).admin(Method::POST, "/admin/actors/nobody/kill").await;
    missing.expect_problem(404, "not-found");
    cluster.client(1).resolve("a-0", "ask", json!({"result": 1})).await.expect(200);
    cluster.client(1).wait_until_settled("a-0", 1).await;
}

#[tokio::test]
async fn a_node_is_drained_from_another_one() {
    let (cluster, tools) = (start_with_conversations(3).await, ToolServer::start().await);
    let hold = calls_once(vec![http("hold", &tools, "/hold", json!({}))]);
    cluster.client(0).define("holds", &hold).await;
    cluster.client(2).send_message("works", "holds", "go").await;
    tools.requests.nth(1).await;
    let missing = cluster.client(0).admin(Method::POST, "/admin/nodes/nobody/drain").await;
    missing.expect_problem(404, "not-found");
    let accepted = cluster.client(0).admin(Method::POST, "/admin/nodes/node-2/drain").await;
    assert_eq!(accepted.status, 202);
    wait_for_state_everywhere(&cluster, "draining").await;
    wait_for_readiness(cluster.client(2), 503).await;
    assert_eq!(cluster.client(2).admin(Method::GET, "/healthz").await.status, 200);
    tools.release();
    wait_for_state_everywhere(&cluster, "drained").await;
    let left = admin(cluster.client(0), "/admin/actors?node=node-2").await;
    assert_eq!(ids(&left), [""; 0]);
    let journal = cluster.client(1).wait_until_settled("works", 1).await;
    assert_eq!(journal.result("hold")["result"]["attempt"], 1, "it was let finish");
    let body = json!({"result": 1});
    cluster.client(1).resolve("a-2", "ask", body).await.expect(200);
    cluster.client(0).wait_until_settled("a-2", 1).await;
    assert_eq!(tools.requests.all().len(), 1);
}

/// Waits until every node sees node-2 in this state.
async fn wait_for_state_everywhere(cluster: &Cluster, state: &str) {
    for client in cluster.clients() {
        let called = async || (node(client, "node-2").await["state"] == state).then_some(());
        poll(&format!("node-2 to be {state}"), called).await;
    }
}

#[tokio::test]
async fn a_stopped_node_is_suspect_and_delays_no_answer() {
    let cluster = start_with_conversations(3).await;
    cluster.stop(2).await;
    let client = cluster.client(0);
    let requests = [
        (Method::GET, "/admin/nodes"),
        (Method::GET, "/admin/actors"),
        (Method::GET, "/admin/actors?node=node-2"),
        (Method::GET, "/admin/actors/a-2"),
        (Method::GET, "/admin/actors/a-1"),
        (Method::GET, "/admin/alarms"),
        (Method::POST, "/admin/actors/b-2/kill"),
        (Method::POST, "/admin/nodes/node-2/drain"),
    ];
    let began = Instant::now();
    let answers = requests.map(|(method, path)| async move {
        let answer = client.admin(method, path).await;
        (path, answer.status, began.elapsed())
    });
    let suspect = poll("the stopped node to be suspect", async || {
        let node = node(client, "node-2").await;
        (node["state"] == "suspect").then_some(node)
    });
    let (answers, suspect) = tokio::join!(futures::future::join_all(answers), suspect);
    assert!(suspect["heartbeat_age_ms"].as_u64().unwrap() <= 4_000, "{suspect:#}");
    for (path, status, took) in answers {
        println!("measured {path} with a stopped node: {status} after {took:?}");
        assert!([200, 202, 404, 503].contains(&status), "{path}: {status}");
        assert!(took < MAX_ANSWER_TIME * 2, "{path} took {took:?}");
    }
    let gone = async || node(client, "node-2").await.is_null().then_some(());
    poll("the stopped node to be gone", gone).await;
    for path in ["/admin/actors", "/admin/actors/a-2", "/admin/alarms"] {
        let began = Instant::now();
        admin(client, path).await;
        assert!(began.elapsed() < Duration::from_secs(1) * LOAD_FACTOR, "{path}");
    }
    cluster.cont(2);
    wait_until_connected(&cluster).await;
}

#[tokio::test]
async fn a_node_that_hangs_is_declared_dead_by_an_operator() {
    let plan = Plan::new(ABIDE).with(&["--lease", "120s"]);
    let cluster = plan.start(Redis::own().await, 2).await;
    wait_until_connected(&cluster).await;
    let (client, other) = (cluster.client(0), cluster.client(1));
    client.define("asks", &calls_once(vec![human("ask")])).await;
    other.send_message("hung", "asks", "go").await;
    other.wait_for_pending("hung", "ask", "elicitation").await;
    let before = node(client, "node-1").await;
    for (name, status, kind) in [("nobody", 404, "not-found"), ("node-0", 409, "conflict")] {
        let path = format!("/admin/nodes/{name}/declare-dead");
        client.admin(Method::POST, &path).await.expect_problem(status, kind);
    }
    cluster.stop(1).await;
    let dead = client.admin(Method::POST, "/admin/nodes/node-1/declare-dead").await;
    assert_eq!(dead.status, 200, "{:#}", dead.body);
    assert_eq!(dead.body["incarnation"], before["incarnation"]);
    poll("the node to be gone", async || node(client, "node-1").await.is_null().then_some(()))
        .await;
    client.resolve("hung", "ask", json!({"result": 1})).await.expect(200);
    client.wait_until_settled("hung", 1).await;
    cluster.cont(1);
    let back = poll("the node to rejoin", async || {
        let node = node(client, "node-1").await;
        (!node.is_null()).then_some(node)
    })
    .await;
    assert_ne!(back["incarnation"], before["incarnation"]);
    wait_until_connected(&cluster).await;
}

#[tokio::test]
async fn what_the_operators_audit_cannot_take_is_not_done() {
    let cluster = start_with_conversations(2).await;
    let client = cluster.client(0);
    let blob = client.store_blob("kept").await.unwrap().expect(201)["id"].take();
    let journals = async || {
        let [own, other] = ["a-0", "a-1"].map(async |id| client.journal(id).await.0.len());
        [own.await, other.await]
    };
    let (before, actors) = (journals().await, admin(client, "/admin/actors").await);
    // Whatever would be written there is refused.
    let log = "abide:{agents}:operations";
    cluster.redis.ask::<()>(&["SET", log, "broken"]).await;
    for path in [
        "actors/a-0/retry",
        "actors/a-0/calls/ask/fail",
        "actors/a-1/cancel",
        "actors/a-1/move",
        "actors/a-0/release",
        "actors/a-1/kill",
        "nodes/node-0/drain",
        "nodes/node-1/drain",
        "nodes/node-1/declare-dead",
    ] {
        let refused = client.admin(Method::POST, &format!("/admin/{path}")).await;
        assert_eq!(refused.status, 503, "{path}: {refused:?}");
    }
    let path = format!("/admin/blobs/{}", blob.as_str().unwrap());
    client.admin(Method::DELETE, &path).await.expect_problem(503, "unavailable");
    let deleted = client.ask(Method::DELETE, "/v1/agents/asks", None, None).await;
    deleted.unwrap().expect_problem(503, "unavailable");

    assert_eq!(journals().await, before);
    let ids_and_places = |actors: &Value| -> Vec<String> {
        let row =
            |row: &Value| format!("{} {} {}", row["conversation_id"], row["node"], row["state"]);
        actors["actors"].as_array().unwrap().iter().map(row).collect()
    };
    let after = admin(client, "/admin/actors").await;
    assert_eq!(ids_and_places(&after), ids_and_places(&actors));
    for index in 0..2 {
        assert_eq!(node(client, cluster.name(index)).await["state"], "up");
    }
    assert_eq!(admin(client, "/admin/actors/a-1").await["restarts"], 0);
    assert_eq!(client.get("/v1/agents/asks").await.status, 200);
    let path_of_blob = format!("/v1/blobs/{}", blob.as_str().unwrap());
    assert_eq!(client.get(&path_of_blob).await.status, 200);

    cluster.redis.ask::<()>(&["DEL", log]).await;
    assert_eq!(client.admin(Method::POST, "/admin/actors/a-1/kill").await.status, 202);
}
