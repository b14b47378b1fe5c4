//! A conversation goes on after a kill, a passivation, a crash and a quarantine.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::conversation::ConversationMsg;
use abide_actors::journal::StoreError;
use abide_actors::request::RequestError;
use abide_conversation::Scoped;
use abide_conversation::event::{EventData, TurnOutcome};
use abide_registry::router::Location;
use abide_registry::store::Store;
use abide_registry::store::memory::Memory;
use serde_json::json;

use crate::flaky_store::FlakyStore;
use crate::test_node::{TestNode, results};

pub const HOLD_AGENT: &str = r#"
name: a
model: {provider: scripted, script: [{calls: [{id: c, name: hold, args: {}}]}, {text: "Well."}]}
tools: [{name: hold, run: {native: hold}, run_timeout: 1h}]
"#;
pub const HOLD_ONCE_AGENT: &str = r#"
name: a
model: {provider: scripted, script: [{calls: [{id: c, name: hold, args: {}}]}, {text: "Well."}]}
tools: [{name: hold, run: {native: hold}, on_interrupt: fail, run_timeout: 1h}]
"#;
pub const APPROVAL_AGENT: &str = r#"
name: a
suspension_timeout: 10m
model: {provider: scripted, script: [{calls: [{id: c, name: hold, args: {}}]}, {text: "Well."}]}
tools: [{name: hold, run: {native: hold}, approval: requires_approval, run_timeout: 1h}]
"#;

#[tokio::test(start_paused = true)]
async fn a_killed_actor_runs_its_tool_again_as_a_higher_attempt() {
    let node = TestNode::new(HOLD_AGENT).await;
    node.send("x", "go").await.unwrap();
    node.wait_for_holds(1).await;
    assert!(node.conversations.kill(&Scoped::parse("x").unwrap()).await.unwrap());
    node.wait_for_holds(2).await;
    node.tools.release.add_permits(1);
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let results = results(&node.journal("x").await, "c");
    assert_eq!(results, [json!({"ok": true, "result": {"attempt": 2, "principal": "ada"}})]);
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_must_not_run_twice_is_interrupted_by_a_kill() {
    let node = TestNode::new(HOLD_ONCE_AGENT).await;
    node.send("x", "go").await.unwrap();
    node.wait_for_holds(1).await;
    node.kill("x").await;
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let interrupted =
        json!({"ok": false, "error": "tool call interrupted", "error_type": "INTERRUPTED"});
    assert_eq!(results(&node.journal("x").await, "c"), [interrupted]);
    assert_eq!(node.tools.runs.load(Ordering::SeqCst), 1);
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn an_approved_call_killed_while_it_runs_is_not_asked_for_again() {
    let node = TestNode::new(APPROVAL_AGENT).await;
    node.send("x", "go").await.unwrap();
    node.wait_for_event("x", |data| matches!(data, EventData::Suspension(_))).await;
    node.approve("x", "c").await.unwrap();
    node.wait_for_holds(1).await;
    node.kill("x").await;
    node.wait_for_holds(2).await;
    node.tools.release.add_permits(1);
    node.turn_end("x", 1).await;
    let events = node.journal("x").await;
    let suspensions =
        events.iter().filter(|event| matches!(event.data, EventData::Suspension(_))).count();
    assert_eq!(suspensions, 1);
    let ran_as = results(&events, "c")[0]["result"]["principal"].clone();
    assert_eq!(ran_as, "bob", "an approved call runs as its approver");
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_conversation_leaves_memory_and_an_answer_brings_it_back() {
    let node = TestNode::new(APPROVAL_AGENT).await;
    node.send("x", "go").await.unwrap();
    node.wait_until_passivated("x").await;
    assert!(node.store.current_claim(&Scoped::parse("x").unwrap()).await.unwrap().is_none());
    let snapshot =
        node.conversations.snapshot(&Scoped::parse("x").unwrap()).await.unwrap().unwrap();
    assert!(snapshot.holder.is_none() && snapshot.pending.len() == 1);
    assert!(node.conversations.table().is_empty(), "a snapshot started an actor");
    node.tools.release.add_permits(1);
    node.approve("x", "c").await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_passes_without_an_actor_and_the_turn_goes_on() {
    let node = TestNode::new(APPROVAL_AGENT).await;
    node.send("x", "go").await.unwrap();
    node.wait_until_passivated("x").await;
    let suspended = node.wait_for_event("x", |data| matches!(data, EventData::Suspension(_))).await;
    let result = node.wait_for_event("x", |data| matches!(data, EventData::ToolResult(_))).await;
    let late = result.at.duration_since(suspended.at).as_millis() - 600_000;
    assert!((0..=200).contains(&late), "woken {late} ms after its time");
    let expired = json!({"ok": false, "error": "timed out: no response", "error_type": "EXPIRED"});
    assert_eq!(results(&node.journal("x").await, "c"), [expired]);
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let late = node.approve("x", "c").await;
    assert!(matches!(late, Err(RequestError::Rejected(_))), "{late:?}");
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_kill_gives_a_call_no_more_time() {
    let node = TestNode::new(APPROVAL_AGENT).await;
    node.send("x", "go").await.unwrap();
    let suspended = node.wait_for_event("x", |data| matches!(data, EventData::Suspension(_))).await;
    tokio::time::advance(Duration::from_secs(300)).await;
    node.conversations.ensure_started(&Scoped::parse("x").unwrap()).await.unwrap();
    node.kill("x").await;
    let result = node.wait_for_event("x", |data| matches!(data, EventData::ToolResult(_))).await;
    let waited = result.at.duration_since(suspended.at).as_secs();
    assert!((600..=601).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_keeps_crashing_is_quarantined_and_harms_no_other() {
    let node = TestNode::new(HOLD_AGENT).await;
    node.send("bad", "panic").await.unwrap();
    node.tools.release.add_permits(1);
    let quarantine = async {
        loop {
            if let Some(quarantined) = node.quarantine("bad").await {
                return quarantined;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let quarantined = tokio::time::timeout(Duration::from_secs(60), quarantine).await.unwrap();
    assert!(quarantined.reason.contains("panicked"), "{}", quarantined.reason);
    let crashes = node.model.call_count.load(Ordering::SeqCst);
    assert_eq!(crashes, 5, "the budget");
    let refused = node.send("bad", "more").await;
    assert!(matches!(refused, Err(RequestError::Quarantined(_))), "{refused:?}");
    node.send("good", "go").await.unwrap();
    assert_eq!(node.turn_end("good", 1).await, (TurnOutcome::Completed, None));

    node.model.panic_disabled.store(true, Ordering::SeqCst);
    node.tools.release.add_permits(1);
    node.kill("bad").await;
    assert_eq!(node.turn_end("bad", 1).await, (TurnOutcome::Completed, None));
    node.check("bad").await;
}

#[tokio::test(start_paused = true)]
async fn unfinished_work_is_resumed_by_the_next_process() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let first = TestNode::with_store(store.clone(), HOLD_AGENT).await;
    first.send("x", "go").await.unwrap();
    first.wait_for_holds(1).await;
    drop(first);
    let second = TestNode::with_store(store, HOLD_AGENT).await;
    second.wait_for_holds(1).await;
    second.tools.release.add_permits(1);
    assert_eq!(second.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    second.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn an_append_whose_answer_was_lost_is_replayed_not_repeated() {
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_store(store.clone(), HOLD_AGENT).await;
    node.tools.release.add_permits(10);
    store.lose_replies.store(true, Ordering::SeqCst);
    let lost = node.send("x", "go").await;
    assert!(matches!(lost, Err(RequestError::Store(_))), "{lost:?}");
    store.lose_replies.store(false, Ordering::SeqCst);
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_away_costs_no_crash_and_the_turn_goes_on() {
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_store(store.clone(), HOLD_AGENT).await;
    node.send("x", "go").await.unwrap();
    node.wait_for_holds(1).await;
    store.unreachable.store(true, Ordering::SeqCst);
    node.tools.release.add_permits(10);
    let refused = node.send("y", "go").await;
    assert!(matches!(refused, Err(RequestError::Store(_))), "{refused:?}");
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(node.quarantine("x").await.is_none());
    store.unreachable.store(false, Ordering::SeqCst);
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_answered_although_its_id_cannot_be_claimed_again() {
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_store(store.clone(), HOLD_ONCE_AGENT).await;
    node.send("x", "go").await.unwrap();
    store.refuse_new.store(true, Ordering::SeqCst);
    let deleted = node.deliver("x", abide_actors::request::Request::Delete).await;
    assert_eq!(deleted, Ok(abide_actors::request::Reply::Deleted));
    store.refuse_new.store(false, Ordering::SeqCst);
    // The actor has no claim any more, and ends: a request that still reaches it is fenced, and the
    // next one is served.
    match node.send("x", "again").await {
        Err(RequestError::Store(StoreError::Fenced)) => {
            node.send("x", "again").await.unwrap();
        }
        served => {
            served.unwrap();
        }
    }
    node.tools.release.add_permits(1);
    node.turn_end("x", 1).await;
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_a_read_costs_no_running_tool() {
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_store(store.clone(), HOLD_ONCE_AGENT).await;
    node.send("x", "go").await.unwrap();
    node.wait_for_holds(1).await;
    store.unreachable.store(true, Ordering::SeqCst);
    let refused = node.send("x", "more").await;
    assert!(matches!(refused, Err(RequestError::Store(_))), "{refused:?}");
    store.unreachable.store(false, Ordering::SeqCst);
    node.tools.release.add_permits(1);
    node.turn_end("x", 1).await;
    assert_eq!(results(&node.journal("x").await, "c")[0]["ok"], true);
}

#[tokio::test(start_paused = true)]
async fn a_draining_node_runs_what_it_handed_over_and_leaves_the_rest() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let node = TestNode::with_store(store.clone(), HOLD_ONCE_AGENT).await;
    node.model.slow.store(true, Ordering::SeqCst);
    node.send("x", "go").await.unwrap();
    let tool = async {
        node.wait_for_holds(1).await;
        node.tools.release.add_permits(1);
    };
    let (drained, ()) = tokio::join!(node.runtime.drain(Duration::from_secs(600)), tool);
    assert!(drained, "a run was cut off");
    let before = node.journal("x").await.len();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(node.journal("x").await.len(), before, "the drained conversation wrote more events");
    assert_eq!(results(&node.journal("x").await, "c")[0]["ok"], true);
    drop(node);
    let next = TestNode::with_store(store, HOLD_ONCE_AGENT).await;
    assert_eq!(next.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    next.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_request_to_an_actor_that_is_ending_goes_to_its_successor() {
    let node = TestNode::new(APPROVAL_AGENT).await;
    node.send("x", "go").await.unwrap();
    node.poll_for_event("x", |data| matches!(data, EventData::Suspension(_))).await;
    let first = node.conversations.ensure_started(&Scoped::parse("x").unwrap()).await.unwrap();
    let Location::Here(first) = first else { panic!("the conversation is not live on this node") };
    // The idle timer fires, and the answer follows it in the mailbox.
    for handled in 0..10 {
        first.actor.cast(ConversationMsg::IdleTimeout(handled)).unwrap();
    }
    node.approve("x", "c").await.unwrap();
    assert!(
        first.actor.get_status() >= ractor::ActorStatus::Draining,
        "the first actor is not leaving"
    );
    node.tools.release.add_permits(1);
    node.turn_end("x", 1).await;
    let results = results(&node.journal("x").await, "c");
    assert_eq!(results[0]["result"]["attempt"], 1, "the call ran again: {results:?}");
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_quarantined_conversation_can_be_deleted() {
    let node = TestNode::new(HOLD_AGENT).await;
    node.send("bad", "panic").await.unwrap();
    let quarantine = async {
        while node.quarantine("bad").await.is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), quarantine).await.unwrap();
    node.deliver("bad", abide_actors::request::Request::Delete).await.unwrap();
    assert!(node.journal("bad").await.is_empty());
    assert!(node.quarantine("bad").await.is_none());
    node.tools.release.add_permits(1);
    node.send("bad", "go").await.unwrap();
    assert_eq!(node.turn_end("bad", 1).await, (TurnOutcome::Completed, None));
}
