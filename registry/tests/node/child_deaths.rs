//! Whoever dies while one conversation asks another, and whenever: one child, one answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::request::{IdempotencyKey, Request};
use abide_conversation::ConversationId;
use abide_conversation::command::IfBusy;
use abide_conversation::event::{Event, EventData, TurnOutcome};
use abide_registry::placement::Policy;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::flaky_store::{Checkpoint, FlakyStore};
use crate::sub_agents::{BOSS, CAREFUL_KID, all_conversations, check_all_settled, children, inbox};
use crate::test_cluster::{DeathMode, TestCluster};
use crate::test_node::{TestNode, results, user_message};

/// What the person does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Story {
    /// Approves what the child waits for.
    Answers,
    /// Cancels the root while its child waits.
    CancelsLate,
    /// Cancels the root as soon as it has asked.
    CancelsAtOnce,
}

const STORIES: [Story; 3] = [Story::Answers, Story::CancelsLate, Story::CancelsAtOnce];
/// Paused time runs ahead when nothing else does: no test really waits for this.
const DEADLINE: Duration = Duration::from_secs(900);

/// Who dies when the story is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    /// Whoever writes: it is told that the store was away.
    Writer,
    Root,
    Child,
}

fn go() -> (Request, Vec<IdempotencyKey>) {
    let key = IdempotencyKey {
        key: "message:m".to_owned(),
        fingerprint: "go".to_owned(),
        field: "message_id".into(),
    };
    (user_message("go", IfBusy::Reject), vec![key])
}

async fn kill(node: &TestNode, id: &str) {
    // It may have no actor, or one that ends.
    let _ = node.conversations.kill(&ConversationId::new(id)).await;
}

async fn has(node: &TestNode, id: &str, is: impl Fn(&EventData) -> bool) -> bool {
    node.journal(id).await.iter().any(|event| is(&event.data))
}

impl Story {
    /// Does the person's part until the root's turn has ended, however often that takes.
    async fn drive(self, node: &TestNode, root: &str) {
        loop {
            let (request, repeats) = go();
            if node.deliver_keyed(root, request, repeats).await.is_ok() {
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
        while !has(node, root, |data| matches!(data, EventData::TurnEnded(_))).await {
            let waiting = inbox(node).await;
            let asked = has(node, root, |data| matches!(data, EventData::ToolCall(_))).await;
            // What fails is tried again in the next round.
            let _ = match self {
                Story::Answers => match waiting.first() {
                    Some(open) => {
                        let (id, call) = (&open.conversation_id, &open.pending.call_id);
                        node.approve(id.as_str(), call.as_str()).await.map(|_| ())
                    }
                    None => Ok(()),
                },
                Story::CancelsLate if waiting.is_empty() => Ok(()),
                Story::CancelsAtOnce if !asked => Ok(()),
                Story::CancelsLate | Story::CancelsAtOnce => {
                    node.deliver(root, Request::Cancel).await.map(|_| ())
                }
            };
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Checks what must be so whoever died.
    async fn check(self, node: &TestNode, root: &str) {
        check_all_settled(node).await;
        let events = node.journal(root).await;
        let (ending, result) = match self {
            Story::Answers => (TurnOutcome::Completed, json!({"ok": true, "result": "kid got 7"})),
            Story::CancelsLate | Story::CancelsAtOnce => (TurnOutcome::Cancelled, cancelled()),
        };
        assert_eq!(node.turn_end(root, 1).await, (ending, None));
        assert_eq!(results(&events, "c"), [result]);
        let (known, all) = (children(&events), all_conversations(node).await);
        assert_eq!(known.len(), 1);
        let strangers = all.iter().filter(|id| *id != root && **id != known[0]).count();
        assert_eq!(strangers, 0, "{all:?}");
        assert!(count(&events, |data| matches!(data, EventData::ChildStarted(_))) <= 1);
        let child = node.journal(&known[0]).await;
        assert!(count(&child, |data| matches!(data, EventData::UserMsg(_))) <= 1);
        if self == Story::Answers {
            assert_eq!(count(&child, |data| matches!(data, EventData::Told(_))), 1);
            assert_eq!(results(&child, "k").len(), 1);
        } else {
            assert!(node.state(&known[0]).await.abandoned);
        }
    }
}

fn cancelled() -> Value {
    json!({"ok": false, "error": "[cancelled]", "error_type": "CANCELLED"})
}

fn count(events: &[Event], is: impl Fn(&EventData) -> bool) -> usize {
    events.iter().filter(|event| is(&event.data)).count()
}

/// Tells a story on one node; somebody dies at a checkpoint, if it is reached.
async fn alone(story: Story, stop: Arc<Checkpoint>, victim: Victim) {
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_store(store.clone(), BOSS).await;
    node.define(CAREFUL_KID).await;
    *store.checkpoint.lock().unwrap() = Some(stop.clone());
    let kill = async {
        stop.wait_until_reached().await;
        let kid = children(&node.journal("x").await).pop();
        match (victim, kid) {
            (Victim::Writer, _) => stop.refuse.store(true, Ordering::SeqCst),
            (Victim::Root, _) => kill(&node, "x").await,
            (Victim::Child, Some(kid)) => kill(&node, &kid).await,
            (Victim::Child, None) => {}
        }
        stop.resume.add_permits(1);
    };
    let told = async {
        tokio::join!(story.drive(&node, "x"), async {
            // A story that is over reaches nothing any more.
            let _ = tokio::time::timeout(DEADLINE / 2, kill).await;
        });
        story.check(&node, "x").await;
    };
    tokio::time::timeout(DEADLINE, told).await.expect("the story never ended");
}

/// Runs each to its end in a world of its own; says which it was that failed.
#[allow(clippy::print_stderr)]
fn each<F: Future>(what: &str, tell: impl FnOnce() -> F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let told = std::panic::AssertUnwindSafe(|| runtime.block_on(tell()));
    std::panic::catch_unwind(told).unwrap_or_else(|panic| {
        eprintln!("it was {what}");
        std::panic::resume_unwind(panic)
    })
}

#[test]
fn an_actor_that_dies_at_any_write_leaves_one_child_and_one_answer() {
    for story in STORIES {
        let writes = each("without a death", || async {
            let stop = Checkpoint::new(usize::MAX, true);
            alone(story, stop.clone(), Victim::Writer).await;
            stop.write_count()
        });
        assert!(writes >= 6, "{writes}");
        for (at, before) in (0..writes).flat_map(|at| [(at, true), (at, false)]) {
            for victim in [Victim::Writer, Victim::Root, Victim::Child] {
                let what = format!("{story:?}, {victim:?} at {at}, before: {before}");
                each(&what, || async {
                    alone(story, Checkpoint::new(at, before), victim).await;
                });
            }
        }
    }
}

/// Tells a story in a town; the node of the root, or of its child, dies at a checkpoint, if it is
/// reached. Says whether the two lived on different nodes.
async fn in_cluster(
    story: Story,
    root: &str,
    stop: &Arc<Checkpoint>,
    victim: Victim,
    how: DeathMode,
) -> bool {
    let mut cluster = TestCluster::with_policy(3, BOSS, Policy::Rendezvous).await;
    cluster.node(0).define(CAREFUL_KID).await;
    for node in 0..3 {
        *cluster.store(node).checkpoint.lock().unwrap() = Some(stop.clone());
    }
    let told = async {
        let stopped = tokio::select! {
            () = story.drive(cluster.node(0), root) => false,
            _ = stop.wait_until_reached() => true,
        };
        let kid = children(&cluster.node(0).journal(root).await).pop();
        let of_kid = kid.map(|kid| cluster.live_on(&kid)).unwrap_or_default();
        let of_root = cluster.live_on(root);
        let lives = if victim == Victim::Child { &of_kid } else { &of_root };
        if let Some(number) = lives.first().filter(|_| stopped) {
            cluster.kill(*number, how);
        }
        stop.resume.add_permits(1);
        let client = cluster.running()[0];
        story.drive(cluster.node(client), root).await;
        story.check(cluster.node(client), root).await;
        cluster.check_writes();
        of_root != of_kid
    };
    tokio::time::timeout(DEADLINE, told).await.expect("the story never ended")
}

#[test]
fn a_node_that_dies_at_any_write_leaves_one_child_and_one_answer() {
    let free = |root: &'static str| {
        let stop = Checkpoint::new(usize::MAX, true);
        let (story, how) = (Story::Answers, DeathMode::ConnectionRefused);
        each("without a death", || in_cluster(story, root, &stop, Victim::Root, how))
            .then(|| (root, stop.write_count()))
    };
    let apart = ["x0", "x1", "x2", "x3", "x4", "x5"].into_iter().find_map(free);
    let (root, writes) = apart.expect("no root lives apart from its child");
    for story in STORIES {
        for (at, before) in (0..writes).flat_map(|at| [(at, true), (at, false)]) {
            for victim in [Victim::Root, Victim::Child] {
                let how =
                    if at % 2 == 0 { DeathMode::ConnectionRefused } else { DeathMode::HalfOpen };
                let what = format!("{story:?}, {victim:?} at {at}, before: {before}, {how:?}");
                let stop = Checkpoint::new(at, before);
                each(&what, || in_cluster(story, root, &stop, victim, how));
            }
        }
    }
}
