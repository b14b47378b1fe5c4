//! A node without a valid lease starts nothing; a node that was declared dead rejoins under a new
//! incarnation.

use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::request::RequestError;
use abide_conversation::Scoped;
use abide_conversation::event::{EventData, TurnOutcome};
use abide_registry::membership::LinkState;

use crate::revival::{APPROVAL_AGENT, HOLD_AGENT, HOLD_ONCE_AGENT};
use crate::test_cluster::TestCluster;
use crate::test_node::{LEASE, results};

fn suspended(data: &EventData) -> bool {
    matches!(data, EventData::Suspension(_))
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_renew_starts_no_tool_and_goes_on_when_it_can() {
    let cluster = TestCluster::new(1, APPROVAL_AGENT).await;
    let client = cluster.node(0).conversations.cluster();
    let me = client.lease().me();
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).poll_for_event("x", suspended).await;
    let mut views = client.watch();
    client.changed(&mut views, LEASE).await;
    cluster.set_membership_down(0, true);
    tokio::time::sleep(LEASE - Duration::from_millis(300)).await;
    let refused = cluster.node(0).approve("x", "c").await;
    assert!(matches!(refused, Err(RequestError::Store(_))), "{refused:?}");
    assert_eq!(cluster.run_count("x", "c"), 0);
    cluster.set_membership_down(0, false);
    let reconnected = tokio::time::Instant::now();
    client.changed(&mut views, LEASE).await;
    assert_eq!(client.lease().me(), me, "the node was declared dead");
    cluster.node(0).approve("x", "c").await.unwrap();
    cluster.node(0).wait_for_holds(1).await;
    assert!(
        reconnected.elapsed() < Duration::from_secs(1),
        "the tool started late after the renewal"
    );
    cluster.release_all();
    assert_eq!(cluster.node(0).turn_end("x", 1).await, (TurnOutcome::Completed, None));
    assert_eq!(cluster.run_count("x", "c"), 1);
    cluster.node(0).check("x").await;
}

#[tokio::test(start_paused = true)]
async fn work_that_was_held_back_resumes_after_a_late_renewal() {
    let cluster = TestCluster::new(1, APPROVAL_AGENT).await;
    for n in 0..200 {
        let id = format!("x{n}");
        cluster.node(0).send(&id, "go").await.unwrap();
        cluster.node(0).poll_for_event(&id, suspended).await;
    }
    cluster.release_all();
    // The membership returns about 4.5 s after the last renewal, when the lease is just lapsing:
    // some approvals come before the renewal, and some after it.
    cluster.set_membership_down(0, true);
    tokio::time::sleep(LEASE - Duration::from_millis(700)).await;
    let approve = async {
        for n in 0..200 {
            let _ = cluster.node(0).approve(&format!("x{n}"), "c").await;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let reconnected = async {
        tokio::time::sleep(Duration::from_millis(390)).await;
        cluster.set_membership_down(0, false);
    };
    tokio::join!(approve, reconnected);
    for n in 0..200 {
        let id = format!("x{n}");
        assert_eq!(cluster.node(0).turn_end(&id, 1).await, (TurnOutcome::Completed, None));
        cluster.node(0).check(&id).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_renew_calls_no_model() {
    let cluster = TestCluster::new(1, HOLD_AGENT).await;
    cluster.node(0).send("x", "drip").await.unwrap();
    cluster.set_membership_down(0, true);
    tokio::time::sleep(LEASE).await;
    let calls_before = cluster.node(0).model.call_count.load(Ordering::SeqCst);
    let refused = cluster.node(0).send("y", "go").await;
    assert!(matches!(refused, Err(RequestError::Store(_))), "{refused:?}");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.node(0).model.call_count.load(Ordering::SeqCst), calls_before);
    cluster.set_membership_down(0, false);
    cluster.release_all();
    let mut views = cluster.node(0).conversations.cluster().watch();
    cluster.node(0).conversations.cluster().changed(&mut views, LEASE).await;
    cluster.node(0).send("y", "go").await.unwrap();
    assert_eq!(cluster.node(0).turn_end("y", 1).await, (TurnOutcome::Completed, None));
    cluster.node(0).check("y").await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_declared_dead_drops_its_actors_and_comes_back_as_another() {
    let cluster = TestCluster::new(2, HOLD_ONCE_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).wait_for_holds(1).await;
    let former = cluster.holder("x").await.unwrap();
    cluster.set_membership_down(0, true);
    cluster.set_link(0, 1, LinkState::Lost);
    tokio::time::sleep(LEASE + Duration::from_secs(2)).await;
    assert_eq!(cluster.node(1).turn_end("x", 1).await, (TurnOutcome::Completed, None));
    // The tool returns to an actor whose node no longer holds the conversation.
    let writes = cluster.writes.lock().unwrap().len();
    cluster.release_all();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(cluster.writes.lock().unwrap().len(), writes, "a fenced node wrote");
    cluster.set_membership_down(0, false);
    cluster.set_link(0, 1, LinkState::Connected);
    cluster.wait_for_full_view().await;
    let me = cluster.node(0).conversations.cluster().lease().me();
    assert!(me != former && me.node == former.node);
    assert_eq!(cluster.live_on("x"), [1]);
    assert_eq!(cluster.run_count("x", "c"), 1);
    cluster.node(0).send("y", "go").await.unwrap();
    assert_eq!(cluster.live_on("y"), [0]);
    assert_eq!(cluster.holder("y").await.unwrap(), me);
    assert_eq!(cluster.node(1).turn_end("y", 1).await, (TurnOutcome::Completed, None));
    for id in ["x", "y"] {
        assert_eq!(results(&cluster.node(0).journal(id).await, "c").len(), 1);
        cluster.node(0).check(id).await;
    }
    cluster.check_writes();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_rejoined_drops_even_idle_actors() {
    let cluster = TestCluster::new(1, APPROVAL_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).poll_for_event("x", suspended).await;
    cluster.set_membership_down(0, true);
    tokio::time::sleep(LEASE + Duration::from_secs(1)).await;
    cluster.set_membership_down(0, false);
    cluster.wait_for_full_view().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.release_all();
    cluster.node(0).approve("x", "c").await.unwrap();
    let me = cluster.node(0).conversations.cluster().lease().me();
    assert_eq!(
        cluster.holder("x").await.unwrap(),
        me,
        "the holder is not the node's new incarnation"
    );
    assert_eq!(cluster.node(0).turn_end("x", 1).await, (TurnOutcome::Completed, None));
    cluster.check_writes();
}

#[tokio::test(start_paused = true)]
async fn a_process_whose_name_was_taken_stays_out_until_its_namesake_ends() {
    let mut cluster = TestCluster::new(2, HOLD_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).wait_for_holds(1).await;
    let former = cluster.holder("x").await.unwrap();
    let other = cluster.start_namesake(0).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_ne!(cluster.holder("x").await.unwrap(), former, "the conversation was not taken over");
    assert!(!cluster.members.alive().contains(&former));
    let refused = cluster.node(0).send("y", "go").await;
    assert!(
        matches!(refused, Err(RequestError::Store(_))),
        "a node without membership took a conversation: {refused:?}"
    );
    cluster.node(1).send("y", "go").await.unwrap();
    let me = cluster.node(0).conversations.cluster().lease().me();
    assert_eq!(me, former);
    cluster.release_all();
    for id in ["x", "y"] {
        assert_eq!(cluster.node(1).turn_end(id, 1).await, (TurnOutcome::Completed, None));
        cluster.node(1).check(id).await;
    }
    cluster.kill(other, crate::test_cluster::DeathMode::ConnectionRefused);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_ne!(cluster.node(0).conversations.cluster().lease().me(), former);
    cluster.node(0).send("z", "go").await.unwrap();
    assert_eq!(cluster.live_on("z"), [0]);
    cluster.check_writes();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_one_peer_cannot_reach_is_declared_dead_once_and_keeps_its_later_claims() {
    let cluster = TestCluster::new(3, HOLD_AGENT).await;
    cluster.set_link_one_way(1, 0, LinkState::Refused);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let me = cluster.node(0).conversations.cluster().lease().me();
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).wait_for_holds(1).await;
    let begun = tokio::time::Instant::now();
    let refused = cluster.node(1).send("x", "now").await;
    assert!(matches!(refused, Err(RequestError::Unavailable(_))), "{refused:?}");
    assert!(begun.elapsed() <= Duration::from_secs(2));
    assert_eq!(cluster.node(0).conversations.cluster().lease().me(), me);
    assert_eq!(cluster.live_on("x"), [0]);
    cluster.release_all();
    cluster.node(0).turn_end("x", 1).await;
    assert_eq!(cluster.run_count("x", "c"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waited_past_its_deadline_for_a_holder_is_not_carried_out() {
    let cluster = TestCluster::new(3, APPROVAL_AGENT).await;
    cluster.node(1).send("x", "go").await.unwrap();
    let busy = cluster.node(2).send("x", "now").await;
    assert!(matches!(busy, Err(RequestError::Rejected(_))), "{busy:?}");
    // Node 1 cannot reach node 0, which is alive. The conversation moves to 0, and node 2 does not
    // know it.
    cluster.set_link_one_way(1, 0, LinkState::Refused);
    tokio::time::sleep(Duration::from_secs(2)).await;
    cluster.node(1).wait_until_passivated("x").await;
    cluster.node(0).conversations.start(&Scoped::parse("x").unwrap()).await.unwrap();
    let refused = cluster.node(2).approve("x", "c").await;
    assert!(
        matches!(refused, Err(RequestError::Unavailable(_) | RequestError::Lost)),
        "{refused:?}"
    );
    cluster.node(0).wait_until_passivated("x").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let events = cluster.node(0).journal("x").await;
    assert!(!events.iter().any(|event| matches!(event.data, EventData::Resolution(_))));
}
