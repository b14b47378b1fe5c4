//! A repeated request gets the first answer, and nothing happens twice.

use abide_actors::request::{IdempotencyKey, Reply, Request, RequestError};
use abide_conversation::Scoped;
use abide_conversation::command::IfBusy;
use abide_conversation::event::EventData;

use crate::test_node::{TestNode, user_message};

const TALKING_AGENT: &str = r#"
name: a
model: {provider: scripted, script: [{text: "Well."}]}
"#;

fn key(name: &str, fingerprint: &str) -> Vec<IdempotencyKey> {
    let (key, fingerprint) = (format!("message:{name}"), fingerprint.to_owned());
    vec![IdempotencyKey { key, fingerprint, field: "message_id".into() }]
}

#[tokio::test(start_paused = true)]
async fn the_same_message_id_is_one_message_with_one_answer() {
    let node = TestNode::new(TALKING_AGENT).await;
    let first =
        node.deliver_keyed("x", user_message("hi", IfBusy::Reject), key("m", "hi")).await.unwrap();
    let again =
        node.deliver_keyed("x", user_message("hi", IfBusy::Reject), key("m", "hi")).await.unwrap();
    assert_eq!(first, again);
    node.turn_end("x", 1).await;
    node.kill("x").await;
    let again =
        node.deliver_keyed("x", user_message("hi", IfBusy::Reject), key("m", "hi")).await.unwrap();
    assert_eq!(first, again, "a repeat after a crash got another answer");
    let other = node.deliver_keyed("x", user_message("ho", IfBusy::Reject), key("m", "ho")).await;
    assert_eq!(other, Err(RequestError::KeyReused("message_id".into())));
    let events = node.journal("x").await;
    let messages =
        events.iter().filter(|event| matches!(event.data, EventData::UserMsg(_))).count();
    assert_eq!(messages, 1);
    tokio::time::advance(std::time::Duration::from_secs(86_401)).await;
    let later =
        node.deliver_keyed("x", user_message("hi", IfBusy::Reject), key("m", "hi")).await.unwrap();
    assert_ne!(first, later, "the key still held a day later");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_conversation_is_gone_and_a_repeated_delete_succeeds() {
    let node = TestNode::new(TALKING_AGENT).await;
    node.send("x", "hi").await.unwrap();
    node.turn_end("x", 1).await;
    let first = node.deliver_keyed("x", Request::Delete, key("d", "x")).await;
    assert_eq!(first, Ok(Reply::Deleted));
    assert_eq!(node.deliver_keyed("x", Request::Delete, key("d", "x")).await, Ok(Reply::Deleted));
    let gone = node.deliver("x", Request::Cancel).await;
    assert!(matches!(gone, Err(RequestError::Rejected(_))), "{gone:?}");
    assert!(node.journal("x").await.is_empty());
    assert!(node.conversations.snapshot(&Scoped::parse("x").unwrap()).await.unwrap().is_none());
    node.send("x", "hi").await.unwrap();
    node.turn_end("x", 1).await;
    node.check("x").await;
}
