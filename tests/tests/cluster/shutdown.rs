//! SIGTERM: running work may finish.

use abide_tests::deadline::poll;
use abide_tests::model_server::{ModelServer, Piece};
use abide_tests::node::{Node, Site};
use abide_tests::tool_server::ToolServer;
use reqwest::Method;
use serde_json::json;

use crate::ABIDE;
use crate::agents::{agent, calls_once, http, human};

async fn wait_until_draining(site: &Site) {
    poll("the node to say that it drains", async || {
        let ready = site.client.admin(Method::GET, "/readyz").await;
        (ready.status == 503).then_some(())
    })
    .await;
}

/// Starts a node, and terminates it while a tool runs.
async fn terminate_while_running(site: &Site, tools: &ToolServer) -> Node {
    let node = site.start().await;
    site.client.define("a", &calls_once(vec![http("runs", tools, "/hold", json!({}))])).await;
    site.client.send_message("c", "a", "run").await;
    tools.requests.nth(1).await;
    node.terminate();
    wait_until_draining(site).await;
    assert_eq!(site.client.admin(Method::GET, "/healthz").await.status, 200, "it is alive");
    node
}

#[tokio::test]
async fn a_node_that_is_asked_to_stop_waits_for_a_running_tool_and_exits_0() {
    let (site, tools) = (Site::new(ABIDE), ToolServer::start().await);
    let mut node = terminate_while_running(&site, &tools).await;
    let new = json!({"text": "more", "agent": "a"});
    let refused = site.client.post("/v1/conversations/d/messages", &new).await;
    refused.expect_problem(503, "unavailable");
    tools.release();
    assert_eq!(node.wait_for_exit().await.code(), Some(0));

    let _node = site.start().await;
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    assert_eq!(journal.result("runs")["result"]["attempt"], 1);
    assert_eq!(tools.requests.all().len(), 1, "the run that was waited for is not repeated");
}

#[tokio::test]
async fn a_node_that_is_asked_to_stop_lets_the_model_finish_its_message() {
    let (site, model) = (Site::new(ABIDE), ModelServer::start().await);
    let mut node = site.start().await;
    site.client.define("a", &agent(model.model(), vec![])).await;
    model.reply(vec![Piece::Text("One "), Piece::Hold, Piece::Text("message.")]);
    site.client.send_message("c", "a", "speak").await;
    model.requests.nth(1).await;
    node.terminate();
    wait_until_draining(&site).await;
    model.release();
    assert_eq!(node.wait_for_exit().await.code(), Some(0));

    let _node = site.start().await;
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(
        (journal.outcomes(), journal.last_text()),
        (vec!["completed"], "One message.".into())
    );
    assert_eq!(model.requests.all().len(), 1);
}

#[tokio::test]
async fn a_second_request_to_stop_does_not_wait() {
    let (site, tools) =
        (Site::new(ABIDE).with(&["--drain-timeout", "1h"]), ToolServer::start().await);
    let mut node = terminate_while_running(&site, &tools).await;
    node.terminate();
    node.wait_for_exit().await;

    let _node = site.start().await;
    tools.requests.nth(2).await;
    tools.release();
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.result("runs")["result"]["attempt"], 2);
}

#[tokio::test]
async fn a_tool_that_outlasts_the_drain_runs_again_after_the_start() {
    let (site, tools) =
        (Site::new(ABIDE).with(&["--drain-timeout", "300ms"]), ToolServer::start().await);
    let mut node = terminate_while_running(&site, &tools).await;
    assert_eq!(node.wait_for_exit().await.code(), Some(0));

    let _node = site.start().await;
    tools.requests.nth(2).await;
    tools.release();
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.result("runs")["result"]["attempt"], 2);
}

#[tokio::test]
async fn a_node_whose_conversations_only_wait_stops_at_once_despite_open_streams() {
    let site = Site::new(ABIDE).with(&["--drain-timeout", "1h"]);
    let mut node = site.start().await;
    site.client.define("a", &calls_once(vec![human("ask")])).await;
    site.client.send_message("c", "a", "go").await;
    site.client.wait_for_pending("c", "ask", "elicitation").await;
    let _listens = site.client.events("c", None).await;
    node.terminate();
    assert_eq!(node.wait_for_exit().await.code(), Some(0));

    let _node = site.start().await;
    site.client.resolve("c", "ask", json!({"result": 1})).await.expect(200);
    site.client.wait_until_settled("c", 1).await;
}

#[tokio::test]
async fn a_node_that_an_operator_drained_says_so_and_stays_until_it_is_stopped() {
    let (site, tools) = (Site::new(ABIDE), ToolServer::start().await);
    let mut node = site.start().await;
    site.client.define("a", &calls_once(vec![http("runs", &tools, "/hold", json!({}))])).await;
    site.client.send_message("c", "a", "run").await;
    tools.requests.nth(1).await;
    let nodes = site.client.admin(Method::GET, "/admin/nodes").await.expect(200);
    assert_eq!(nodes["nodes"][0]["state"], "up");
    let path = format!("/admin/nodes/{}/drain", nodes["nodes"][0]["name"].as_str().unwrap());
    site.client.admin(Method::POST, &path).await.expect(202);
    wait_until_draining(&site).await;
    tools.release();
    poll("the node to say that it is drained", async || {
        let nodes = site.client.admin(Method::GET, "/admin/nodes").await.expect(200);
        (nodes["nodes"][0]["state"] == "drained").then_some(())
    })
    .await;
    let new = json!({"text": "more", "agent": "a"});
    let refused = site.client.post("/v1/conversations/d/messages", &new).await;
    refused.expect_problem(503, "unavailable");
    node.terminate();
    assert_eq!(node.wait_for_exit().await.code(), Some(0));
}
