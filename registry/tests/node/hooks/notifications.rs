//! Hooks that are notified of journalled events.

use std::time::Duration;

use abide_actors::request::{DispatchRequest, Request};
use abide_conversation::Principal;
use abide_conversation::event::EventData;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{ID, agent, echoes, hook, hook_fields, start_node, talks, wait_for_hook_events, with};
use crate::test_node::TestNode;

const NOTIFYING_POINTS: [&str; 12] = [
    "SessionStart",
    "SessionEnd",
    "UserPromptSubmit",
    "Stop",
    "StopFailure",
    "SubagentStart",
    "SubagentStop",
    "PostToolUse",
    "PostToolUseFailure",
    "PermissionDenied",
    "Notification",
    "PreCompact",
];

/// One hook on every notifying hook point.
fn hooks_on_all_points(native: &str) -> Vec<Value> {
    NOTIFYING_POINTS.iter().map(|on| hook(on, on, native)).collect()
}

#[tokio::test(start_paused = true)]
async fn hooks_are_notified_of_a_conversation_in_the_order_of_its_journal() {
    let node = start_node(echoes(6), hooks_on_all_points("note")).await;
    node.send(ID, "go").await.unwrap();
    node.poll_for_event(ID, |data| matches!(data, EventData::Suspension(_))).await;
    node.approve(ID, "c").await.unwrap();
    node.turn_end(ID, 1).await;
    let tool = "echo".to_owned();
    let input = json!({"n": 1});
    let principal = Principal::new("ann");
    let own = Request::Dispatch(DispatchRequest { tool, input, approved: false, principal });
    node.deliver(ID, own).await.unwrap();
    node.deliver(ID, Request::Delete).await.unwrap();
    let wanted = [
        "SessionStart",
        "UserPromptSubmit",
        "Notification",
        "PostToolUse",
        "Stop",
        "PostToolUse",
        "SessionEnd",
    ];
    wait_for_hook_events(&node, wanted.len()).await;
    assert_eq!(hook_fields(&node, "on"), wanted);
    assert_eq!(hook_fields(&node, "tool")[2..4], [json!("echo"), json!("echo")]);
    assert_eq!(hook_fields(&node, "event")[3]["data"]["result"]["args"]["n"], 6);
    assert_eq!(
        hook_fields(&node, "principal")[1..6],
        ["ada", "ada", "ada", "ada", "ann"].map(|it| json!(it))
    );
    assert_eq!(hook_fields(&node, "event")[6], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn hooks_are_notified_of_refusals_failures_and_children() {
    let mut hooks = hooks_on_all_points("note");
    hooks.push(with(hook("PreToolUse", "h", "deny"), "match", "echo"));
    let script = json!([{"calls": [
        {"id": "c", "name": "echo", "args": {"n": 1}},
        {"id": "k", "name": "kid", "args": {"prompt": "tea"}},
    ]}, {"error": {"message": "no model"}}]);
    let mut agent = agent(script, hooks);
    agent["tools"].as_array_mut().unwrap().push(json!({"name": "kid", "run": {"agent": "kid"}}));
    let node = TestNode::new(&agent.to_string()).await;
    node.define(crate::sub_agents::KID).await;
    node.send(ID, "go").await.unwrap();
    node.turn_end(ID, 1).await;
    let wanted = [
        "PreToolUse",
        "SessionStart",
        "UserPromptSubmit",
        "PermissionDenied",
        "PostToolUseFailure",
        "SubagentStart",
        "SubagentStop",
        "PostToolUse",
        "StopFailure",
    ];
    wait_for_hook_events(&node, wanted.len()).await;
    let mut received = hook_fields(&node, "on");
    let index = received.iter().position(|on| on == "PreToolUse").unwrap();
    let pre_tool_use = received.remove(index);
    received.insert(0, pre_tool_use);
    let mut sorted = received.clone();
    let mut expected: Vec<Value> = wanted.iter().map(|on| json!(on)).collect();
    assert_eq!(received.last(), expected.last());
    let text = |on: &Value| on.as_str().unwrap().to_owned();
    sorted.sort_by_key(text);
    expected.sort_by_key(text);
    assert_eq!(sorted, expected);
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_hangs_or_panics_holds_up_neither_its_conversation_nor_the_next_event() {
    for native in ["hang", "panic"] {
        let hooks = vec![hook("UserPromptSubmit", "h", native), hook("Stop", "s", "note")];
        let node = start_node(talks(), hooks).await;
        let before = Instant::now();
        node.send(ID, "go").await.unwrap();
        node.turn_end(ID, 1).await;
        assert!(before.elapsed() < Duration::from_secs(1));
        wait_for_hook_events(&node, 2).await;
        assert_eq!(hook_fields(&node, "hook"), ["h", "s"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_pending_notifications() {
    for (drain_timeout, received) in [(60, true), (1, false)] {
        let hooks = ["SessionStart", "UserPromptSubmit", "Stop"].map(|on| hook(on, on, "nap"));
        let node = start_node(talks(), hooks.to_vec()).await;
        node.send(ID, "go").await.unwrap();
        node.turn_end(ID, 1).await;
        assert_eq!(node.runtime.drain(Duration::from_secs(drain_timeout)).await, received);
        assert_eq!(hook_fields(&node, "hook").len() == 3, received);
    }
}
