//! Operators repair conversations from any node: retry, fail a call, move, release.

use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::identity::NodeName;
use abide_actors::request::{FailCallRequest, Reply, Request, RequestError};
use abide_conversation::command::IfBusy;
use abide_conversation::event::{EventData, Operated, TurnOutcome};
use abide_conversation::{CallId, ConversationId, Principal, Rejection, Scoped};
use abide_registry::router::MoveError;
use futures::future::join_all;
use serde_json::json;
use tokio::time::Instant;

use crate::operator_views::crash_into_quarantine;
use crate::revival::{APPROVAL_AGENT, HOLD_AGENT, HOLD_ONCE_AGENT};
use crate::test_cluster::TestCluster;
use crate::test_node::{TestNode, results, user_message};

const SLOW_RETRY_AGENT: &str = r#"
name: a
retry: {max_attempts: 3, base: 1h, max: 1h}
model: {provider: scripted, script: [{text: "Well."}]}
"#;
const COMPLETED: (TurnOutcome, Option<String>) = (TurnOutcome::Completed, None);

fn id(id: &str) -> Scoped<ConversationId> {
    Scoped::parse(id).unwrap()
}

fn fail(call: &str) -> Request {
    let (call, by) = (CallId::new(call), Principal::new("operator"));
    Request::FailCall(FailCallRequest {
        call,
        by,
        identity: None,
        reason: None,
        error: "given up".to_owned(),
    })
}

fn suspended(data: &EventData) -> bool {
    matches!(data, EventData::Suspension(_))
}

/// Waits until an activity of the conversation is backing off.
async fn wait_for_backoff(node: &TestNode, name: &str) {
    let pausing = async {
        loop {
            let details = node.conversations.get_actor(&id(name)).await.unwrap();
            let live = details.and_then(|details| details.live);
            if live.is_some_and(|(_, live)| !live.backoffs.is_empty()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), pausing)
        .await
        .expect("no activity ever backed off");
}

#[tokio::test(start_paused = true)]
async fn a_retry_from_any_node_ends_the_backoff_of_a_model_call() {
    let cluster = TestCluster::new(3, SLOW_RETRY_AGENT).await;
    for (number, name) in ["x", "y"].into_iter().enumerate() {
        cluster.node(0).model.call_count.store(0, Ordering::SeqCst);
        cluster.node(0).send(name, "stumble").await.unwrap();
        wait_for_backoff(cluster.node(2), name).await;
        let began = Instant::now();
        let retried = cluster.node(number).conversations.retry(&id(name)).await.unwrap();
        assert!(retried.len() == 1 && retried[0].starts_with("model step 1 of "), "{retried:?}");
        assert_eq!(cluster.node(1).turn_end(name, 1).await, COMPLETED);
        assert!(began.elapsed() < Duration::from_secs(60), "the retry waited for the backoff");
        assert_eq!(cluster.node(0).model.call_count.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_starts_nothing_that_runs_twice() {
    let cluster = TestCluster::new(2, HOLD_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).wait_for_holds(1).await;
    for number in [0, 1] {
        let retried = cluster.node(number).conversations.retry(&id("x")).await.unwrap();
        assert_eq!(retried, [""; 0]);
    }
    cluster.release_all();
    assert_eq!(cluster.node(1).turn_end("x", 1).await, COMPLETED);
    assert_eq!(cluster.run_count("x", "c"), 1);
    let nobody = cluster.node(1).conversations.retry(&id("y")).await;
    assert_eq!(nobody, Err(RequestError::Rejected(Rejection::NotFound)));
}

#[tokio::test(start_paused = true)]
async fn a_retry_lets_a_conversation_out_of_quarantine() {
    let cluster = TestCluster::new(2, HOLD_AGENT).await;
    crash_into_quarantine(cluster.node(0), "bad").await;
    cluster.node(0).model.panic_disabled.store(true, Ordering::SeqCst);
    cluster.release_all();
    let retried = cluster.node(1).conversations.retry(&id("bad")).await.unwrap();
    assert_eq!(retried, ["its actor"]);
    assert_eq!(cluster.node(1).turn_end("bad", 1).await, COMPLETED);
    assert!(cluster.node(1).quarantine("bad").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_open_call_is_failed_live_or_passivated_from_any_node() {
    for (agent, passivated) in
        [(HOLD_AGENT, false), (APPROVAL_AGENT, false), (APPROVAL_AGENT, true)]
    {
        let cluster = TestCluster::new(2, agent).await;
        cluster.node(0).send("x", "go").await.unwrap();
        if agent == HOLD_AGENT {
            cluster.node(0).wait_for_holds(1).await;
        } else {
            drop(cluster.node(0).poll_for_event("x", suspended).await);
        }
        if passivated {
            cluster.node(0).wait_until_passivated("x").await;
        }
        let failed = cluster.node(1).deliver("x", fail("c")).await.unwrap();
        assert_eq!(cluster.node(1).turn_end("x", 1).await, COMPLETED);
        let journal = cluster.node(1).journal("x").await;
        let error = json!({"ok": false, "error": "given up", "error_type": "TOOL_ERROR"});
        assert_eq!(results(&journal, "c"), [error]);
        let Reply::Resolved { seq } = failed else { panic!("{failed:?}") };
        let at = journal.iter().find(|event| event.seq == seq).unwrap();
        assert!(matches!(at.data, EventData::ToolResult(_)));
        let again = cluster.node(0).deliver("x", fail("c")).await;
        assert!(
            matches!(again, Err(RequestError::Rejected(Rejection::CallNotOpen(_)))),
            "{again:?}"
        );
        cluster.release_all();
        cluster.node(1).check("x").await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_does_is_journalled_from_any_node_and_disturbs_nothing() {
    let cluster = TestCluster::new(2, HOLD_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).wait_for_holds(1).await;
    let operated = |verb: &str| Operated {
        by: Principal::new("operator"),
        identity: None,
        verb: verb.to_owned(),
        reason: None,
    };
    for (number, verb) in ["retry", "kill"].into_iter().enumerate() {
        let operate = Request::Operate(operated(verb));
        assert_eq!(cluster.node(number).deliver("x", operate).await, Ok(Reply::Noted));
    }
    cluster.release_all();
    assert_eq!(cluster.node(1).turn_end("x", 1).await, COMPLETED);
    assert_eq!(cluster.run_count("x", "c"), 1);
    let journal = cluster.node(1).journal("x").await;
    let found = journal.iter().filter_map(|event| match &event.data {
        EventData::Operated(operated) => Some(operated.clone()),
        _ => None,
    });
    assert_eq!(found.collect::<Vec<_>>(), ["retry", "kill"].map(operated));
    cluster.node(1).check("x").await;
    let nobody = cluster.node(0).deliver("y", Request::Operate(operated("kill"))).await;
    assert_eq!(nobody, Err(RequestError::Rejected(Rejection::NotFound)));
}

#[tokio::test(start_paused = true)]
async fn a_conversation_is_moved_with_what_it_was_doing() {
    let cluster = TestCluster::new(3, HOLD_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).wait_for_holds(1).await;
    let n1 = NodeName::new("n1");
    let moved = cluster.node(2).conversations.move_to(&id("x"), Some(&n1), false).await;
    assert_eq!(moved, Ok(n1.clone()));
    cluster.node(1).wait_for_holds(1).await;
    assert_eq!((cluster.live_on("x"), cluster.holder("x").await.unwrap().node), (vec![1], n1));
    // Without a target, the conversation goes to another node than its own.
    let moved = cluster.node(1).conversations.move_to(&id("x"), None, false).await.unwrap();
    assert_ne!(moved.as_str(), "n1");
    cluster.release_all();
    assert_eq!(cluster.node(0).turn_end("x", 1).await, COMPLETED);
    assert_eq!(cluster.run_count("x", "c"), 3);
    cluster.node(0).check("x").await;
    cluster.check_writes();
}

#[tokio::test(start_paused = true)]
async fn no_request_starts_a_conversation_elsewhere_during_its_move() {
    let cluster = TestCluster::new(3, APPROVAL_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).poll_for_event("x", suspended).await;
    let senders = (0..30).map(|n| {
        let node = cluster.node(n % 3);
        async move { node.deliver("x", user_message("more", IfBusy::Queue)).await }
    });
    let (x, n1) = (id("x"), NodeName::new("n1"));
    let moving = cluster.node(2).conversations.move_to(&x, Some(&n1), false);
    let (moved, senders) = tokio::join!(moving, join_all(senders));
    assert_eq!(moved, Ok(n1.clone()));
    assert!(senders.iter().all(Result::is_ok), "{senders:?}");
    assert_eq!((cluster.live_on("x"), cluster.holder("x").await.unwrap().node), (vec![1], n1));
    cluster.check_writes();
}

#[tokio::test(start_paused = true)]
async fn a_passivated_conversation_is_moved_and_released() {
    let cluster = TestCluster::new(3, APPROVAL_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).poll_for_event("x", suspended).await;
    cluster.node(0).wait_until_passivated("x").await;
    assert_eq!(cluster.node(0).conversations.release(&id("x"), false).await, Ok(false));
    let moved =
        cluster.node(0).conversations.move_to(&id("x"), Some(&NodeName::new("n2")), false).await;
    assert_eq!((moved, cluster.live_on("x")), (Ok(NodeName::new("n2")), vec![2]));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_must_not_run_twice_is_interrupted_only_by_force() {
    for moves in [true, false] {
        let cluster = TestCluster::new(2, HOLD_ONCE_AGENT).await;
        cluster.node(0).send("x", "go").await.unwrap();
        cluster.node(0).wait_for_holds(1).await;
        let conversations = &cluster.node(1).conversations;
        let refused = if moves {
            conversations.move_to(&id("x"), None, false).await.map(drop)
        } else {
            conversations.release(&id("x"), false).await.map(drop)
        };
        assert_eq!(refused, Err(MoveError::Runs(vec![CallId::new("c")])));
        assert_eq!(cluster.live_on("x"), [0], "the refused operation moved the conversation");
        if moves {
            drop(conversations.move_to(&id("x"), None, true).await.unwrap());
        } else {
            assert!(conversations.release(&id("x"), true).await.unwrap());
        }
        assert_eq!(cluster.node(1).turn_end("x", 1).await, COMPLETED);
        let journal = cluster.node(1).journal("x").await;
        assert_eq!(results(&journal, "c")[0]["error_type"], "INTERRUPTED");
        assert_eq!(cluster.run_count("x", "c"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_impossible_move_says_why() {
    let cluster = TestCluster::new(3, APPROVAL_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).poll_for_event("x", suspended).await;
    cluster.node(2).runtime.drain(Duration::from_secs(60)).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let conversations = &cluster.node(1).conversations;
    for (node, why) in [
        ("n7", MoveError::NoSuchNode(NodeName::new("n7"))),
        ("n0", MoveError::There(NodeName::new("n0"))),
        ("n2", MoveError::Draining(NodeName::new("n2"))),
    ] {
        assert_eq!(
            conversations.move_to(&id("x"), Some(&NodeName::new(node)), true).await,
            Err(why)
        );
    }
    let nobody = conversations.move_to(&id("y"), None, false).await;
    assert_eq!(nobody, Err(MoveError::Failed(RequestError::Rejected(Rejection::NotFound))));
    let alone = TestCluster::new(1, APPROVAL_AGENT).await;
    alone.node(0).send("x", "go").await.unwrap();
    assert_eq!(
        alone.node(0).conversations.move_to(&id("x"), None, false).await,
        Err(MoveError::Alone)
    );
}

#[tokio::test(start_paused = true)]
async fn a_released_conversation_is_started_anew_by_whoever_needs_it() {
    let cluster = TestCluster::new(3, APPROVAL_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).poll_for_event("x", suspended).await;
    assert_eq!(cluster.node(1).conversations.release(&id("x"), false).await, Ok(true));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((cluster.live_on("x"), cluster.holder("x").await), (vec![], None));
    cluster.release_all();
    cluster.node(2).approve("x", "c").await.unwrap();
    assert_eq!(cluster.node(1).turn_end("x", 1).await, COMPLETED);
    assert_eq!(cluster.live_on("x"), [2]);
    cluster.check_writes();
}

#[tokio::test(start_paused = true)]
async fn work_of_a_released_conversation_resumes_by_itself() {
    let cluster = TestCluster::new(2, HOLD_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).wait_for_holds(1).await;
    assert_eq!(cluster.node(0).conversations.release(&id("x"), false).await, Ok(true));
    cluster.release_all();
    assert_eq!(cluster.node(1).turn_end("x", 1).await, COMPLETED);
    assert_eq!(cluster.run_count("x", "c"), 2);
    cluster.node(1).check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_quarantined_conversation_is_moved_and_released() {
    for moves in [true, false] {
        let cluster = TestCluster::new(2, HOLD_AGENT).await;
        crash_into_quarantine(cluster.node(0), "bad").await;
        for number in [0, 1] {
            cluster.node(number).model.panic_disabled.store(true, Ordering::SeqCst);
        }
        cluster.release_all();
        let conversations = &cluster.node(1).conversations;
        if moves {
            let moved = conversations.move_to(&id("bad"), None, false).await;
            assert_eq!(moved, Ok(NodeName::new("n1")));
        } else {
            assert_eq!(conversations.release(&id("bad"), false).await, Ok(true));
        }
        assert_eq!(cluster.node(1).turn_end("bad", 1).await, COMPLETED);
        assert!(cluster.node(1).quarantine("bad").await.is_none());
        cluster.check_writes();
    }
}
