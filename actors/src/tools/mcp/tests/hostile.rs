//! Tests with servers that flood the client, ask too often, send garbage, or are silent.

use abide_conversation::Tenant;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::rig::{Age, HttpServer, Rig, raw, stdio};

#[tokio::test]
async fn a_result_that_is_too_large_is_an_error_and_the_next_call_works() {
    let server = HttpServer::start(Age::New);
    for entry in [stdio(Age::New), server.entry()] {
        let rig = Rig::new(entry);
        for bytes in [1_200_000, 9_000_000] {
            rig.error("flood", json!({"bytes": bytes})).await;
        }
        assert_eq!(rig.text("flood", json!({"bytes": 500_000})).await.len(), 500_000);
    }
}

#[tokio::test]
async fn a_server_that_reports_very_often_still_gets_its_result_through() {
    let rig = Rig::new(stdio(Age::New));
    assert_eq!(rig.text("chatter", json!({"times": 5_000})).await, "said");
}

#[tokio::test]
async fn a_server_that_sends_garbage_or_asks_too_often_ends_the_call() {
    for mode in ["babble", "nag"] {
        let server = raw(mode);
        let rig = Rig::with_tools(server, json!([{"mcp": "docs", "run_timeout": "20s"}]));
        let began = Instant::now();
        let outcome = rig.call("echo", json!({})).await;
        assert!(
            matches!(outcome, abide_conversation::message::Outcome::Err(..)),
            "{mode}: {outcome:?}"
        );
        assert!(began.elapsed() < Duration::from_secs(25), "{mode}");
    }
}

#[tokio::test]
async fn an_answer_that_is_no_result_is_an_error() {
    let rig = Rig::new(raw("nonsense"));
    assert!(rig.error("echo", json!({})).await.contains("not a tool result"));
}

#[tokio::test]
async fn tools_whose_schemas_lie_are_left_out_and_the_others_stay() {
    let rig = Rig::new(raw("liar"));
    assert_eq!(rig.names().await, ["docs_echo"]);
}

#[tokio::test]
async fn an_endless_or_oversized_list_is_truncated() {
    let rig = Rig::new(raw("endless"));
    assert_eq!(rig.names().await.len(), 32);
    let rig = Rig::new(raw("crowd"));
    assert_eq!(rig.names().await.len(), 256);
}

#[tokio::test]
async fn a_server_that_never_lists_costs_a_step_its_time_once() {
    let rig = Rig::new(raw("unlisted"));
    let began = Instant::now();
    assert_eq!(rig.names().await.len(), 0);
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(rig.mcp.cached_listings(&Tenant::default(), &rig.definition).is_some());
}

#[tokio::test]
async fn an_old_server_may_be_silent_about_what_it_does_not_know() {
    let rig = Rig::new(raw("silent"));
    assert_eq!(rig.text("echo", json!({})).await, "echoed");
}
