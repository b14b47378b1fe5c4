//! Operators see the same conversations, and can end them, from any node.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::conversation::ConversationMsg;
use abide_actors::identity::NodeName;
use abide_actors::request::Request;
use abide_conversation::event::{EventData, TurnOutcome};
use abide_conversation::{ConversationId, Scoped};
use abide_registry::membership::LinkState;
use ractor::rpc::CallResult;
use tokio::time::Instant;

use crate::flaky_store::FlakyStore;
use crate::revival::{APPROVAL_AGENT, HOLD_AGENT};
use crate::test_cluster::{DeathMode, TestCluster};
use crate::test_node::TestNode;

fn id(id: &str) -> Scoped<ConversationId> {
    Scoped::parse(id).unwrap()
}

pub async fn crash_into_quarantine(node: &TestNode, name: &str) {
    node.send(name, "panic").await.unwrap();
    let quarantined = async {
        while node.quarantine(name).await.is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), quarantined).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_conversation_is_seen_and_killed_from_any_node() {
    let cluster = TestCluster::new(3, HOLD_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).wait_for_holds(1).await;
    for number in 0..3 {
        let conversations = &cluster.node(number).conversations;
        let snapshot = conversations.snapshot(&id("x")).await.unwrap().unwrap();
        assert_eq!(snapshot.holder.unwrap().node.as_str(), "n0");
        assert_eq!(snapshot.in_flight.len(), 1);
        let (summary, _) = conversations.get_actor(&id("x")).await.unwrap().unwrap().live.unwrap();
        assert_eq!((summary.node.as_str(), summary.open_calls), ("n0", 1));
        assert_eq!(conversations.list_actors(None, None, 10).await.len(), 1);
        assert_eq!(conversations.list_actors(Some(&NodeName::new("n0")), None, 10).await.len(), 1);
        assert_eq!(conversations.list_actors(Some(&NodeName::new("n1")), None, 10).await.len(), 0);
        assert!(conversations.kill(&id("x")).await.unwrap());
        cluster.node(0).wait_for_holds(u32::try_from(number).unwrap() + 2).await;
        assert!(!conversations.kill(&id("y")).await.unwrap());
        assert!(conversations.get_actor(&id("y")).await.unwrap().is_none());
    }
    cluster.release_all();
    assert_eq!(cluster.node(1).turn_end("x", 1).await, (TurnOutcome::Completed, None));
    cluster.node(1).check("x").await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_sees_what_lives_on_a_node_that_is_just_being_connected() {
    let cluster = TestCluster::new(2, HOLD_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).wait_for_holds(1).await;
    let conversations = &cluster.node(1).conversations;
    let connect = async || {
        tokio::time::sleep(Duration::from_millis(100)).await;
        cluster.set_link(0, 1, LinkState::Connected);
    };
    let lose = async || {
        cluster.set_link(0, 1, LinkState::Lost);
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    lose().await;
    let id = id("x");
    let (actor, ()) = tokio::join!(conversations.get_actor(&id), connect());
    assert!(actor.unwrap().unwrap().live.is_some());
    lose().await;
    let (actors, ()) = tokio::join!(conversations.list_actors(None, None, 10), connect());
    assert_eq!(actors.len(), 1);
    // A node that stays out of reach delays what the others answer only a little.
    lose().await;
    let begun = Instant::now();
    assert!(conversations.list_actors(None, None, 10).await.is_empty());
    assert!(conversations.snapshot(&id).await.unwrap().unwrap().holder.is_some());
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn conversations_of_a_dead_node_are_shown_without_a_holder() {
    let mut cluster = TestCluster::new(2, HOLD_AGENT).await;
    cluster.release_all();
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).turn_end("x", 1).await;
    cluster.kill(0, DeathMode::ConnectionRefused);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let snapshot = cluster.node(1).conversations.snapshot(&id("x")).await.unwrap().unwrap();
    assert!(snapshot.holder.is_none());
    assert!(cluster.node(1).conversations.get_actor(&id("x")).await.unwrap().is_none());
    assert!(cluster.node(1).conversations.list_actors(None, None, 10).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_quarantined_conversation_is_seen_and_freed_from_any_node() {
    let cluster = TestCluster::new(3, HOLD_AGENT).await;
    crash_into_quarantine(cluster.node(0), "bad").await;
    assert!(cluster.node(2).quarantine("bad").await.is_some());
    cluster.node(0).model.panic_disabled.store(true, Ordering::SeqCst);
    cluster.release_all();
    cluster.node(2).kill("bad").await;
    assert_eq!(cluster.node(1).turn_end("bad", 1).await, (TurnOutcome::Completed, None));
    assert!(cluster.node(1).quarantine("bad").await.is_none());
    cluster.node(1).check("bad").await;
}

#[tokio::test(start_paused = true)]
async fn a_quarantined_conversation_is_deleted_from_any_node() {
    let cluster = TestCluster::new(3, HOLD_AGENT).await;
    crash_into_quarantine(cluster.node(0), "bad").await;
    cluster.node(1).deliver("bad", Request::Delete).await.unwrap();
    assert!(cluster.node(1).journal("bad").await.is_empty());
    assert!(cluster.node(2).quarantine("bad").await.is_none());
    cluster.release_all();
    cluster.node(1).send("bad", "go").await.unwrap();
    assert_eq!(cluster.node(0).turn_end("bad", 1).await, (TurnOutcome::Completed, None));
    cluster.node(0).check("bad").await;
}

#[tokio::test(start_paused = true)]
async fn the_store_is_not_asked_who_holds_what_lives_here() {
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_store(store.clone(), HOLD_AGENT).await;
    node.send("x", "go").await.unwrap();
    node.wait_for_holds(1).await;
    let snapshot = async || node.conversations.snapshot(&id("x")).await.unwrap().unwrap();
    store.claim_reads.store(0, Ordering::SeqCst);
    let live = snapshot().await;
    assert_eq!(live.in_flight.len(), 1);
    assert_eq!(store.claim_reads.load(Ordering::SeqCst), 0);
    node.tools.release.add_permits(1);
    node.turn_end("x", 1).await;
    node.wait_until_passivated("x").await;
    assert!(snapshot().await.holder.is_none());
    assert_eq!(store.claim_reads.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn an_actor_says_nothing_of_a_conversation_that_it_has_given_away() {
    let node = TestNode::new(APPROVAL_AGENT).await;
    node.send("x", "go").await.unwrap();
    node.poll_for_event("x", |data| matches!(data, EventData::Suspension(_))).await;
    let actor = node.conversations.table().get(&id("x")).unwrap().actor;
    let release = |reply| ConversationMsg::Release(None, false, reply);
    let (released, seen) =
        tokio::join!(actor.call(release, None), actor.call(ConversationMsg::Inspect, None));
    assert!(released.unwrap().is_success());
    assert!(!matches!(seen, Ok(CallResult::Success(_))));
}
