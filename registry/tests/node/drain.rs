//! A draining node accepts nothing new, finishes the runs that it has started, and hands over the
//! rest.

use std::time::Duration;

use abide_actors::identity::NodeName;
use abide_actors::request::RequestError;
use abide_conversation::event::{EventData, TurnOutcome};
use serde_json::json;

use crate::revival::{APPROVAL_AGENT, HOLD_AGENT, HOLD_ONCE_AGENT};
use crate::test_cluster::TestCluster;
use crate::test_node::results;

const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

fn suspended(data: &EventData) -> bool {
    matches!(data, EventData::Suspension(_))
}

#[tokio::test(start_paused = true)]
async fn a_draining_node_takes_nothing_new_finishes_its_tool_and_hands_over() {
    let cluster = TestCluster::new(3, HOLD_ONCE_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).wait_for_holds(1).await;
    let meanwhile = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        cluster.node(0).send("y", "go").await.unwrap();
        cluster.node(1).send("z", "go").await.unwrap();
        assert!(!cluster.live_on("y").contains(&0), "a draining node took a new conversation");
        let busy = cluster.node(1).send("x", "now").await;
        assert!(matches!(busy, Err(RequestError::Rejected(_))), "{busy:?}");
        cluster.release_all();
    };
    let (in_time, ()) = tokio::join!(cluster.node(0).runtime.drain(DRAIN_TIMEOUT), meanwhile);
    assert!(in_time, "a run was cut off");
    for id in ["x", "y", "z"] {
        assert_eq!(cluster.node(1).turn_end(id, 1).await, (TurnOutcome::Completed, None));
        assert_eq!(results(&cluster.node(1).journal(id).await, "c")[0]["ok"], true);
        assert_eq!(cluster.run_count(id, "c"), 1);
        assert!(!cluster.live_on(id).contains(&0));
        cluster.node(1).check(id).await;
    }
    cluster.check_writes();
}

#[tokio::test(start_paused = true)]
async fn conversations_of_a_drained_node_are_free_at_once() {
    let mut cluster = TestCluster::new(3, APPROVAL_AGENT).await;
    for n in 0..9 {
        let id = format!("x{n}");
        cluster.node(0).send(&id, "go").await.unwrap();
        cluster.node(0).poll_for_event(&id, suspended).await;
    }
    assert!(cluster.node(0).runtime.drain(DRAIN_TIMEOUT).await);
    for n in 0..9 {
        assert_eq!(cluster.holder(&format!("x{n}")).await, None);
    }
    let me = cluster.node(0).conversations.cluster().lease().me();
    assert!(cluster.shut_down(0, DRAIN_TIMEOUT).await);
    assert!(!cluster.members.alive().contains(&me));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(cluster.members.alive().len(), 2);
    cluster.release_all();
    for n in 0..9 {
        let id = format!("x{n}");
        cluster.node(1 + n % 2).approve(&id, "c").await.unwrap();
        assert_eq!(cluster.node(1).turn_end(&id, 1).await, (TurnOutcome::Completed, None));
    }
    cluster.check_writes();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_left_does_not_come_back() {
    let cluster = TestCluster::new(2, APPROVAL_AGENT).await;
    cluster.node(0).runtime.drain(DRAIN_TIMEOUT).await;
    cluster.node(0).runtime.leave().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(cluster.members.alive().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_times_out_cuts_off_runs_and_hands_them_over() {
    let cluster = TestCluster::new(3, HOLD_AGENT).await;
    for n in 0..9 {
        cluster.node(0).send(&format!("x{n}"), "go").await.unwrap();
    }
    cluster.node(0).wait_for_holds(9).await;
    assert!(!cluster.node(0).runtime.drain(DRAIN_TIMEOUT).await, "no run was cut off");
    tokio::time::sleep(Duration::from_millis(200)).await;
    let taken = [1, 2].map(|n| cluster.node(n).tools.started.lock().unwrap().len());
    assert_eq!(taken.iter().sum::<usize>(), 9, "not every run was resumed elsewhere at once");
    cluster.release_all();
    for n in 0..9 {
        let id = format!("x{n}");
        assert_eq!(cluster.node(1).turn_end(&id, 1).await, (TurnOutcome::Completed, None));
        assert_eq!(cluster.run_count(&id, "c"), 2);
        cluster.node(1).check(&id).await;
    }
    cluster.check_writes();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_must_not_run_twice_is_interrupted_when_a_drain_cuts_it_off() {
    let mut cluster = TestCluster::new(2, HOLD_ONCE_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).wait_for_holds(1).await;
    assert!(!cluster.shut_down(0, DRAIN_TIMEOUT).await);
    assert_eq!(cluster.node(1).turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let interrupted =
        json!({"ok": false, "error": "tool call interrupted", "error_type": "INTERRUPTED"});
    assert_eq!(results(&cluster.node(1).journal("x").await, "c"), [interrupted]);
    assert_eq!(cluster.run_count("x", "c"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_drains_when_another_node_asks_it_to() {
    let cluster = TestCluster::new(2, APPROVAL_AGENT).await;
    assert!(cluster.node(1).conversations.drain_node(&NodeName::new("n0")).await.unwrap());
    assert!(!cluster.node(1).conversations.drain_node(&NodeName::new("n7")).await.unwrap());
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.node(0).send("x", "go").await.unwrap();
    assert_eq!(cluster.live_on("x"), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_in_which_every_node_drains_refuses_work_and_loses_nothing() {
    let cluster = TestCluster::new(2, APPROVAL_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).poll_for_event("x", suspended).await;
    for number in 0..2 {
        assert!(cluster.node(number).runtime.drain(DRAIN_TIMEOUT).await);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let refused = cluster.node(0).send("y", "go").await;
    assert!(matches!(refused, Err(RequestError::Unavailable(_))), "{refused:?}");
    let refused = cluster.node(0).approve("x", "c").await;
    assert!(matches!(refused, Err(RequestError::Unavailable(_))), "{refused:?}");
    assert_eq!(cluster.node(0).state("x").await.pending_calls().len(), 1);
}
