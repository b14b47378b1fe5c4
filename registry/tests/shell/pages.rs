//! Client calls wait for a page, and for no longer than their grace.

use abide_conversation::command::ResolutionAnswer;
use abide_conversation::event::{EventData, TurnOutcome};
use serde_json::json;

use crate::rig::{Rig, page, results};

const LOCATES: &str = r#"
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
async fn a_client_call_without_a_page_ends_after_its_grace() {
    let rig = Rig::new(LOCATES).await;
    rig.send("x", "go").await.unwrap();
    let asked = rig.until_unseen("x", suspended).await;
    let ended = rig.until_unseen("x", |data| matches!(data, EventData::ToolResult(_))).await;
    assert_eq!(ended.at.duration_since(asked.at).as_secs(), 5);
    let no_client = json!({"ok": false, "error": "no client connected", "error_type": "NO_CLIENT"});
    assert_eq!(results(&rig.journal("x").await, "c"), [no_client]);
    assert_eq!(rig.ended("x", 1).await, (TurnOutcome::Completed, None));
}

#[tokio::test(start_paused = true)]
async fn a_client_call_waits_as_long_as_a_page_is_there() {
    let rig = Rig::new(LOCATES).await;
    let open = page(&rig, "x");
    rig.send("x", "go").await.unwrap();
    let asked = rig.until_unseen("x", suspended).await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(rig.state("x").await.pending_calls().len(), 1);
    drop(open);
    let ended = rig.until_unseen("x", |data| matches!(data, EventData::ToolResult(_))).await;
    assert_eq!(ended.at.duration_since(asked.at).as_secs(), 65, "five seconds after the page left");
    rig.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_page_that_comes_back_in_time_answers() {
    let rig = Rig::new(LOCATES).await;
    rig.send("x", "go").await.unwrap();
    rig.until_unseen("x", suspended).await;
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    let _open = page(&rig, "x");
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    rig.resolve("x", "c", ResolutionAnswer::Result(json!({"lat": 1}))).await.unwrap();
    rig.ended("x", 1).await;
    let located = json!({"ok": true, "result": {"lat": 1}});
    assert_eq!(results(&rig.journal("x").await, "c"), [located]);
}
