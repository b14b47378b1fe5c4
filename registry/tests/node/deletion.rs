//! A deletion takes the files of the conversation with it, if the conversation is the node's to
//! delete.

use std::path::PathBuf;

use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::Holder;
use abide_actors::request::Request;
use abide_conversation::ConversationId;
use abide_conversation::event::TurnOutcome;

use crate::test_node::{TestNode, builtin_base};

const WRITER: &str = r#"
name: a
model: {provider: scripted, script: [{calls: [{id: w, name: write, args: {path: f, content: b}}]}, {text: "Well."}]}
tools: [{name: write, run: {builtin: write}}]
"#;

/// Has a conversation write a file. Returns where it is.
async fn write_file(node: &TestNode, id: &str) -> PathBuf {
    node.send(id, "go").await.unwrap();
    assert_eq!(node.turn_end(id, 1).await, (TurnOutcome::Completed, None));
    let file = builtin_base().join(id).join("f");
    assert!(file.exists(), "{file:?}");
    file
}

#[tokio::test(start_paused = true)]
async fn a_deleted_conversation_leaves_no_files() {
    let node = TestNode::new(WRITER).await;
    let file = write_file(&node, "deleted").await;
    node.deliver("deleted", Request::Delete).await.unwrap();
    assert!(!file.exists());
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_was_replaced_deletes_no_files() {
    let node = TestNode::new(WRITER).await;
    let file = write_file(&node, "kept").await;
    let id = ConversationId::new("kept");
    let me = Holder { node: NodeName::new("n"), incarnation: Incarnation::new("1") };
    let next = Holder { node: NodeName::new("m"), ..me.clone() };
    node.store.claim(&id, &next, Some(&me)).await.unwrap();
    assert!(node.deliver("kept", Request::Delete).await.is_err());
    assert!(file.exists(), "the files of a conversation that lives on elsewhere");
}
