//! A draining node lets running work finish, and leaves nothing behind.

use std::time::Instant;

use abide_tests::cluster::Cluster;
use abide_tests::deadline::poll;
use abide_tests::model_server::{ModelServer, Piece};
use abide_tests::tool_server::ToolServer;
use reqwest::Method;
use serde_json::{Value, json};

use crate::agents::{agent, calls_once, http, human};
use crate::three_nodes::{
    AFTER_LEASE, SLACK_FACTOR, holder_and_epoch, member, send_message, start_three, wait_for_state,
};

/// A lease that never ends in the test: nothing may wait for the end of a leaving node's lease.
const LEASE: &str = "10m";
/// A drain time-out that never ends in the test: work that can end by itself is waited for.
const LONG_DRAIN_FLAGS: [&str; 2] = ["--drain-timeout", "10m"];

/// Starts a conversation on node 0 whose tool is running.
async fn start_running(cluster: &Cluster, tools: &ToolServer) {
    let first = cluster.client(0);
    first.define("running", &calls_once(vec![http("hold", tools, "/hold", json!({}))])).await;
    send_message(first, "running", "running", "go").await;
    tools.requests.nth(1).await;
}

/// Starts a conversation on node 0 that waits for a person.
async fn start_parked(cluster: &Cluster, id: &str) {
    let first = cluster.client(0);
    first.define("parked", &calls_once(vec![human("ask")])).await;
    send_message(first, id, "parked", "go").await;
    first.wait_for_pending(id, "ask", "elicitation").await;
}

#[tokio::test]
async fn a_terminated_node_finishes_what_runs_and_its_conversations_go_on_elsewhere() {
    let mut cluster = start_three(LEASE, &LONG_DRAIN_FLAGS).await;
    let (tools, model) = (ToolServer::start().await, ModelServer::start().await);
    start_running(&cluster, &tools).await;
    let (first, other) = (cluster.client(0).clone(), cluster.client(1).clone());
    let then = http("then", &tools, "/answer", json!({}));
    first.define("speaking", &agent(model.model(), vec![then])).await;
    model.reply(vec![Piece::Text("One "), Piece::Hold, Piece::Call("then", "then", json!({}))]);
    send_message(&first, "speaking", "speaking", "go").await;
    model.requests.nth(1).await;
    let name = cluster.name(0).to_owned();
    let released = async {
        wait_for_state(&other, &name, "draining").await;
        tools.release();
        model.release();
    };
    tokio::join!(cluster.terminate(0), released);
    let left = Instant::now();
    poll("the node to be no member", async || member(&other, &name).await.is_null().then_some(()))
        .await;
    let took = left.elapsed();
    println!("measured a node that left is no member after {took:?}");
    assert!(took <= AFTER_LEASE * SLACK_FACTOR, "it was a member for {took:?}");

    let run = other.wait_until_settled("running", 1).await;
    assert_eq!((run.outcomes(), run.last_text()), (vec!["completed"], "Done.".to_owned()));
    assert_eq!(run.result("hold")["result"]["attempt"], 1);
    let spoken = other.wait_until_settled("speaking", 1).await;
    assert_eq!(spoken.result("then")["ok"], true);
    assert_eq!(
        (model.requests.all().len(), tools.requests.all().len()),
        (2, 2),
        "something ran twice"
    );
    model.assert_prompts_are_whole();
    cluster.evidence(&[&tools]).await.assert_no_violations();
}

#[tokio::test]
async fn a_node_is_drained_from_another_one_and_says_so_everywhere() {
    let mut cluster = start_three(LEASE, &LONG_DRAIN_FLAGS).await;
    let tools = ToolServer::start().await;
    start_running(&cluster, &tools).await;
    let (name, other) = (cluster.name(0).to_owned(), cluster.client(1).clone());
    let path = format!("/admin/nodes/{name}/drain");
    other.admin(Method::POST, &path).await.expect(202);
    wait_for_state(cluster.client(2), &name, "draining").await;
    tools.release();
    for client in cluster.clients() {
        wait_for_state(client, &name, "drained").await;
    }
    let run = other.wait_until_settled("running", 1).await;
    assert_eq!(run.result("hold")["result"]["attempt"], 1);
    let rows = other.admin(Method::GET, &format!("/admin/actors?node={name}")).await.expect(200);
    assert_eq!(rows["actors"], json!([]));
    assert_eq!(other.admin(Method::POST, "/admin/nodes/nobody/drain").await.status, 404);
    cluster.terminate(0).await;
    cluster.evidence(&[&tools]).await.assert_no_violations();
}

#[tokio::test]
async fn a_drain_that_takes_too_long_cuts_off_and_hands_over() {
    let mut cluster = start_three(LEASE, &["--drain-timeout", "300ms"]).await;
    let tools = ToolServer::start().await;
    start_running(&cluster, &tools).await;
    let other = cluster.client(1).clone();
    cluster.terminate(0).await;
    let again = tools.requests.nth(2).await;
    assert_eq!(again.body["attempt"], 2);
    tools.release();
    let run = other.wait_until_settled("running", 1).await;
    assert_eq!(run.result("hold")["result"]["attempt"], 2);
    assert_eq!(tools.requests.all().len(), 2);
    cluster.evidence(&[&tools]).await.assert_no_violations();
}

#[tokio::test]
async fn a_draining_node_gives_its_parked_conversations_up_at_once_and_takes_no_others() {
    let cluster = start_three(LEASE, &LONG_DRAIN_FLAGS).await;
    let tools = ToolServer::start().await;
    start_running(&cluster, &tools).await;
    for id in ["p1", "p2"] {
        start_parked(&cluster, id).await;
    }
    let name = cluster.name(0);
    let (first, other) = (cluster.client(0), cluster.client(1));
    let drained = Instant::now();
    first.admin(Method::POST, &format!("/admin/nodes/{name}/drain")).await.expect(202);
    for (id, client) in [("p1", other), ("p2", cluster.client(2))] {
        poll("the conversation to be given up", async || {
            holder_and_epoch(other, id).await.0.is_empty().then_some(())
        })
        .await;
        client.resolve(id, "ask", json!({"result": "yes"})).await.expect(200);
        other.wait_until_settled(id, 1).await;
        assert_ne!(holder_and_epoch(other, id).await.0, name);
    }
    let took = drained.elapsed();
    println!("measured parked conversations of a draining node were resolved after {took:?}");
    assert!(took <= AFTER_LEASE * SLACK_FACTOR, "it took {took:?}");
    wait_for_state(other, name, "draining").await;
    let new = json!({"text": "go", "agent": "running"});
    let refused = first.post("/v1/conversations/new/messages", &new).await;
    refused.expect_problem(503, "unavailable");
    let more = json!({"text": "more", "if_busy": "queue"});
    let refused = first.post("/v1/conversations/running/messages", &more).await;
    refused.expect_problem(503, "unavailable");
    // Its running conversation is reached through the other nodes.
    other.post("/v1/conversations/running/messages", &more).await.expect(202);
    tools.release();
    wait_for_state(other, name, "drained").await;
    assert_eq!(other.wait_until_settled("running", 2).await.outcomes(), ["completed", "completed"]);
    assert_ne!(holder_and_epoch(other, "running").await.0, name);
    let runs = tools.requests.all();
    assert!(runs.iter().all(|run| run.body["attempt"] == 1), "a drain cut a tool off");
    cluster.evidence(&[&tools]).await.assert_no_violations();
}

#[tokio::test]
async fn where_all_nodes_drain_new_work_is_refused_and_what_is_known_can_be_read() {
    let cluster = start_three(LEASE, &LONG_DRAIN_FLAGS).await;
    start_parked(&cluster, "p").await;
    for (index, client) in cluster.clients().enumerate() {
        let path = format!("/admin/nodes/{}/drain", cluster.name(index));
        client.admin(Method::POST, &path).await.expect(202);
    }
    for client in cluster.clients() {
        for index in 0..3 {
            wait_for_state(client, cluster.name(index), "drained").await;
        }
        let new = json!({"text": "go", "agent": "parked"});
        let refused = client.post("/v1/conversations/new/messages", &new).await;
        refused.expect_problem(503, "unavailable");
        let snapshot = client.snapshot("p").await;
        assert_eq!(
            (&snapshot["holder"], &snapshot["state"]),
            (&Value::Null, &json!("awaiting_input"))
        );
    }
}
