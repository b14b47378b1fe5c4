//! The audit of model calls: complete where a definition enables it, and never in the way of a
//! turn.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::audit::AuditEntry;
use abide_actors::model::Purpose;
use abide_actors::request::Request;
use abide_conversation::event::TurnOutcome;
use abide_conversation::{Scoped, Step};
use serde_json::json;

use crate::flaky_store::FlakyStore;
use crate::test_node::TestNode;

const AUDITED_AGENT: &str = r#"
name: a
audit: {ttl: 1h}
system_prompt: Be brief.
model: {provider: scripted, script: [{text: "You said {{ user }}"}]}
"#;
const UNAUDITED_AGENT: &str = r#"
name: a
model: {provider: scripted, script: [{text: "Well."}]}
"#;

/// Waits until there are at least `count` entries, and returns them, newest first.
pub async fn entries(node: &TestNode, id: &str, count: usize) -> Vec<AuditEntry> {
    let (id, clock) = (Scoped::parse(id).unwrap(), crate::test_node::clock());
    let found_enough = async {
        loop {
            let found = node.store.entries(&id, None, 100, clock.now()).await.unwrap();
            if found.len() >= count {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), found_enough)
        .await
        .expect("the entries never came")
}

#[tokio::test(start_paused = true)]
async fn a_step_is_audited_with_what_was_sent_and_what_came() {
    let node = TestNode::new(AUDITED_AGENT).await;
    node.model.slow.store(true, Ordering::SeqCst);
    node.send("x", "hello").await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let entry = entries(&node, "x", 1).await.remove(0);
    assert_eq!((entry.purpose, entry.step, entry.attempts), (Purpose::Step, Some(Step::FIRST), 1));
    let turn = node.journal("x").await.iter().find_map(|event| event.turn_id.clone());
    assert_eq!(entry.turn_id, turn);
    assert_eq!(entry.sent.value["system"], "Be brief.");
    assert_eq!(entry.sent.value["messages"][0]["content"][0]["text"], "hello");
    assert_eq!(entry.received.text.value, "You said hello");
    assert_eq!((entry.received.calls.value, entry.received.failure), (json!([]), None));
    assert!(entry.first_part_ms >= Some(1_000) && entry.whole_ms >= 1_000, "{:?}", entry.whole_ms);
    assert_eq!((entry.summary, entry.omitted.messages), (None, 1));
}

#[tokio::test(start_paused = true)]
async fn a_repeated_call_is_one_entry_that_counts() {
    let node = TestNode::new(AUDITED_AGENT).await;
    node.send("x", "stumble").await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let entries = entries(&node, "x", 1).await;
    assert_eq!((entries.len(), entries[0].attempts), (1, 2));
    assert_eq!(entries[0].received.failure, None);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_cut_off_is_audited_as_far_as_it_came() {
    let node = TestNode::new(AUDITED_AGENT).await;
    let mut signals = crate::test_node::connect_client(&node, "x");
    node.send("x", "drip").await.unwrap();
    let streams = async { while !format!("{:?}", signals.next().await).contains("half a ") {} };
    tokio::time::timeout(Duration::from_secs(60), streams).await.unwrap();
    node.deliver("x", Request::Cancel).await.unwrap();
    let entry = entries(&node, "x", 1).await.remove(0);
    assert_eq!(entry.received.text.value, "half a ");
    assert_eq!(entry.received.failure.as_deref(), Some("the reply was no longer wanted"));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_audited_unless_the_definition_says_so() {
    let node = TestNode::new(UNAUDITED_AGENT).await;
    node.send("x", "hello").await.unwrap();
    node.turn_end("x", 1).await;
    node.define(AUDITED_AGENT).await;
    node.send("x", "again").await.unwrap();
    node.turn_end("x", 2).await;
    let entries = entries(&node, "x", 1).await;
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].received.text.value, "You said again");
}

#[tokio::test(start_paused = true)]
async fn an_audit_that_cannot_be_written_fails_no_step() {
    let store = Arc::new(FlakyStore::default());
    store.full.store(true, Ordering::SeqCst);
    let node = TestNode::with_store(store.clone(), AUDITED_AGENT).await;
    node.send("x", "one").await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let refusal = async {
        while store.refusals.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), refusal).await.unwrap();
    store.full.store(false, Ordering::SeqCst);
    node.send("x", "two").await.unwrap();
    assert_eq!(node.turn_end("x", 2).await, (TurnOutcome::Completed, None));
    assert_eq!(entries(&node, "x", 1).await.len(), 1);
    node.check("x").await;
}
