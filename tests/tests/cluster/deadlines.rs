//! Deadlines are absolute: they pass while no node is running, and a restart does not move them.

use abide_tests::node::Site;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{calls_once, gated_client, tool};

/// Sleeps past a moment; while the node is dead there is nothing else to wait for.
async fn sleep_past(moment: Timestamp) {
    let left = moment.duration_since(Timestamp::now());
    tokio::time::sleep(left.try_into().unwrap_or_default()).await;
    while Timestamp::now() <= moment {
        tokio::task::yield_now().await;
    }
}

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_deadline_that_passed_while_the_node_was_dead_expires_at_the_start() {
    let site = Site::new(ABIDE);
    let node = site.start().await;
    let asks = tool("asks", json!({"executor": "human", "timeout": "1500ms"}));
    site.client.define("a", &calls_once(vec![asks])).await;
    site.client.send_message("c", "a", "ask").await;
    let pending = site.client.wait_for_pending("c", "asks", "elicitation").await;
    node.kill().await;
    let due = time(&pending["expires_at"]);
    sleep_past(due).await;

    let _node = site.start().await;
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    assert_eq!(journal.result("asks")["error"], "timed out: no response");
    assert_eq!(journal.result("asks")["error_type"], "EXPIRED");
    let late = site.client.resolve("c", "asks", json!({"result": 1})).await;
    late.expect_problem(409, "call-not-open");
    assert_eq!(site.client.get("/v1/pending").await.expect(200)["pending"], json!([]));
}

#[tokio::test]
async fn an_answer_that_comes_after_the_deadline_is_late_even_right_after_the_start() {
    let site = Site::new(ABIDE);
    let node = site.start().await;
    let asks = tool("asks", json!({"executor": "human", "timeout": "1500ms"}));
    site.client.define("a", &calls_once(vec![asks])).await;
    site.client.send_message("c", "a", "ask").await;
    let pending = site.client.wait_for_pending("c", "asks", "elicitation").await;
    node.kill().await;
    sleep_past(time(&pending["expires_at"])).await;

    let _node = site.start().await;
    let late = site.client.resolve("c", "asks", json!({"result": 1})).await;
    late.expect_problem(409, "call-not-open");
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.result("asks")["error_type"], "EXPIRED");
}

#[tokio::test]
async fn a_restart_does_not_give_a_call_its_full_time_again() {
    let site = Site::new(ABIDE);
    let mut node = site.start().await;
    let asks = tool("asks", json!({"executor": "human", "timeout": "4s"}));
    site.client.define("a", &calls_once(vec![asks])).await;
    site.client.send_message("c", "a", "ask").await;
    let pending = site.client.wait_for_pending("c", "asks", "elicitation").await;
    for _ in 0..3 {
        node.kill().await;
        node = site.start().await;
    }
    let journal = site.client.wait_until_settled("c", 1).await;
    let expired = journal.about("tool_result", "asks").next().unwrap();
    assert_eq!(expired["data"]["error_type"], "EXPIRED");
    let (due, at) = (time(&pending["expires_at"]), time(&expired["at"]));
    assert!(at >= due, "expired at {at}, before {due}");
    // Less than the whole time-out again, even on a busy machine.
    assert!(at.duration_since(due) < SignedDuration::from_secs(3), "due {due}, expired {at}");
}

#[tokio::test]
async fn the_second_suspension_has_a_deadline_of_its_own_that_survives_a_kill() {
    let site = Site::new(ABIDE);
    let node = site.start().await;
    let mut page = gated_client("page");
    page["timeout"] = json!("2s");
    site.client.define("a", &calls_once(vec![page])).await;
    site.client.send_message("c", "a", "go").await;
    let first = site.client.wait_for_pending("c", "page", "approval").await;
    site.client.resolve("c", "page", json!({"approved": true})).await.expect(200);
    let second = site.client.wait_for_pending("c", "page", "client_exec").await;
    node.kill().await;
    let due = time(&second["expires_at"]);
    assert!(due > time(&first["expires_at"]));
    sleep_past(time(&first["expires_at"])).await;

    let _node = site.start().await;
    let journal = site.client.wait_until_settled("c", 1).await;
    let expired = journal.about("tool_result", "page").next().unwrap();
    assert_eq!(expired["data"]["error_type"], "EXPIRED");
    assert!(time(&expired["at"]) >= due, "the first deadline ended the second suspension");
}

#[tokio::test]
async fn a_parked_conversation_is_woken_by_its_deadline() {
    let site = Site::new(ABIDE).with(&["--passivate-after", "20ms"]);
    let _node = site.start().await;
    let asks = tool("asks", json!({"executor": "human", "timeout": "2s"}));
    site.client.define("a", &calls_once(vec![asks])).await;
    site.client.send_message("c", "a", "ask").await;
    let pending = site.client.wait_for_pending("c", "asks", "elicitation").await;
    crate::operators::wait_until_passivated(&site).await;
    let alarms = site.client.admin(reqwest::Method::GET, "/admin/alarms").await.expect(200);
    assert_eq!(alarms["alarms"][0]["conversation_id"], "c");
    assert_eq!(alarms["alarms"][0]["due_at"], pending["expires_at"]);
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    assert_eq!(journal.result("asks")["error_type"], "EXPIRED");
}
