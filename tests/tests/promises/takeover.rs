//! Work of a node that is gone continues on other nodes without any request.

use abide_tests::client::Client;
use abide_tests::cluster::Cluster;
use abide_tests::model_server::{ModelServer, Piece};
use abide_tests::tool_server::ToolServer;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::json;

use crate::agents::{agent, calls_once, http};
use crate::three_nodes::{
    AFTER_LEASE, LEASE, SLACK_FACTOR, holder_and_epoch, send_message, start_three,
    wait_until_all_up,
};

struct Scenario {
    cluster: Cluster,
    tools: ToolServer,
    model: ModelServer,
}

/// Starts on node 0 a streaming model, a running tool, a running tool that must not be repeated,
/// and a queued message.
async fn start_scenario(lease: &str) -> Scenario {
    let cluster = start_three(lease, &[]).await;
    let (tools, model) = (ToolServer::start().await, ModelServer::start().await);
    let first = cluster.client(0);
    let fail = json!({"on_interrupt": "fail"});
    first.define("speaking", &agent(model.model(), vec![])).await;
    first.define("running", &calls_once(vec![http("hold", &tools, "/hold", json!({}))])).await;
    first.define("once", &calls_once(vec![http("once", &tools, "/hold", fail)])).await;
    model.reply(vec![Piece::Text("Half a sent"), Piece::Hold]);
    model.reply(vec![Piece::Text("A whole sentence.")]);
    for id in ["speaking", "running", "once"] {
        send_message(first, id, id, "go").await;
    }
    send_message(first, "queued", "running", "first").await;
    queue(first, "second").await;
    model.requests.nth(1).await;
    tools.requests.nth(3).await;
    Scenario { cluster, tools, model }
}

async fn queue(client: &Client, text: &str) {
    let body = json!({"text": text, "if_busy": "queue"});
    client.post("/v1/conversations/queued/messages", &body).await.expect(202);
}

/// Only reads journals, until all running work has ended on another node.
async fn assert_taken_over(scenario: &Scenario) {
    let Scenario { cluster, tools, model } = scenario;
    let other = cluster.client(1);
    model.requests.nth(2).await;
    tools.requests.nth(5).await;
    tools.release();
    let spoken = other.wait_until_settled("speaking", 1).await;
    assert_eq!((spoken.outcomes(), spoken.of("assistant_msg").count()), (vec!["completed"], 1));
    assert_eq!(spoken.last_text(), "A whole sentence.");
    let run = other.wait_until_settled("running", 1).await;
    assert_eq!(run.result("hold")["result"]["attempt"], 2);
    let once = other.wait_until_settled("once", 1).await;
    assert_eq!(once.outcomes(), ["completed"]);
    assert_eq!(once.result("once")["error_type"], "INTERRUPTED");
    let queued = other.wait_until_settled("queued", 2).await;
    assert_eq!(queued.outcomes(), ["completed", "completed"]);
    let all = tools.requests.all();
    let runs = |key: &str| all.iter().filter(|run| run.call() == key).count();
    assert_eq!(
        ["once/once", "running/hold", "queued/hold", "queued/hold~2"].map(runs),
        [1, 2, 2, 1]
    );
    assert_eq!(model.requests.all().len(), 2);
    model.assert_prompts_are_whole();
}

#[tokio::test]
async fn what_ran_on_a_killed_node_goes_on_elsewhere_by_itself() {
    // Long enough that nothing here can have waited for its end.
    let mut scenario = start_scenario("1m").await;
    let reader = scenario.cluster.history.listen(scenario.cluster.clients(), "speaking");
    reader.wait_for("a delta", |frames| frames.iter().any(|one| one.name == "snapshot")).await;
    scenario.cluster.kill(0).await;
    assert_taken_over(&scenario).await;
    for id in ["speaking", "running", "once", "queued"] {
        let (node, epoch) = holder_and_epoch(scenario.cluster.client(1), id).await;
        assert!(node != "node-0" && epoch > 1, "{id} is held by {node:?} in epoch {epoch}");
    }
    scenario.cluster.evidence(&[&scenario.tools]).await.assert_no_violations();
}

#[tokio::test]
async fn what_ran_on_a_stopped_node_goes_on_elsewhere_when_its_lease_is_over() {
    let scenario = start_scenario("2s").await;
    scenario.cluster.stop(0).await;
    let stopped = Timestamp::now();
    assert_taken_over(&scenario).await;
    let bound = SignedDuration::try_from(LEASE + AFTER_LEASE * SLACK_FACTOR).unwrap();
    for again in &scenario.tools.requests.all()[3..5] {
        let after = again.at.duration_since(stopped);
        println!("measured a tool of a stopped node ran again after {after:?}");
        assert!(after <= bound, "{} ran again after {after:?}", again.call());
    }
    scenario.cluster.cont(0);
    wait_until_all_up(&scenario.cluster).await;
    scenario.cluster.evidence(&[&scenario.tools]).await.assert_no_violations();
}

#[tokio::test]
async fn a_killed_node_that_is_there_again_at_once_takes_nothing_over_twice() {
    const RUNS: usize = 10;
    let (mut cluster, tools) = (start_three("2s", &[]).await, ToolServer::start().await);
    let client = cluster.client(0).clone();
    client.define("a", &calls_once(vec![http("hold", &tools, "/hold", json!({}))])).await;
    for n in 0..RUNS {
        send_message(&client, &format!("c{n}"), "a", "go").await;
    }
    tools.requests.nth(RUNS).await;
    cluster.restart(0).await;
    tools.requests.nth(2 * RUNS).await;
    wait_until_all_up(&cluster).await;
    let rows = client.admin(Method::GET, "/admin/actors").await.expect(200);
    assert_eq!(rows["actors"].as_array().unwrap().len(), RUNS);
    tools.release();
    for n in 0..RUNS {
        let journal = client.wait_until_settled(&format!("c{n}"), 1).await;
        assert_eq!(journal.result("hold")["result"]["attempt"], 2);
        assert_eq!(journal.outcomes(), ["completed"]);
    }
    assert_eq!(tools.requests.all().len(), 2 * RUNS);
    cluster.evidence(&[&tools]).await.assert_no_violations();
}
