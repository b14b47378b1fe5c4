//! A node that drains takes nothing new, finishes what it has begun, and hands over the rest.

use std::time::Duration;

use abide_actors::request::RequestError;
use abide_conversation::event::{EventData, TurnOutcome};
use serde_json::json;

use crate::revival::{ASKS, HOLDS, HOLDS_ONCE};
use crate::rig::results;
use crate::town::Town;

const PATIENCE: Duration = Duration::from_secs(60);

fn suspended(data: &EventData) -> bool {
    matches!(data, EventData::Suspension(_))
}

#[tokio::test(start_paused = true)]
async fn a_draining_node_takes_nothing_new_finishes_its_tool_and_hands_over() {
    let town = Town::new(3, HOLDS_ONCE).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).held(1).await;
    let meanwhile = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        town.node(0).send("y", "go").await.unwrap();
        town.node(1).send("z", "go").await.unwrap();
        assert!(!town.lives_at("y").contains(&0), "it takes nothing new");
        let busy = town.node(1).send("x", "now").await;
        assert!(matches!(busy, Err(RequestError::Rejected(_))), "{busy:?}");
        town.release_all();
    };
    let (in_time, ()) = tokio::join!(town.node(0).life.drain(PATIENCE), meanwhile);
    assert!(in_time, "nothing was cut off");
    for id in ["x", "y", "z"] {
        assert_eq!(town.node(1).ended(id, 1).await, (TurnOutcome::Completed, None));
        assert_eq!(results(&town.node(1).journal(id).await, "c")[0]["ok"], true);
        assert_eq!(town.runs_of(id, "c"), 1);
        assert!(!town.lives_at(id).contains(&0));
        town.node(1).check(id).await;
    }
    town.check_writes();
}

#[tokio::test(start_paused = true)]
async fn what_a_drained_node_held_is_free_at_once() {
    let mut town = Town::new(3, ASKS).await;
    for n in 0..9 {
        let id = format!("x{n}");
        town.node(0).send(&id, "go").await.unwrap();
        town.node(0).until_unseen(&id, suspended).await;
    }
    assert!(town.node(0).life.drain(PATIENCE).await);
    for n in 0..9 {
        assert_eq!(town.holder(&format!("x{n}")).await, None);
    }
    let me = town.node(0).conversations.cluster().lease().me();
    assert!(town.retire(0, PATIENCE).await);
    assert!(!town.members.alive().contains(&me));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(town.members.alive().len(), 2);
    town.release_all();
    for n in 0..9 {
        let id = format!("x{n}");
        town.node(1 + n % 2).approve(&id, "c").await.unwrap();
        assert_eq!(town.node(1).ended(&id, 1).await, (TurnOutcome::Completed, None));
    }
    town.check_writes();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_left_does_not_come_back() {
    let town = Town::new(2, ASKS).await;
    town.node(0).life.drain(PATIENCE).await;
    town.node(0).life.leave().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(town.members.alive().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_drain_past_its_patience_cuts_off_and_hands_over() {
    let town = Town::new(3, HOLDS).await;
    for n in 0..9 {
        town.node(0).send(&format!("x{n}"), "go").await.unwrap();
    }
    town.node(0).held(9).await;
    assert!(!town.node(0).life.drain(PATIENCE).await, "something was cut off");
    tokio::time::sleep(Duration::from_millis(200)).await;
    let taken = [1, 2].map(|n| town.node(n).tools.started.lock().unwrap().len());
    assert_eq!(taken.iter().sum::<usize>(), 9, "and goes on elsewhere at once");
    town.release_all();
    for n in 0..9 {
        let id = format!("x{n}");
        assert_eq!(town.node(1).ended(&id, 1).await, (TurnOutcome::Completed, None));
        assert_eq!(town.runs_of(&id, "c"), 2);
        town.node(1).check(&id).await;
    }
    town.check_writes();
}

#[tokio::test(start_paused = true)]
async fn what_must_not_run_twice_is_interrupted_when_a_drain_cuts_it_off() {
    let mut town = Town::new(2, HOLDS_ONCE).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).held(1).await;
    assert!(!town.retire(0, PATIENCE).await);
    assert_eq!(town.node(1).ended("x", 1).await, (TurnOutcome::Completed, None));
    let interrupted =
        json!({"ok": false, "error": "tool call interrupted", "error_type": "INTERRUPTED"});
    assert_eq!(results(&town.node(1).journal("x").await, "c"), [interrupted]);
    assert_eq!(town.runs_of("x", "c"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_asked_from_elsewhere_drains() {
    let town = Town::new(2, ASKS).await;
    assert!(town.node(1).conversations.drain_node("n0").await.unwrap());
    assert!(!town.node(1).conversations.drain_node("n7").await.unwrap());
    tokio::time::sleep(Duration::from_secs(1)).await;
    town.node(0).send("x", "go").await.unwrap();
    assert_eq!(town.lives_at("x"), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_drains_whole_refuses_and_keeps_what_it_has() {
    let town = Town::new(2, ASKS).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).until_unseen("x", suspended).await;
    for number in 0..2 {
        assert!(town.node(number).life.drain(PATIENCE).await);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let refused = town.node(0).send("y", "go").await;
    assert!(matches!(refused, Err(RequestError::Refused(_))), "{refused:?}");
    let refused = town.node(0).approve("x", "c").await;
    assert!(matches!(refused, Err(RequestError::Refused(_))), "{refused:?}");
    assert_eq!(town.node(0).state("x").await.pending_calls().len(), 1);
}
