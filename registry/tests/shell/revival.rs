//! Killed, passivated, crashed, quarantined: it goes on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::conversation::ConversationMsg;
use abide_actors::request::RequestError;
use abide_conversation::ConversationId;
use abide_conversation::event::{EventData, TurnOutcome};
use abide_registry::router::Location;
use abide_registry::store::Store;
use abide_registry::store::memory::Memory;
use serde_json::json;

use crate::flaky::Flaky;
use crate::rig::{Rig, results};

pub const HOLDS: &str = r#"
name: a
model: {provider: scripted, script: [{calls: [{id: c, name: hold, args: {}}]}, {text: "Well."}]}
tools: [{name: hold, run: {native: hold}, run_timeout: 1h}]
"#;
pub const HOLDS_ONCE: &str = r#"
name: a
model: {provider: scripted, script: [{calls: [{id: c, name: hold, args: {}}]}, {text: "Well."}]}
tools: [{name: hold, run: {native: hold}, on_interrupt: fail, run_timeout: 1h}]
"#;
pub const ASKS: &str = r#"
name: a
suspension_timeout: 10m
model: {provider: scripted, script: [{calls: [{id: c, name: hold, args: {}}]}, {text: "Well."}]}
tools: [{name: hold, run: {native: hold}, approval: requires_approval, run_timeout: 1h}]
"#;

#[tokio::test(start_paused = true)]
async fn a_killed_actor_runs_its_tool_again_as_a_higher_attempt() {
    let rig = Rig::new(HOLDS).await;
    rig.send("x", "go").await.unwrap();
    rig.held(1).await;
    assert!(rig.conversations.kill(&ConversationId::new("x")).await.unwrap());
    rig.held(2).await;
    rig.tools.release.add_permits(1);
    assert_eq!(rig.ended("x", 1).await, (TurnOutcome::Completed, None));
    let results = results(&rig.journal("x").await, "c");
    assert_eq!(results, [json!({"ok": true, "result": {"attempt": 2, "principal": "ada"}})]);
    rig.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_must_not_run_twice_is_interrupted_by_a_kill() {
    let rig = Rig::new(HOLDS_ONCE).await;
    rig.send("x", "go").await.unwrap();
    rig.held(1).await;
    rig.kill("x").await;
    assert_eq!(rig.ended("x", 1).await, (TurnOutcome::Completed, None));
    let interrupted =
        json!({"ok": false, "error": "tool call interrupted", "error_type": "INTERRUPTED"});
    assert_eq!(results(&rig.journal("x").await, "c"), [interrupted]);
    assert_eq!(rig.tools.runs.load(Ordering::SeqCst), 1);
    rig.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn an_approved_call_killed_while_it_runs_is_not_asked_for_again() {
    let rig = Rig::new(ASKS).await;
    rig.send("x", "go").await.unwrap();
    rig.until("x", |data| matches!(data, EventData::Suspension(_))).await;
    rig.approve("x", "c").await.unwrap();
    rig.held(1).await;
    rig.kill("x").await;
    rig.held(2).await;
    rig.tools.release.add_permits(1);
    rig.ended("x", 1).await;
    let events = rig.journal("x").await;
    let asked =
        events.iter().filter(|event| matches!(event.data, EventData::Suspension(_))).count();
    assert_eq!(asked, 1);
    let ran_as = results(&events, "c")[0]["result"]["principal"].clone();
    assert_eq!(ran_as, "bob", "an approved call runs as its approver");
    rig.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_conversation_leaves_memory_and_an_answer_brings_it_back() {
    let rig = Rig::new(ASKS).await;
    rig.send("x", "go").await.unwrap();
    rig.passivated("x").await;
    assert!(rig.store.holding(&ConversationId::new("x")).await.unwrap().is_none());
    let snapshot = rig.conversations.snapshot(&ConversationId::new("x")).await.unwrap().unwrap();
    assert!(snapshot.holder.is_none() && snapshot.pending.len() == 1);
    assert!(rig.conversations.table().is_empty(), "a look starts no actor");
    rig.tools.release.add_permits(1);
    rig.approve("x", "c").await.unwrap();
    assert_eq!(rig.ended("x", 1).await, (TurnOutcome::Completed, None));
    rig.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_passes_without_an_actor_and_the_turn_goes_on() {
    let rig = Rig::new(ASKS).await;
    rig.send("x", "go").await.unwrap();
    rig.passivated("x").await;
    let suspended = rig.until("x", |data| matches!(data, EventData::Suspension(_))).await;
    let result = rig.until("x", |data| matches!(data, EventData::ToolResult(_))).await;
    let late = result.at.duration_since(suspended.at).as_millis() - 600_000;
    assert!((0..=200).contains(&late), "woken {late} ms after its time");
    let expired = json!({"ok": false, "error": "timed out: no response", "error_type": "EXPIRED"});
    assert_eq!(results(&rig.journal("x").await, "c"), [expired]);
    assert_eq!(rig.ended("x", 1).await, (TurnOutcome::Completed, None));
    let late = rig.approve("x", "c").await;
    assert!(matches!(late, Err(RequestError::Rejected(_))), "{late:?}");
    rig.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_kill_gives_a_call_no_more_time() {
    let rig = Rig::new(ASKS).await;
    rig.send("x", "go").await.unwrap();
    let suspended = rig.until("x", |data| matches!(data, EventData::Suspension(_))).await;
    tokio::time::advance(Duration::from_secs(300)).await;
    rig.conversations.ensure_started(&ConversationId::new("x")).await.unwrap();
    rig.kill("x").await;
    let result = rig.until("x", |data| matches!(data, EventData::ToolResult(_))).await;
    let waited = result.at.duration_since(suspended.at).as_secs();
    assert!((600..=601).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_keeps_crashing_is_quarantined_and_harms_no_other() {
    let rig = Rig::new(HOLDS).await;
    rig.send("bad", "panic").await.unwrap();
    rig.tools.release.add_permits(1);
    let look = async {
        loop {
            if let Some(quarantined) = rig.quarantined("bad").await {
                return quarantined;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let quarantined = tokio::time::timeout(Duration::from_secs(60), look).await.unwrap();
    assert!(quarantined.reason.contains("panicked"), "{}", quarantined.reason);
    let crashes = rig.model.asked.load(Ordering::SeqCst);
    assert_eq!(crashes, 5, "the budget");
    let refused = rig.send("bad", "more").await;
    assert!(matches!(refused, Err(RequestError::Quarantined(_))), "{refused:?}");
    rig.send("good", "go").await.unwrap();
    assert_eq!(rig.ended("good", 1).await, (TurnOutcome::Completed, None));

    rig.model.calm.store(true, Ordering::SeqCst);
    rig.tools.release.add_permits(1);
    rig.kill("bad").await;
    assert_eq!(rig.ended("bad", 1).await, (TurnOutcome::Completed, None));
    rig.check("bad").await;
}

#[tokio::test(start_paused = true)]
async fn what_wanted_to_run_is_taken_up_by_the_next_process() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let first = Rig::over(store.clone(), HOLDS).await;
    first.send("x", "go").await.unwrap();
    first.held(1).await;
    drop(first);
    let second = Rig::over(store, HOLDS).await;
    second.held(1).await;
    second.tools.release.add_permits(1);
    assert_eq!(second.ended("x", 1).await, (TurnOutcome::Completed, None));
    second.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn an_append_whose_answer_was_lost_is_replayed_not_repeated() {
    let store = Arc::new(Flaky::default());
    let rig = Rig::over(store.clone(), HOLDS).await;
    rig.tools.release.add_permits(10);
    store.lose_answers.store(true, Ordering::SeqCst);
    let lost = rig.send("x", "go").await;
    assert!(matches!(lost, Err(RequestError::Refused(_))), "{lost:?}");
    store.lose_answers.store(false, Ordering::SeqCst);
    assert_eq!(rig.ended("x", 1).await, (TurnOutcome::Completed, None));
    rig.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_away_costs_no_crash_and_the_turn_goes_on() {
    let store = Arc::new(Flaky::default());
    let rig = Rig::over(store.clone(), HOLDS).await;
    rig.send("x", "go").await.unwrap();
    rig.held(1).await;
    store.away.store(true, Ordering::SeqCst);
    rig.tools.release.add_permits(10);
    let away = rig.send("y", "go").await;
    assert!(matches!(away, Err(RequestError::Refused(_))), "{away:?}");
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(rig.quarantined("x").await.is_none());
    store.away.store(false, Ordering::SeqCst);
    assert_eq!(rig.ended("x", 1).await, (TurnOutcome::Completed, None));
    rig.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_a_read_costs_no_running_tool() {
    let store = Arc::new(Flaky::default());
    let rig = Rig::over(store.clone(), HOLDS_ONCE).await;
    rig.send("x", "go").await.unwrap();
    rig.held(1).await;
    store.away.store(true, Ordering::SeqCst);
    let away = rig.send("x", "more").await;
    assert!(matches!(away, Err(RequestError::Refused(_))), "{away:?}");
    store.away.store(false, Ordering::SeqCst);
    rig.tools.release.add_permits(1);
    rig.ended("x", 1).await;
    assert_eq!(results(&rig.journal("x").await, "c")[0]["ok"], true);
}

#[tokio::test(start_paused = true)]
async fn a_draining_node_runs_what_it_handed_over_and_leaves_the_rest() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let rig = Rig::over(store.clone(), HOLDS_ONCE).await;
    rig.model.slow.store(true, Ordering::SeqCst);
    rig.send("x", "go").await.unwrap();
    let tool = async {
        rig.held(1).await;
        rig.tools.release.add_permits(1);
    };
    let (drained, ()) = tokio::join!(rig.life.drain(Duration::from_secs(600)), tool);
    assert!(drained, "nothing had to be cut off");
    let before = rig.journal("x").await.len();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(rig.journal("x").await.len(), before, "nothing is begun, and nothing repeated");
    assert_eq!(results(&rig.journal("x").await, "c")[0]["ok"], true);
    drop(rig);
    let next = Rig::over(store, HOLDS_ONCE).await;
    assert_eq!(next.ended("x", 1).await, (TurnOutcome::Completed, None));
    next.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_an_actor_leaves_goes_to_the_next_one() {
    let rig = Rig::new(ASKS).await;
    rig.send("x", "go").await.unwrap();
    rig.until_unseen("x", |data| matches!(data, EventData::Suspension(_))).await;
    let first = rig.conversations.ensure_started(&ConversationId::new("x")).await.unwrap();
    let Location::Here(first) = first else { panic!("it lives here") };
    // Its timer rings, and the answer is in the mailbox right behind.
    for handled in 0..10 {
        first.actor.cast(ConversationMsg::IdleTimeout(handled)).unwrap();
    }
    rig.approve("x", "c").await.unwrap();
    assert!(first.actor.get_status() >= ractor::ActorStatus::Draining, "the first one leaves");
    rig.tools.release.add_permits(1);
    rig.ended("x", 1).await;
    let results = results(&rig.journal("x").await, "c");
    assert_eq!(results[0]["result"]["attempt"], 1, "it ran once: {results:?}");
    rig.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_quarantined_conversation_can_be_deleted() {
    let rig = Rig::new(HOLDS).await;
    rig.send("bad", "panic").await.unwrap();
    let look = async {
        while rig.quarantined("bad").await.is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), look).await.unwrap();
    rig.ask("bad", abide_actors::request::Request::Delete).await.unwrap();
    assert!(rig.journal("bad").await.is_empty());
    assert!(rig.quarantined("bad").await.is_none());
    rig.tools.release.add_permits(1);
    rig.send("bad", "go").await.unwrap();
    assert_eq!(rig.ended("bad", 1).await, (TurnOutcome::Completed, None));
}
