//! A fork begins with a prefix of another journal, and is complete whatever dies during the copy.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::journal::StoreError;
use abide_actors::request::{ForkRequest, Reply, Request, RequestError};
use abide_conversation::erase::SubjectAlias;
use abide_conversation::event::{Event, EventData, TurnOutcome};
use abide_conversation::{ConversationId, Rejection, Scoped, Seq};

use crate::flaky_store::{Checkpoint, FlakyStore};
use crate::revival::{APPROVAL_AGENT, HOLD_AGENT};
use crate::test_node::{TestNode, results};

const REPEATING_AGENT: &str =
    "{name: a, model: {provider: scripted, script: [{text: 'You: {{ user }}'}]}}";

pub fn fork_of(from: &str, at_seq: Option<Seq>) -> Request {
    Request::Fork(ForkRequest { from: ConversationId::new(from), at_seq })
}

fn is_forked(data: &EventData) -> bool {
    matches!(data, EventData::Forked(_))
}

fn types(events: &[Event]) -> Vec<String> {
    let name = |event: &Event| serde_json::to_value(event).unwrap()["type"].to_string();
    events.iter().map(name).collect()
}

#[tokio::test(start_paused = true)]
async fn a_fork_is_cut_where_it_is_asked_to_and_goes_its_own_way() {
    let node = TestNode::new(REPEATING_AGENT).await;
    for n in 1..=3 {
        node.send("x", &format!("message {n}")).await.unwrap();
        node.turn_end("x", n).await;
    }
    let first = node.journal("x").await;
    let at_seq =
        first.iter().find(|event| matches!(event.data, EventData::TurnEnded(_))).unwrap().seq;
    let done = node.deliver("y", fork_of("x", Some(at_seq))).await.unwrap();
    assert!(matches!(done, Reply::Created { id, .. } if id == ConversationId::new("y")));
    let copy = node.journal("y").await;
    assert_eq!(
        copy[1..at_seq.get() as usize],
        first[1..at_seq.get() as usize],
        "the copy is incomplete when the request is answered"
    );
    assert_eq!(copy.len() as u64, at_seq.get() + 1);
    node.send("y", "other").await.unwrap();
    assert_eq!(node.turn_end("y", 2).await, (TurnOutcome::Completed, None));
    assert_eq!(node.journal("x").await, first, "the original's journal changed");
    node.check("y").await;
}

#[tokio::test(start_paused = true)]
async fn open_calls_are_cancelled_only_in_the_copy() {
    for agent in [APPROVAL_AGENT, HOLD_AGENT] {
        let node = TestNode::new(agent).await;
        node.send("x", "go").await.unwrap();
        node.poll_for_event("x", |data| matches!(data, EventData::ToolCall(_))).await;
        node.deliver("y", fork_of("x", None)).await.unwrap();
        assert_eq!(
            node.turn_end("y", 1).await,
            (TurnOutcome::Cancelled, Some("forked".to_owned()))
        );
        assert_eq!(results(&node.journal("y").await, "c")[0]["error_type"], "CANCELLED");
        assert!(results(&node.journal("x").await, "c").is_empty());
        assert!(node.state("y").await.pending_calls().is_empty());
        node.check("y").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_fork_of_what_is_not_there_is_refused_and_leaves_nothing() {
    let node = TestNode::new(REPEATING_AGENT).await;
    node.send("x", "go").await.unwrap();
    node.turn_end("x", 1).await;
    let refused = node.deliver("y", fork_of("nobody", None)).await;
    assert_eq!(refused, Err(RequestError::Rejected(Rejection::NotFound)));
    let refused = node.deliver("y", fork_of("x", Some(Seq::new(99)))).await;
    assert!(matches!(refused, Err(RequestError::Invalid { field, .. }) if field == "at_seq"));
    let refused = node.deliver("x", fork_of("x", None)).await;
    assert_eq!(refused, Err(RequestError::Rejected(Rejection::ConversationExists)));
    assert!(node.journal("y").await.is_empty());
    assert_eq!(node.deliver("y", fork_of("x", Some(Seq::FIRST))).await.map(|_| ()), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_fork_of_a_prefix_that_cannot_be_read_is_refused_and_leaves_nothing() {
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_store(store.clone(), REPEATING_AGENT).await;
    long(&node, "x").await;
    let original = Scoped::parse("x").unwrap();
    for damaged in [2, 300] {
        let damaged = Seq::new(damaged);
        *store.damaged_event.lock().unwrap() = Some((original.clone(), damaged));
        for at_seq in [None, Some(damaged.next())] {
            let refused = node.deliver("y", fork_of("x", at_seq)).await;
            let is_unreadable =
                matches!(refused, Err(RequestError::Store(StoreError::Unreadable(_))));
            assert!(is_unreadable, "{refused:?}");
            assert!(node.journal("y").await.is_empty());
        }
    }
    let done = node.deliver("y", fork_of("x", Some(Seq::new(299)))).await;
    assert_eq!(done.map(|_| ()), Ok(()), "what is before the damage can be read");
}

/// Writes a journal that is longer than one page of the copy.
async fn long(node: &TestNode, id: &str) {
    for n in 1..=100 {
        node.send(id, "go").await.unwrap();
        node.turn_end(id, n).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_goes_on_after_its_actor_died_at_any_write() {
    for write in 0..3 {
        for before in [true, false] {
            let store = Arc::new(FlakyStore::default());
            let node = TestNode::with_store(store.clone(), REPEATING_AGENT).await;
            long(&node, "x").await;
            let checkpoint = Checkpoint::new(write, before);
            *store.checkpoint.lock().unwrap() = Some(checkpoint.clone());
            let fork = node.deliver("y", fork_of("x", None));
            let refuse_write = async {
                checkpoint.wait_until_reached().await;
                checkpoint.refuse.store(true, Ordering::SeqCst);
                checkpoint.resume.add_permits(1);
            };
            let (answer, ()) = tokio::join!(fork, refuse_write);
            // A client without an answer asks again: the fork exists by then, or is made now.
            let mut again = answer.map(|_| ());
            while !matches!(again, Ok(()) | Err(RequestError::Rejected(_))) {
                tokio::time::sleep(Duration::from_secs(1)).await;
                again = node.deliver("y", fork_of("x", None)).await.map(|_| ());
            }
            node.wait_for_event("y", is_forked).await;
            let (first, copy) = (node.journal("x").await, node.journal("y").await);
            assert_eq!(copy[1..first.len()], first[1..], "{write} {before}");
            assert_eq!(types(&copy[first.len()..]), ["\"forked\""]);
            node.check("y").await;
        }
    }
}

/// Forks `x` to `y`, and does this to the original while the write of that number is held: the first
/// creates the fork, the second has the first page.
async fn fork_while(
    node: &TestNode,
    store: &FlakyStore,
    write: usize,
    change: impl Future<Output = ()>,
) -> Result<Reply, RequestError> {
    let checkpoint = Checkpoint::new(write, true);
    *store.checkpoint.lock().unwrap() = Some(checkpoint.clone());
    let fork = node.deliver("y", fork_of("x", None));
    let change = async {
        assert_eq!(checkpoint.wait_until_reached().await, Scoped::parse("y").unwrap());
        change.await;
        checkpoint.resume.add_permits(1);
    };
    tokio::join!(fork, change).0
}

#[tokio::test(start_paused = true)]
async fn a_fork_whose_original_is_deleted_or_replaced_while_it_is_copied_is_gone_with_it() {
    for write in [0, 1] {
        for is_replaced in [false, true] {
            let store = Arc::new(FlakyStore::default());
            let node = TestNode::with_store(store.clone(), REPEATING_AGENT).await;
            long(&node, "x").await;
            let answer = fork_while(&node, &store, write, async {
                node.deliver("x", Request::Delete).await.unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
                if is_replaced {
                    long(&node, "x").await;
                }
            });
            let not_there = Err(RequestError::Rejected(Rejection::NotFound));
            assert_eq!(answer.await, not_there, "{write} {is_replaced}");
            assert_eq!(node.journal("y").await, [], "{write} {is_replaced}");
            // The id is free.
            node.send("y", "go").await.unwrap();
            assert_eq!(node.turn_end("y", 1).await, (TurnOutcome::Completed, None));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fork_whose_original_is_rewritten_while_it_is_copied_is_whole() {
    for write in [0, 1] {
        let store = Arc::new(FlakyStore::default());
        let node = TestNode::with_store(store.clone(), REPEATING_AGENT).await;
        long(&node, "x").await;
        let answer = fork_while(&node, &store, write, async {
            let (subject, alias) = ("ada".to_owned(), "erased:0f".to_owned());
            let erase = Request::EraseSubject(SubjectAlias { subject, alias });
            node.deliver("x", erase).await.unwrap();
        });
        assert!(matches!(answer.await, Ok(Reply::Created { .. })), "{write}");
        let (first, copy) = (node.journal("x").await, node.journal("y").await);
        assert!(format!("{first:?}").contains("erased:0f"));
        assert_eq!(types(&copy[1..first.len()]), types(&first[1..]), "{write}");
        assert_eq!(types(&copy[first.len()..]), ["\"forked\""]);
        node.check("y").await;
    }
}

/// The prefix of a conversation that was restored from a fork of it ends nothing.
#[tokio::test(start_paused = true)]
async fn a_fork_of_a_conversation_that_was_forked_back_is_whole() {
    let node = TestNode::new(REPEATING_AGENT).await;
    node.send("x", "go").await.unwrap();
    node.turn_end("x", 1).await;
    node.deliver("b", fork_of("x", None)).await.unwrap();
    node.deliver("x", Request::Delete).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.deliver("x", fork_of("b", None)).await.unwrap();
    for n in 2..=100 {
        node.send("x", "go").await.unwrap();
        node.turn_end("x", n).await;
    }
    node.deliver("c", fork_of("x", None)).await.unwrap();
    let (first, copy) = (node.journal("x").await, node.journal("c").await);
    assert_eq!(copy[1..first.len()], first[1..]);
    assert_eq!(types(&copy[first.len()..]), ["\"forked\""]);
    node.send("c", "go").await.unwrap();
    assert_eq!(node.turn_end("c", 101).await, (TurnOutcome::Completed, None));
    node.check("c").await;
}
