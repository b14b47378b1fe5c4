//! Deaths at every write while one conversation asks another: there is always one child and one
//! answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::request::{IdempotencyKey, Request};
use abide_conversation::Scoped;
use abide_conversation::command::IfBusy;
use abide_conversation::event::{Event, EventData, TurnOutcome};
use abide_registry::placement::Policy;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::flaky_store::{Checkpoint, FlakyStore};
use crate::sub_agents::{BOSS, CAREFUL_KID, all_conversations, check_all_settled, children, inbox};
use crate::test_cluster::{DeathMode, TestCluster};
use crate::test_node::{TestNode, results, user_message};

/// What the person does while the child waits for an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    /// Approves the child's call.
    Approve,
    /// Cancels the root while its child waits.
    CancelWhileChildWaits,
    /// Cancels the root as soon as it has asked its child.
    CancelAtOnce,
}

const SCENARIOS: [Scenario; 3] =
    [Scenario::Approve, Scenario::CancelWhileChildWaits, Scenario::CancelAtOnce];
/// Generous, since paused time advances as soon as every task waits: no test waits for it in real
/// time.
const DEADLINE: Duration = Duration::from_secs(900);

/// Who dies at the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    /// The actor that writes: its write fails as if the store were unreachable.
    Writer,
    Root,
    Child,
}

fn first_request() -> (Request, Vec<IdempotencyKey>) {
    let key = IdempotencyKey {
        key: "message:m".to_owned(),
        fingerprint: "go".to_owned(),
        field: "message_id".into(),
    };
    (user_message("go", IfBusy::Reject), vec![key])
}

async fn kill(node: &TestNode, id: &str) {
    // The conversation may have no actor, or one that is ending.
    let _ = node.conversations.kill(&Scoped::parse(id).unwrap()).await;
}

async fn has(node: &TestNode, id: &str, matches: impl Fn(&EventData) -> bool) -> bool {
    node.journal(id).await.iter().any(|event| matches(&event.data))
}

impl Scenario {
    /// Acts as the person until the root's turn has ended, and repeats every request that fails.
    async fn drive(self, node: &TestNode, root: &str) {
        loop {
            let (request, repeats) = first_request();
            if node.deliver_keyed(root, request, repeats).await.is_ok() {
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
        while !has(node, root, |data| matches!(data, EventData::TurnEnded(_))).await {
            let waiting = inbox(node).await;
            let has_call = has(node, root, |data| matches!(data, EventData::ToolCall(_))).await;
            // A failed request is tried again in the next round.
            let _ = match self {
                Scenario::Approve => match waiting.first() {
                    Some(open) => {
                        let (id, call) = (&open.conversation_id, &open.pending.call_id);
                        node.approve(id.as_str(), call.as_str()).await.map(|_| ())
                    }
                    None => Ok(()),
                },
                Scenario::CancelWhileChildWaits if waiting.is_empty() => Ok(()),
                Scenario::CancelAtOnce if !has_call => Ok(()),
                Scenario::CancelWhileChildWaits | Scenario::CancelAtOnce => {
                    node.deliver(root, Request::Cancel).await.map(|_| ())
                }
            };
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Checks what must hold whoever died.
    async fn check(self, node: &TestNode, root: &str) {
        check_all_settled(node).await;
        let events = node.journal(root).await;
        let (ending, result) = match self {
            Scenario::Approve => {
                (TurnOutcome::Completed, json!({"ok": true, "result": "kid got 7"}))
            }
            Scenario::CancelWhileChildWaits | Scenario::CancelAtOnce => {
                (TurnOutcome::Cancelled, cancelled())
            }
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
        if self == Scenario::Approve {
            assert_eq!(count(&child, |data| matches!(data, EventData::ParentNotified(_))), 1);
            assert_eq!(results(&child, "k").len(), 1);
        } else {
            let child = node.state(&known[0]).await;
            assert!(!child.exists() || child.abandoned);
        }
    }
}

fn cancelled() -> Value {
    json!({"ok": false, "error": "[cancelled]", "error_type": "CANCELLED"})
}

fn count(events: &[Event], matches: impl Fn(&EventData) -> bool) -> usize {
    events.iter().filter(|event| matches(&event.data)).count()
}

/// Runs a scenario on one node; the victim dies at the checkpoint, if that is reached.
async fn on_one_node(scenario: Scenario, checkpoint: Arc<Checkpoint>, victim: Victim) {
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_store(store.clone(), BOSS).await;
    node.define(CAREFUL_KID).await;
    *store.checkpoint.lock().unwrap() = Some(checkpoint.clone());
    let kill = async {
        checkpoint.wait_until_reached().await;
        let kid = children(&node.journal("x").await).pop();
        match (victim, kid) {
            (Victim::Writer, _) => checkpoint.refuse.store(true, Ordering::SeqCst),
            (Victim::Root, _) => kill(&node, "x").await,
            (Victim::Child, Some(kid)) => kill(&node, &kid).await,
            (Victim::Child, None) => {}
        }
        checkpoint.resume.add_permits(1);
    };
    let run = async {
        tokio::join!(scenario.drive(&node, "x"), async {
            // A scenario that has ended reaches no checkpoint.
            let _ = tokio::time::timeout(DEADLINE / 2, kill).await;
        });
        scenario.check(&node, "x").await;
    };
    tokio::time::timeout(DEADLINE, run).await.expect("the scenario never ended");
}

/// Runs a test body in its own paused runtime; prints `what` when the body panics.
#[allow(clippy::print_stderr)]
fn in_paused_runtime<F: Future>(what: &str, body: impl FnOnce() -> F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let run = std::panic::AssertUnwindSafe(|| runtime.block_on(body()));
    std::panic::catch_unwind(run).unwrap_or_else(|panic| {
        eprintln!("failed: {what}");
        std::panic::resume_unwind(panic)
    })
}

#[test]
fn an_actor_that_dies_at_any_write_leaves_one_child_and_one_answer() {
    for scenario in SCENARIOS {
        let writes = in_paused_runtime("without a death", || async {
            let checkpoint = Checkpoint::new(usize::MAX, true);
            on_one_node(scenario, checkpoint.clone(), Victim::Writer).await;
            checkpoint.write_count()
        });
        assert!(writes >= 6, "{writes}");
        for (write_number, before) in
            (0..writes).flat_map(|write_number| [(write_number, true), (write_number, false)])
        {
            for victim in [Victim::Writer, Victim::Root, Victim::Child] {
                let what = format!("{scenario:?}, {victim:?} at {write_number}, before: {before}");
                in_paused_runtime(&what, || async {
                    on_one_node(scenario, Checkpoint::new(write_number, before), victim).await;
                });
            }
        }
    }
}

/// Runs a scenario on a cluster; the node of the root, or of its child, dies at the checkpoint, if
/// that is reached. Returns whether root and child were live on different nodes.
async fn on_cluster(
    scenario: Scenario,
    root: &str,
    checkpoint: &Arc<Checkpoint>,
    victim: Victim,
    mode: DeathMode,
) -> bool {
    let mut cluster = TestCluster::with_policy(3, BOSS, Policy::Rendezvous).await;
    cluster.node(0).define(CAREFUL_KID).await;
    for node in 0..3 {
        *cluster.store(node).checkpoint.lock().unwrap() = Some(checkpoint.clone());
    }
    let run = async {
        let reached = tokio::select! {
            () = scenario.drive(cluster.node(0), root) => false,
            _ = checkpoint.wait_until_reached() => true,
        };
        let kid = children(&cluster.node(0).journal(root).await).pop();
        let nodes_of_kid = kid.map(|kid| cluster.live_on(&kid)).unwrap_or_default();
        let nodes_of_root = cluster.live_on(root);
        let victim_nodes = if victim == Victim::Child { &nodes_of_kid } else { &nodes_of_root };
        if let Some(number) = victim_nodes.first().filter(|_| reached) {
            cluster.kill(*number, mode);
        }
        checkpoint.resume.add_permits(1);
        let client = cluster.running()[0];
        scenario.drive(cluster.node(client), root).await;
        scenario.check(cluster.node(client), root).await;
        cluster.check_writes();
        nodes_of_root != nodes_of_kid
    };
    tokio::time::timeout(DEADLINE, run).await.expect("the scenario never ended")
}

#[test]
fn a_node_that_dies_at_any_write_leaves_one_child_and_one_answer() {
    let without_death = |root: &'static str| {
        let checkpoint = Checkpoint::new(usize::MAX, true);
        let (scenario, mode) = (Scenario::Approve, DeathMode::ConnectionRefused);
        in_paused_runtime("without a death", || {
            on_cluster(scenario, root, &checkpoint, Victim::Root, mode)
        })
        .then(|| (root, checkpoint.write_count()))
    };
    let separate = ["x0", "x1", "x2", "x3", "x4", "x5"].into_iter().find_map(without_death);
    let (root, writes) = separate.expect("every root is live on the node of its child");
    for scenario in SCENARIOS {
        for (write_number, before) in
            (0..writes).flat_map(|write_number| [(write_number, true), (write_number, false)])
        {
            for victim in [Victim::Root, Victim::Child] {
                let mode = if write_number % 2 == 0 {
                    DeathMode::ConnectionRefused
                } else {
                    DeathMode::HalfOpen
                };
                let what = format!(
                    "{scenario:?}, {victim:?} at {write_number}, before: {before}, {mode:?}"
                );
                let checkpoint = Checkpoint::new(write_number, before);
                in_paused_runtime(&what, || on_cluster(scenario, root, &checkpoint, victim, mode));
            }
        }
    }
}
