//! What operators and clients do to live and to passivated conversations.

use abide_tests::deadline::poll;
use abide_tests::node::Site;
use abide_tests::tool_server::ToolServer;
use reqwest::Method;
use serde_json::json;

use crate::ABIDE;
use crate::agents::{calls_once, gated_client, http, human};

/// Waits until no actor is live.
pub(crate) async fn wait_until_passivated(site: &Site) {
    poll("every actor to be passivated", async || {
        let live = site.client.admin(Method::GET, "/admin/actors").await.expect(200);
        live["actors"].as_array().unwrap().is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_parked_conversation_is_cancelled() {
    let site = Site::new(ABIDE).with(&["--passivate-after", "20ms"]);
    let node = site.start().await;
    site.client.define("a", &calls_once(vec![gated_client("page"), human("ask")])).await;
    site.client.send_message("c", "a", "go").await;
    site.client.wait_for_pending("c", "ask", "elicitation").await;
    wait_until_passivated(&site).await;
    node.kill().await;

    let _node = site.start().await;
    assert_eq!(site.client.snapshot("c").await["holder"], json!(null));
    assert_eq!(site.client.cancel("c").await.expect(200), json!({"cancelled": true}));
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.outcomes(), ["cancelled"]);
    for call in ["page", "ask"] {
        assert_eq!(journal.result(call)["error"], "[cancelled]");
        assert_eq!(journal.result(call)["error_type"], "CANCELLED");
        let late = site.client.resolve("c", call, json!({"approved": true})).await;
        late.expect_problem(409, "call-not-open");
    }
    assert_eq!(site.client.cancel("c").await.expect(200), json!({"cancelled": false}));
    assert_eq!(site.client.get("/v1/pending").await.expect(200)["pending"], json!([]));
}

#[tokio::test]
async fn a_killed_actor_is_revived_at_once() {
    let (site, tools) = (Site::new(ABIDE), ToolServer::start().await);
    let _node = site.start().await;
    let runs = http("runs", &tools, "/hold", json!({}));
    site.client.define("a", &calls_once(vec![runs, human("ask")])).await;
    site.client.send_message("c", "a", "go").await;
    tools.requests.nth(1).await;
    let killed = site.client.admin(Method::POST, "/admin/actors/c/kill").await;
    assert_eq!(killed.status, 202);
    let again = tools.requests.nth(2).await;
    assert_eq!((again.call().as_str(), &again.body["attempt"]), ("c/runs", &json!(2)));
    let actor = site.client.admin(Method::GET, "/admin/actors/c").await.expect(200);
    assert_eq!(actor["restarts"], 1, "{actor:#}");
    tools.release();
    site.client.resolve("c", "ask", json!({"result": 1})).await.expect(200);
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
}

#[tokio::test]
async fn tools_that_misbehave_end_their_calls_with_an_error() {
    let (site, tools) = (Site::new(ABIDE), ToolServer::start().await);
    let _node = site.start().await;
    let agent = calls_once(vec![
        http("fails", &tools, "/fail", json!({})),
        http("drops", &tools, "/drop", json!({})),
        http("hangs", &tools, "/hang", json!({"run_timeout": "200ms"})),
        http("streams", &tools, "/stream", json!({"streaming": true})),
    ]);
    site.client.define("a", &agent).await;
    site.client.send_message("c", "a", "go").await;
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    for (call, error_type) in
        [("fails", "TOOL_ERROR"), ("drops", "TOOL_ERROR"), ("hangs", "TIMEOUT")]
    {
        assert_eq!(journal.result(call)["error_type"], error_type, "{call}");
    }
    assert_eq!(journal.result("streams")["result"]["attempt"], 1);
}

#[tokio::test]
async fn a_deleted_conversation_stays_deleted_after_a_kill() {
    let site = Site::new(ABIDE);
    let node = site.start().await;
    site.client.define("a", &calls_once(vec![human("ask")])).await;
    site.client.send_message("c", "a", "go").await;
    site.client.wait_for_pending("c", "ask", "elicitation").await;
    let deleted = site.client.ask(Method::DELETE, "/v1/conversations/c", None, None).await;
    assert_eq!(deleted.unwrap().status, 204);
    node.kill().await;

    let _node = site.start().await;
    site.client.get("/v1/conversations/c").await.expect_problem(404, "not-found");
    site.client.get("/v1/conversations/c/journal").await.expect_problem(404, "not-found");
    assert_eq!(site.client.get("/v1/pending").await.expect(200)["pending"], json!([]));
    let alarms = site.client.admin(Method::GET, "/admin/alarms").await.expect(200);
    assert_eq!(alarms, json!({"alarms": []}));
}

/// The harness closes a node's standard output after the ready line, and standard error is full
/// here.
#[tokio::test]
async fn a_node_whose_output_cannot_be_written_keeps_serving() {
    let site = Site::new(ABIDE).with_log("/dev/full");
    let _node = site.start().await;
    site.client.define("a", &calls_once(vec![human("ask")])).await;
    site.client.send_message("c", "a", "go").await;
    site.client.wait_for_pending("c", "ask", "elicitation").await;
    for restarts in 1..=2 {
        let killed = site.client.admin(Method::POST, "/admin/actors/c/kill").await;
        assert_eq!(killed.status, 202);
        poll("the actor to be revived", async || {
            let actor = site.client.admin(Method::GET, "/admin/actors/c").await;
            (actor.body["restarts"] == restarts).then_some(())
        })
        .await;
    }
    site.client.resolve("c", "ask", json!({"result": 1})).await.expect(200);
    assert_eq!(site.client.wait_until_settled("c", 1).await.outcomes(), ["completed"]);
}
