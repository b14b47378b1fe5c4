//! A deletion takes the files and the children of the conversation with it, as far as they are its
//! own.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use abide_actors::conversation::relist;
use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::{Commit, Holder};
use abide_actors::request::{ForkRequest, Reply, Request, RequestError, SpawnRequest};
use abide_conversation::event::TurnOutcome;
use abide_conversation::{AgentName, ConversationId, Principal, Rejection, Scoped, State, replay};

use crate::flaky_store::FlakyStore;
use crate::sub_agents::{BOSS, CAREFUL_KID, KID, all_conversations, child, suspended};
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
async fn a_deletion_looks_once_for_children_in_the_journal() {
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_store(store.clone(), WRITER).await;
    write_file(&node, "childless").await;
    store.whole_reads.store(0, Ordering::SeqCst);
    node.deliver("childless", Request::Delete).await.unwrap();
    assert_eq!(store.whole_reads.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_was_replaced_deletes_no_files() {
    let node = TestNode::new(WRITER).await;
    let file = write_file(&node, "kept").await;
    let id = Scoped::parse("kept").unwrap();
    let me = Holder { node: NodeName::new("n"), incarnation: Incarnation::new("1") };
    let next = Holder { node: NodeName::new("m"), ..me.clone() };
    node.store.claim(&id, &next, Some(&me)).await.unwrap();
    assert!(node.deliver("kept", Request::Delete).await.is_err());
    assert!(file.exists(), "the files of a conversation that lives on elsewhere");
}

#[tokio::test(start_paused = true)]
async fn a_conversation_whose_journal_cannot_be_read_is_deleted() {
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_store(store.clone(), WRITER).await;
    write_file(&node, "damaged").await;
    node.wait_until_passivated("damaged").await;
    let id = Scoped::parse("damaged").unwrap();
    store.damaged.lock().unwrap().insert(id);
    assert_eq!(node.deliver("damaged", Request::Delete).await, Ok(Reply::Deleted));
    store.damaged.lock().unwrap().clear();
    assert_eq!(node.journal("damaged").await, []);
}

/// A parent and its child.
async fn family(kid: &str) -> (TestNode, String) {
    let node = TestNode::new(BOSS).await;
    node.define(kid).await;
    node.send("x", "go").await.unwrap();
    let child = child(&node, "x").await;
    (node, child)
}

/// The message that spawns a child, as it may be on its way for long.
async fn late_spawn(node: &TestNode, child: &str) -> Request {
    Request::Spawn(Box::new(SpawnRequest {
        parent: node.state(child).await.parent.unwrap(),
        agent: AgentName::new("kid"),
        content: Vec::new(),
        principal: Principal::system(),
        identity: None,
        participants: Default::default(),
        assigns: Default::default(),
        message_assigns: Default::default(),
    }))
}

#[tokio::test(start_paused = true)]
async fn a_child_whose_parent_is_gone_is_not_created() {
    let (node, child) = family(CAREFUL_KID).await;
    suspended(&node, &child).await;
    let late = late_spawn(&node, &child).await;
    node.deliver("x", Request::Delete).await.unwrap();
    assert_eq!(node.deliver(&child, late).await, Err(RequestError::Rejected(Rejection::NotFound)));
    assert_eq!(all_conversations(&node).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_child_that_its_parent_does_not_wait_for_any_more_is_not_created_anew() {
    let (node, child) = family(KID).await;
    node.turn_end("x", 1).await;
    let late = late_spawn(&node, &child).await;
    node.deliver(&child, Request::Delete).await.unwrap();
    assert_eq!(node.deliver(&child, late).await, Err(RequestError::Rejected(Rejection::NotFound)));
    assert_eq!(all_conversations(&node).await, ["x"]);
}

/// An imported journal may name whatever its writer wants.
#[tokio::test(start_paused = true)]
async fn a_journal_that_plans_the_child_of_another_does_not_take_it_along() {
    let (node, child) = family(KID).await;
    node.turn_end("x", 1).await;
    let events = node.journal("x").await;
    let state = replay(State::default(), &events);
    let id = Scoped::parse("y").unwrap();
    let me = Holder { node: NodeName::new("m"), incarnation: Incarnation::new("1") };
    let held = node.store.claim(&id, &me, None).await.unwrap();
    let commit = Commit::new(events.into(), relist::summary(&state));
    node.store.append(&id, &held, commit).await.unwrap();
    node.store.release(&id, &held).await.unwrap();
    node.deliver("y", Request::Delete).await.unwrap();
    let mut left = all_conversations(&node).await;
    left.sort();
    let mut family = vec![child, "x".to_owned()];
    family.sort();
    assert_eq!(left, family);
}

/// A fork copies the calls of the original, and with them the names of its children.
#[tokio::test(start_paused = true)]
async fn a_deleted_fork_leaves_the_children_of_the_original() {
    let (node, child) = family(KID).await;
    node.turn_end("x", 1).await;
    let fork = Request::Fork(ForkRequest { from: ConversationId::new("x"), at_seq: None });
    node.deliver("y", fork).await.unwrap();
    node.deliver("y", Request::Delete).await.unwrap();
    let mut left = all_conversations(&node).await;
    left.sort();
    let mut family = vec![child, "x".to_owned()];
    family.sort();
    assert_eq!(left, family);
}
