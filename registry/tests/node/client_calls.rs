//! Client calls wait for a connected client, for as long as their grace allows.

use abide_conversation::command::ResolutionAnswer;
use abide_conversation::event::{EventData, TurnOutcome};
use serde_json::json;

use crate::test_node::{TestNode, connect_client, results};

const LOCATING_AGENT: &str = r#"
name: a
client_grace: 5s
suspension_timeout: 10m
model: {provider: scripted, script: [{calls: [{id: c, name: locate, args: {}}]}, {text: "Well."}]}
tools: [{name: locate, description: Where are you?, parameters: {type: object}, executor: client}]
"#;

fn suspended(data: &EventData) -> bool {
    matches!(data, EventData::Suspension(_))
}

#[tokio::test(start_paused = true)]
async fn a_client_call_without_a_client_ends_after_its_grace() {
    let node = TestNode::new(LOCATING_AGENT).await;
    node.send("x", "go").await.unwrap();
    let suspension = node.poll_for_event("x", suspended).await;
    let result = node.poll_for_event("x", |data| matches!(data, EventData::ToolResult(_))).await;
    assert_eq!(result.at.duration_since(suspension.at).as_secs(), 5);
    let no_client = json!({"ok": false, "error": "no client connected", "error_type": "NO_CLIENT"});
    assert_eq!(results(&node.journal("x").await, "c"), [no_client]);
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
}

#[tokio::test(start_paused = true)]
async fn a_client_call_waits_as_long_as_a_client_is_connected() {
    let node = TestNode::new(LOCATING_AGENT).await;
    let client = connect_client(&node, "x");
    node.send("x", "go").await.unwrap();
    let suspension = node.poll_for_event("x", suspended).await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(node.state("x").await.pending_calls().len(), 1);
    drop(client);
    let result = node.poll_for_event("x", |data| matches!(data, EventData::ToolResult(_))).await;
    assert_eq!(
        result.at.duration_since(suspension.at).as_secs(),
        65,
        "the call did not end five seconds after the client left"
    );
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reconnects_in_time_answers() {
    let node = TestNode::new(LOCATING_AGENT).await;
    node.send("x", "go").await.unwrap();
    node.poll_for_event("x", suspended).await;
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    let _client = connect_client(&node, "x");
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    node.resolve("x", "c", ResolutionAnswer::Result(json!({"lat": 1}))).await.unwrap();
    node.turn_end("x", 1).await;
    let located = json!({"ok": true, "result": {"lat": 1}});
    assert_eq!(results(&node.journal("x").await, "c"), [located]);
}
