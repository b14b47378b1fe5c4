//! Tools that fail, over kills: the next attempt comes, and a call of which nobody knows waits.

use abide_tests::node::Site;
use abide_tests::tool_server::ToolServer;
use serde_json::json;

use crate::ABIDE;
use crate::agents::{calls_once, http};

#[tokio::test]
async fn the_next_attempt_comes_after_a_kill_under_the_same_key() {
    let (site, tools) = (Site::new(ABIDE), ToolServer::start().await);
    let node = site.start().await;
    let retry = json!({"retry": {"base": "2s", "max": "2s"}});
    site.client.define("a", &calls_once(vec![http("it", &tools, "/busy", retry)])).await;
    site.client.send_message("c", "a", "go").await;
    let first = tools.requests.nth(1).await;
    let failed = |journal: &abide_tests::journal::Journal| {
        journal.about("tool_attempt_failed", "it").next().is_some()
    };
    site.client.wait_for("c", "the failure", failed).await;
    node.kill().await;

    let _node = site.start().await;
    let second = tools.requests.nth(2).await;
    assert_eq!((&first.body["attempt"], &second.body["attempt"]), (&json!(1), &json!(2)));
    assert_eq!(first.header("idempotency-key"), second.header("idempotency-key"));
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    let failed = journal.about("tool_attempt_failed", "it").next().unwrap();
    assert_eq!(failed["data"]["error"], "the tool answered 503: busy");
    assert_eq!(tools.requests.all().len(), 2);
    journal.assert_settled();
}

#[tokio::test]
async fn a_call_that_a_kill_cut_off_waits_for_a_person_over_further_kills() {
    let (site, tools) = (Site::new(ABIDE), ToolServer::start().await);
    let node = site.start().await;
    let asks = json!({"on_interrupt": "ask", "timeout": "1h"});
    site.client.define("a", &calls_once(vec![http("it", &tools, "/hold", asks)])).await;
    site.client.send_message("c", "a", "go").await;
    let first = tools.requests.nth(1).await;
    node.kill().await;

    let site = site.named("another");
    let node = site.start().await;
    let pending = site.client.wait_for_pending("c", "it", "in_doubt").await;
    assert_eq!(pending["doubt"]["attempt"], 1);
    assert_eq!(pending["doubt"]["reason"], "interrupted");
    node.kill().await;

    let node = site.start().await;
    let pending = site.client.wait_for_pending("c", "it", "in_doubt").await;
    assert_eq!(pending["suspension"], 1, "it is the same question");
    site.client.resolve("c", "it", json!({"outcome": "retry"})).await.expect(200);
    let second = tools.requests.nth(2).await;
    assert_eq!(second.body["attempt"], 2);
    assert_eq!(first.header("idempotency-key"), second.header("idempotency-key"));
    node.kill().await;

    let _node = site.start().await;
    let pending = site.client.wait_for_pending("c", "it", "in_doubt").await;
    assert_eq!((&pending["suspension"], &pending["doubt"]["attempt"]), (&json!(2), &json!(2)));
    site.client.resolve("c", "it", json!({"result": {"paid": true}})).await.expect(200);
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    assert_eq!(journal.result("it")["result"], json!({"paid": true}));
    assert_eq!(tools.requests.all().len(), 2);
    journal.assert_settled();
}
