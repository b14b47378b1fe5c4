//! Operators see and do the same from any node.

use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::request::Request;
use abide_conversation::ConversationId;
use abide_conversation::event::TurnOutcome;

use crate::revival::HOLDS;
use crate::rig::Rig;
use crate::town::{Killed, Town};

fn id(id: &str) -> ConversationId {
    ConversationId::new(id)
}

pub async fn quarantine(rig: &Rig, name: &str) {
    rig.send(name, "panic").await.unwrap();
    let look = async {
        while rig.quarantined(name).await.is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), look).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_conversation_is_seen_and_killed_from_any_node() {
    let town = Town::new(3, HOLDS).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).held(1).await;
    for number in 0..3 {
        let door = &town.node(number).conversations;
        let snapshot = door.snapshot(&id("x")).await.unwrap().unwrap();
        assert_eq!(snapshot.holder.unwrap().node, "n0");
        assert_eq!(snapshot.in_flight.len(), 1);
        let (row, _) = door.get_actor(&id("x")).await.unwrap().unwrap().live.unwrap();
        assert_eq!((row.node.as_str(), row.open_calls), ("n0", 1));
        assert_eq!(door.list_actors(None, None, 10).await.len(), 1);
        assert_eq!(door.list_actors(Some("n0"), None, 10).await.len(), 1);
        assert_eq!(door.list_actors(Some("n1"), None, 10).await.len(), 0);
        assert!(door.kill(&id("x")).await.unwrap());
        town.node(0).held(u32::try_from(number).unwrap() + 2).await;
        assert!(!door.kill(&id("y")).await.unwrap());
        assert!(door.get_actor(&id("y")).await.unwrap().is_none());
    }
    town.release_all();
    assert_eq!(town.node(1).ended("x", 1).await, (TurnOutcome::Completed, None));
    town.node(1).check("x").await;
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_node_held_is_shown_without_a_holder() {
    let mut town = Town::new(2, HOLDS).await;
    town.release_all();
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).ended("x", 1).await;
    town.kill(0, Killed::Refused);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let snapshot = town.node(1).conversations.snapshot(&id("x")).await.unwrap().unwrap();
    assert!(snapshot.holder.is_none());
    assert!(town.node(1).conversations.get_actor(&id("x")).await.unwrap().is_none());
    assert!(town.node(1).conversations.list_actors(None, None, 10).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_quarantined_conversation_is_seen_and_pardoned_from_any_node() {
    let town = Town::new(3, HOLDS).await;
    quarantine(town.node(0), "bad").await;
    assert!(town.node(2).quarantined("bad").await.is_some());
    town.node(0).model.calm.store(true, Ordering::SeqCst);
    town.release_all();
    town.node(2).kill("bad").await;
    assert_eq!(town.node(1).ended("bad", 1).await, (TurnOutcome::Completed, None));
    assert!(town.node(1).quarantined("bad").await.is_none());
    town.node(1).check("bad").await;
}

#[tokio::test(start_paused = true)]
async fn a_quarantined_conversation_is_deleted_from_any_node() {
    let town = Town::new(3, HOLDS).await;
    quarantine(town.node(0), "bad").await;
    town.node(1).ask("bad", Request::Delete).await.unwrap();
    assert!(town.node(1).journal("bad").await.is_empty());
    assert!(town.node(2).quarantined("bad").await.is_none());
    town.release_all();
    town.node(1).send("bad", "go").await.unwrap();
    assert_eq!(town.node(0).ended("bad", 1).await, (TurnOutcome::Completed, None));
    town.node(0).check("bad").await;
}
