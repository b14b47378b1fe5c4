//! Turns that are cancelled, interrupted, queued, structured or failed, and the revision that they
//! run on.

use std::sync::atomic::Ordering;

use abide_actors::live::Signal;
use abide_actors::request::{Reply, Request, RequestError};
use abide_conversation::command::IfBusy;
use abide_conversation::event::{Event, EventData, TurnOutcome};
use abide_conversation::message::MessageStatus;
use abide_conversation::{AgentName, Rejection, Scoped};
use abide_registry::live::StreamItem;
use serde_json::json;

use crate::test_node::{TestNode, connect_client, results, user_message};

const TALKING_AGENT: &str = r#"
name: a
model: {provider: scripted, script: [{text: "Well, {{ user }}."}]}
"#;

/// Sends `drip`, and waits until the model has streamed some text.
async fn send_and_wait_for_text(node: &TestNode, id: &str) {
    let mut signals = connect_client(node, id);
    node.send(id, "drip").await.unwrap();
    loop {
        let StreamItem::Signal(shared) = signals.next().await else { continue };
        if matches!(shared.signal, Signal::Text(_)) {
            return;
        }
    }
}

/// The texts of the assistant's messages.
async fn reply_texts(node: &TestNode, id: &str) -> Vec<String> {
    let events = node.journal(id).await;
    let text = |event: &Event| match &event.data {
        EventData::AssistantMsg(reply) => Some(reply.message.text()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_stream_keeps_what_it_said_once_and_marked() {
    let node = TestNode::new(TALKING_AGENT).await;
    send_and_wait_for_text(&node, "x").await;
    let snapshot =
        node.conversations.snapshot(&Scoped::parse("x").unwrap()).await.unwrap().unwrap();
    assert_eq!(json!(snapshot.state), "streaming");
    assert_eq!(snapshot.streaming_message.unwrap().text, "half a ");
    let reply = node.deliver("x", Request::Cancel).await.unwrap();
    assert_eq!(reply, Reply::Cancelled { cancelled: true });
    let again = node.deliver("x", Request::Cancel).await.unwrap();
    assert_eq!(again, Reply::Cancelled { cancelled: false });
    let events = node.journal("x").await;
    let replies: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.data {
            EventData::AssistantMsg(reply) => Some((reply.message.text(), reply.status)),
            _ => None,
        })
        .collect();
    assert_eq!(replies, [("half a ".to_owned(), MessageStatus::Cancelled)]);
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Cancelled, None));
    let snapshot =
        node.conversations.snapshot(&Scoped::parse("x").unwrap()).await.unwrap().unwrap();
    assert!(snapshot.streaming_message.is_none());
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_conversation_rejects_queues_or_is_interrupted() {
    let node = TestNode::new(TALKING_AGENT).await;
    send_and_wait_for_text(&node, "x").await;
    let busy = node.send("x", "now").await;
    assert_eq!(busy, Err(RequestError::Rejected(Rejection::TurnInFlight)));
    node.deliver("x", user_message("second", IfBusy::Queue)).await.unwrap();
    node.deliver("x", user_message("third", IfBusy::Queue)).await.unwrap();
    node.deliver("x", user_message("first", IfBusy::Interrupt)).await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Cancelled, None));
    node.turn_end("x", 4).await;
    assert_eq!(
        reply_texts(&node, "x").await,
        ["half a ", "Well, first.", "Well, second.", "Well, third."]
    );
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_structured_answer_is_repaired_once_then_the_turn_fails() {
    let script = |first: &str, second: &str| {
        format!(
            r#"
name: a
response_format: {{type: object, required: [n], properties: {{n: {{type: integer}}}}}}
model: {{provider: scripted, script: [{{text: '{first}'}}, {{text: '{second}'}}]}}
"#
        )
    };
    let node = TestNode::new(&script("no", r#"{"n": 1}"#)).await;
    node.send("x", "go").await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let object = node.journal("x").await.into_iter().find_map(|event| match event.data {
        EventData::AssistantMsg(reply) => reply.message.object,
        _ => None,
    });
    assert_eq!(object, Some(json!({"n": 1})));

    node.define(&script("no", r#"{"n": "one"}"#)).await;
    node.send("y", "go").await.unwrap();
    assert_eq!(
        node.turn_end("y", 1).await,
        (TurnOutcome::Failed, Some("schema_violation".to_owned()))
    );
    node.check("y").await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_without_end_is_halted_by_max_steps() {
    let node = TestNode::new(
        r#"
name: a
max_steps: 2
model:
  provider: scripted
  script: [{calls: [{id: c, name: nope, args: {}}]}, {calls: [{id: c, name: nope, args: {}}]}, {text: no}]
"#,
    )
    .await;
    node.send("x", "go").await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Halted, Some("max_steps".to_owned())));
    let events = node.journal("x").await;
    let unknown =
        json!({"ok": false, "error": "unknown tool: nope", "error_type": "TOOL_NOT_FOUND"});
    for id in ["c", "c~2"] {
        assert_eq!(results(&events, id).as_slice(), std::slice::from_ref(&unknown));
    }
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_model_that_fails_fails_the_turn_after_its_retries() {
    let node = TestNode::new(
        r#"
name: a
retry: {max_attempts: 3, base: 500ms, max: 8s}
model: {provider: scripted, script: [{error: {message: overloaded, retry: true}}]}
"#,
    )
    .await;
    node.send("x", "go").await.unwrap();
    let (ending, reason) = node.turn_end("x", 1).await;
    assert_eq!(ending, TurnOutcome::Failed);
    assert!(reason.unwrap().contains("overloaded"));
    assert_eq!(node.model.call_count.load(Ordering::SeqCst), 3);
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_ends_on_the_revision_it_began_with_and_a_deleted_agent_takes_no_more() {
    let node = TestNode::new(
        r#"
name: a
model: {provider: scripted, script: [{calls: [{id: c, name: hold, args: {}}]}, {text: "Old."}]}
tools: [{name: hold, run: {native: hold}}]
"#,
    )
    .await;
    node.send("x", "go").await.unwrap();
    node.wait_for_holds(1).await;
    node.define(TALKING_AGENT).await;
    node.deliver("x", user_message("next", IfBusy::Queue)).await.unwrap();
    node.tools.release.add_permits(1);
    node.turn_end("x", 2).await;
    assert_eq!(reply_texts(&node, "x").await, ["", "Old.", "Well, next."]);
    node.store.delete_agent(&Scoped::parse("a").unwrap(), None).await.unwrap();
    let gone = node.send("x", "hello?").await;
    assert_eq!(gone, Err(RequestError::AgentMissing(AgentName::new("a"))));
    node.check("x").await;
}
