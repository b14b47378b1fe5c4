//! The model call that follows a tool's result begins while the result is being committed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::live::Signal;
use abide_conversation::event::{Event, EventData, TurnOutcome};
use abide_registry::live::{StreamItem, Subscription};

use crate::flaky_store::{Checkpoint, FlakyStore};
use crate::revival::HOLD_AGENT;
use crate::test_node::{TestNode, connect_client, results};

const HOOKED_AGENT: &str = r#"
name: a
model: {provider: scripted, script: [{calls: [{id: c, name: hold, args: {}}]}, {text: "Well."}]}
tools: [{name: hold, run: {native: hold}, run_timeout: 1h}]
hooks: [{on: pre, name: known, native: note}]
"#;

/// A conversation whose tool has ended, and whose result is not in the store yet.
struct HeldCommit {
    node: TestNode,
    page: Subscription,
    commit: Arc<Checkpoint>,
}

impl HeldCommit {
    async fn new(agent: &str) -> Self {
        Self::after(agent, "go").await
    }

    async fn after(agent: &str, message: &str) -> Self {
        let store = Arc::new(FlakyStore::default());
        let node = TestNode::with_store(store.clone(), agent).await;
        node.send("x", message).await.unwrap();
        node.wait_for_holds(1).await;
        let page = connect_client(&node, "x");
        let commit = Checkpoint::new(0, true);
        *store.checkpoint.lock().unwrap() = Some(commit.clone());
        node.tools.release.add_permits(1);
        commit.wait_until_reached().await;
        // Whatever can happen meanwhile happens.
        tokio::time::sleep(Duration::from_millis(100)).await;
        Self { node, page, commit }
    }

    fn model_calls(&self) -> u32 {
        self.node.model.call_count.load(Ordering::SeqCst)
    }

    /// Lets the commit go on. Returns what the page was shown, from the result on.
    async fn resume(&mut self) -> Vec<&'static str> {
        assert_eq!(self.page.try_next().map(|_| ()), None, "the page was shown something");
        assert!(results(&self.node.journal("x").await, "c").is_empty());
        self.commit.resume.add_permits(1);
        assert_eq!(self.node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
        self.node.check("x").await;
        std::iter::from_fn(|| self.page.try_next()).filter_map(|item| kind(&item)).collect()
    }
}

fn kind(item: &StreamItem) -> Option<&'static str> {
    let StreamItem::Signal(signal) = item else { return None };
    let kind = |event: &Event| match event.data {
        EventData::ToolResult(_) => Some("result"),
        EventData::AssistantMsg(_) => Some("message"),
        _ => None,
    };
    match &signal.signal {
        Signal::Committed(events) => events.iter().find_map(kind),
        Signal::Text(_) => Some("text"),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn the_model_is_called_while_the_result_is_committed_and_shows_nothing_before() {
    let mut held = HeldCommit::new(HOLD_AGENT).await;
    assert_eq!(held.model_calls(), 2);
    assert_eq!(held.node.model.last_texts.lock().unwrap().len(), 3, "the call lacks the result");
    assert_eq!(held.resume().await, ["result", "text", "message"]);
    assert_eq!(held.model_calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_ahead_of_a_commit_that_fails_shows_nothing_and_is_made_again() {
    let mut held = HeldCommit::new(HOLD_AGENT).await;
    assert_eq!(held.model_calls(), 2);
    held.commit.refuse.store(true, Ordering::SeqCst);
    // The tool runs again, as its result is lost.
    held.node.tools.release.add_permits(1);
    assert_eq!(held.resume().await, ["result", "text", "message"]);
    assert_eq!(held.model_calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_must_read_the_journal_waits_for_the_commit() {
    // Longer than what an actor holds of the journal.
    let mut held = HeldCommit::after(HOLD_AGENT, &"go ".repeat(30_000)).await;
    assert_eq!(held.model_calls(), 1);
    assert_eq!(held.resume().await, ["result", "text", "message"]);
    assert_eq!(held.model_calls(), 2);
    assert_eq!(held.node.model.last_texts.lock().unwrap().len(), 3, "the call lacks the result");
}

#[tokio::test(start_paused = true)]
async fn hooks_learn_of_a_result_only_once_it_is_committed() {
    let mut held = HeldCommit::new(HOOKED_AGENT).await;
    let asked = |held: &HeldCommit| held.node.tools.hook_events.lock().unwrap().len();
    assert_eq!((asked(&held), held.model_calls()), (1, 1));
    assert_eq!(held.resume().await, ["result", "text", "message"]);
    assert_eq!((asked(&held), held.model_calls()), (2, 2));
}
