//! A node dies: its conversations go on elsewhere, once, and their alarms ring.

use std::time::Duration;

use abide_conversation::event::{EventData, TurnOutcome};
use serde_json::json;
use tokio::time::Instant;

use crate::revival::{ASKS, HOLDS, HOLDS_ONCE};
use crate::rig::{LEASE, results};
use crate::town::{Killed, Town, attempts};

fn suspended(data: &EventData) -> bool {
    matches!(data, EventData::Suspension(_))
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_died_unseen_is_replaced_after_its_lease() {
    let mut town = Town::new(3, ASKS).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).until_unseen("x", suspended).await;
    town.kill(0, Killed::HalfOpen);
    tokio::time::sleep(LEASE + Duration::from_secs(1)).await;
    town.release_all();
    let begun = Instant::now();
    town.node(2).approve("x", "c").await.unwrap();
    assert!(begun.elapsed() < Duration::from_millis(200));
    assert_eq!(town.lives_at("x"), [2], "where it was asked for");
    assert_eq!(town.node(1).ended("x", 1).await, (TurnOutcome::Completed, None));
    town.node(1).check("x").await;
    town.check_writes();
}

#[tokio::test(start_paused = true)]
async fn a_suspects_conversations_are_taken_at_once() {
    let mut town = Town::new(3, ASKS).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).until_unseen("x", suspended).await;
    town.kill(0, Killed::Refused);
    town.release_all();
    let begun = Instant::now();
    town.node(1).approve("x", "c").await.unwrap();
    assert!(begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
    assert_eq!(town.node(1).ended("x", 1).await, (TurnOutcome::Completed, None));
    town.node(1).check("x").await;
}

#[tokio::test(start_paused = true)]
async fn what_ran_on_a_dead_node_goes_on_by_itself_once() {
    for (how, within) in [(Killed::Refused, 200), (Killed::HalfOpen, 6_200)] {
        let mut town = Town::new(3, HOLDS).await;
        for n in 0..9 {
            town.node(0).send(&format!("x{n}"), "go").await.unwrap();
        }
        town.node(0).held(9).await;
        town.kill(0, how);
        tokio::time::sleep(Duration::from_millis(within)).await;
        let took = [1, 2].map(|n| town.node(n).tools.started.lock().unwrap().len());
        assert_eq!(took.iter().sum::<usize>(), 9, "all, and without being asked");
        assert!(took[0] > 0 && took[1] > 0, "each its share: {took:?}");
        town.release_all();
        for n in 0..9 {
            let id = format!("x{n}");
            assert_eq!(town.node(1).ended(&id, 1).await, (TurnOutcome::Completed, None));
            let events = town.node(1).journal(&id).await;
            assert_eq!(attempts(&events, "c"), [2]);
            assert_eq!(results(&events, "c")[0]["result"]["attempt"], 2);
            assert_eq!(town.runs_of(&id, "c"), 2);
            town.node(1).check(&id).await;
        }
        town.check_writes();
    }
}

#[tokio::test(start_paused = true)]
async fn what_must_not_run_twice_is_interrupted_by_a_death() {
    let mut town = Town::new(3, HOLDS_ONCE).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).held(1).await;
    town.kill(0, Killed::Refused);
    town.release_all();
    assert_eq!(town.node(1).ended("x", 1).await, (TurnOutcome::Completed, None));
    let interrupted =
        json!({"ok": false, "error": "tool call interrupted", "error_type": "INTERRUPTED"});
    assert_eq!(results(&town.node(1).journal("x").await, "c"), [interrupted]);
    assert_eq!(town.runs_of("x", "c"), 1);
    town.node(1).check("x").await;
}

/// How late the call of a parked conversation expired, in milliseconds.
async fn lateness(town: &Town, by: usize, id: &str) -> i64 {
    let events = town.node(by).journal(id).await;
    let asked = events.iter().find(|event| suspended(&event.data)).unwrap().at;
    let left = 599_900 - town.clock.now().duration_since(asked).as_millis();
    // Nobody looks while nothing is to be seen.
    tokio::time::sleep(Duration::from_millis(u64::try_from(left).unwrap_or_default())).await;
    let rung =
        town.node(by).until_unseen(id, |data| matches!(data, EventData::ToolResult(_))).await;
    assert_eq!(town.node(by).ended(id, 1).await, (TurnOutcome::Completed, None));
    let results = results(&town.node(by).journal(id).await, "c");
    assert_eq!(results.len(), 1);
    assert_eq!(results[0]["error_type"], "EXPIRED");
    i64::try_from(rung.at.duration_since(asked).as_millis()).unwrap() - 600_000
}

#[tokio::test(start_paused = true)]
async fn the_alarm_of_a_parked_conversation_rings_once_and_in_time() {
    let town = Town::new(3, ASKS).await;
    for n in 0..30 {
        let id = format!("x{n}");
        town.node(n % 3).send(&id, "go").await.unwrap();
        town.node(0).until_unseen(&id, suspended).await;
    }
    for n in 0..30 {
        let late = lateness(&town, 0, &format!("x{n}")).await;
        assert!((0..=200).contains(&late), "{late} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn an_alarm_rings_in_time_also_when_the_owner_of_its_share_died() {
    let mut town = Town::new(3, ASKS).await;
    let id = town.id_in_share_of(2);
    town.node(0).send(&id, "go").await.unwrap();
    town.node(0).until_unseen(&id, suspended).await;
    town.node(0).passivated(&id).await;
    let asked = town.node(0).journal(&id).await;
    let asked = asked.iter().find(|event| suspended(&event.data)).unwrap().at;
    let left = 599_990 - town.clock.now().duration_since(asked).as_millis();
    tokio::time::sleep(Duration::from_millis(u64::try_from(left).unwrap())).await;
    town.kill(2, Killed::Refused);
    let late = lateness(&town, 0, &id).await;
    assert!((0..=200).contains(&late), "{late} ms");
}

#[tokio::test(start_paused = true)]
async fn an_alarm_rings_in_time_also_when_everything_was_restarted() {
    let mut town = Town::new(3, ASKS).await;
    for n in 0..9 {
        let id = format!("x{n}");
        town.node(n % 3).send(&id, "go").await.unwrap();
        town.node(0).until_unseen(&id, suspended).await;
    }
    tokio::time::sleep(Duration::from_secs(599)).await;
    for number in 0..3 {
        town.kill(number, Killed::Refused);
    }
    tokio::time::sleep(Duration::from_millis(900)).await;
    for number in 0..3 {
        town.start(number).await;
    }
    for n in 0..9 {
        let late = lateness(&town, n % 3, &format!("x{n}")).await;
        assert!((0..=200).contains(&late), "{late} ms");
    }
    town.check_writes();
}

#[tokio::test(start_paused = true)]
async fn an_alarm_of_a_dead_holder_rings_in_time() {
    let mut town = Town::new(2, ASKS).await;
    let id = town.id_in_share_of(1);
    town.node(0).send(&id, "go").await.unwrap();
    town.node(0).until_unseen(&id, suspended).await;
    tokio::time::sleep(Duration::from_secs(595)).await;
    town.node(0).conversations.start(&abide_conversation::ConversationId::new(&*id)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(4_900)).await;
    town.kill(0, Killed::Refused);
    let late = lateness(&town, 1, &id).await;
    assert!((0..=200).contains(&late), "{late} ms");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_died_whole_takes_up_what_ran() {
    let mut town = Town::new(3, HOLDS).await;
    for n in 0..9 {
        town.node(n % 3).send(&format!("x{n}"), "go").await.unwrap();
    }
    for number in 0..3 {
        town.node(number).held(3).await;
        town.kill(number, Killed::HalfOpen);
    }
    for number in 0..3 {
        town.start(number).await;
    }
    town.release_all();
    for n in 0..9 {
        let id = format!("x{n}");
        assert_eq!(town.node(0).ended(&id, 1).await, (TurnOutcome::Completed, None));
        assert_eq!(town.runs_of(&id, "c"), 2);
        town.node(0).check(&id).await;
    }
    town.check_writes();
}
