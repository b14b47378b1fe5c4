//! A node that cannot say that it lives starts nothing; one that was declared dead is another.

use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::request::RequestError;
use abide_conversation::ConversationId;
use abide_conversation::event::{EventData, TurnOutcome};
use abide_registry::membership::LinkState;

use crate::revival::{ASKS, HOLDS, HOLDS_ONCE};
use crate::rig::{LEASE, results};
use crate::town::Town;

fn suspended(data: &EventData) -> bool {
    matches!(data, EventData::Suspension(_))
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_renew_starts_no_tool_and_goes_on_when_it_can() {
    let town = Town::new(1, ASKS).await;
    let cluster = town.node(0).conversations.cluster();
    let me = cluster.lease().me();
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).until_unseen("x", suspended).await;
    let mut views = cluster.watch();
    cluster.changed(&mut views, LEASE).await;
    town.away(0, true);
    tokio::time::sleep(LEASE - Duration::from_millis(300)).await;
    let refused = town.node(0).approve("x", "c").await;
    assert!(matches!(refused, Err(RequestError::Refused(_))), "{refused:?}");
    assert_eq!(town.runs_of("x", "c"), 0);
    town.away(0, false);
    let back = tokio::time::Instant::now();
    cluster.changed(&mut views, LEASE).await;
    assert_eq!(cluster.lease().me(), me, "nobody took it for dead");
    town.node(0).approve("x", "c").await.unwrap();
    town.node(0).held(1).await;
    assert!(back.elapsed() < Duration::from_secs(1), "as soon as it can");
    town.release_all();
    assert_eq!(town.node(0).ended("x", 1).await, (TurnOutcome::Completed, None));
    assert_eq!(town.runs_of("x", "c"), 1);
    town.node(0).check("x").await;
}

#[tokio::test(start_paused = true)]
async fn what_was_held_back_goes_on_after_a_renewal_that_came_late() {
    let town = Town::new(1, ASKS).await;
    for n in 0..200 {
        let id = format!("x{n}");
        town.node(0).send(&id, "go").await.unwrap();
        town.node(0).until_unseen(&id, suspended).await;
    }
    town.release_all();
    // Sound again after 4.5 s without a renewal, give or take: some calls fall on either side.
    town.away(0, true);
    tokio::time::sleep(LEASE - Duration::from_millis(700)).await;
    let approve = async {
        for n in 0..200 {
            let _ = town.node(0).approve(&format!("x{n}"), "c").await;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let back = async {
        tokio::time::sleep(Duration::from_millis(390)).await;
        town.away(0, false);
    };
    tokio::join!(approve, back);
    for n in 0..200 {
        let id = format!("x{n}");
        assert_eq!(town.node(0).ended(&id, 1).await, (TurnOutcome::Completed, None));
        town.node(0).check(&id).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_renew_calls_no_model() {
    let town = Town::new(1, HOLDS).await;
    town.node(0).send("x", "drip").await.unwrap();
    town.away(0, true);
    tokio::time::sleep(LEASE).await;
    let asked = town.node(0).model.asked.load(Ordering::SeqCst);
    let refused = town.node(0).send("y", "go").await;
    assert!(matches!(refused, Err(RequestError::Refused(_))), "{refused:?}");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(town.node(0).model.asked.load(Ordering::SeqCst), asked);
    town.away(0, false);
    town.release_all();
    let mut views = town.node(0).conversations.cluster().watch();
    town.node(0).conversations.cluster().changed(&mut views, LEASE).await;
    town.node(0).send("y", "go").await.unwrap();
    assert_eq!(town.node(0).ended("y", 1).await, (TurnOutcome::Completed, None));
    town.node(0).check("y").await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_declared_dead_drops_its_actors_and_comes_back_as_another() {
    let town = Town::new(2, HOLDS_ONCE).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).held(1).await;
    let former = town.holder("x").await.unwrap();
    town.away(0, true);
    town.link(0, 1, LinkState::Lost);
    tokio::time::sleep(LEASE + Duration::from_secs(2)).await;
    assert_eq!(town.node(1).ended("x", 1).await, (TurnOutcome::Completed, None));
    // The tool returns to a holder that is none any more.
    let writes = town.writes.lock().unwrap().len();
    town.release_all();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(town.writes.lock().unwrap().len(), writes, "it writes nothing");
    town.away(0, false);
    town.link(0, 1, LinkState::Connected);
    town.acquainted().await;
    let me = town.node(0).conversations.cluster().lease().me();
    assert!(me != former && me.node == former.node);
    assert_eq!(town.lives_at("x"), [1]);
    assert_eq!(town.runs_of("x", "c"), 1);
    town.node(0).send("y", "go").await.unwrap();
    assert_eq!(town.lives_at("y"), [0]);
    assert_eq!(town.holder("y").await.unwrap(), me);
    assert_eq!(town.node(1).ended("y", 1).await, (TurnOutcome::Completed, None));
    for id in ["x", "y"] {
        assert_eq!(results(&town.node(0).journal(id).await, "c").len(), 1);
        town.node(0).check(id).await;
    }
    town.check_writes();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_rose_again_forgets_even_the_idle() {
    let town = Town::new(1, ASKS).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).until_unseen("x", suspended).await;
    town.away(0, true);
    tokio::time::sleep(LEASE + Duration::from_secs(1)).await;
    town.away(0, false);
    town.acquainted().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    town.release_all();
    town.node(0).approve("x", "c").await.unwrap();
    let me = town.node(0).conversations.cluster().lease().me();
    assert_eq!(town.holder("x").await.unwrap(), me, "held by who it is now");
    assert_eq!(town.node(0).ended("x", 1).await, (TurnOutcome::Completed, None));
    town.check_writes();
}

#[tokio::test(start_paused = true)]
async fn a_process_whose_name_another_took_stays_out_until_that_one_ends() {
    let mut town = Town::new(2, HOLDS).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).held(1).await;
    let former = town.holder("x").await.unwrap();
    let other = town.start_namesake(0).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_ne!(town.holder("x").await.unwrap(), former, "it was taken over");
    assert!(!town.members.alive().contains(&former));
    let refused = town.node(0).send("y", "go").await;
    assert!(matches!(refused, Err(RequestError::Refused(_))), "it takes nothing: {refused:?}");
    town.node(1).send("y", "go").await.unwrap();
    let me = town.node(0).conversations.cluster().lease().me();
    assert_eq!(me, former);
    town.release_all();
    for id in ["x", "y"] {
        assert_eq!(town.node(1).ended(id, 1).await, (TurnOutcome::Completed, None));
        town.node(1).check(id).await;
    }
    town.kill(other, crate::town::Killed::Refused);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_ne!(town.node(0).conversations.cluster().lease().me(), former);
    town.node(0).send("z", "go").await.unwrap();
    assert_eq!(town.lives_at("z"), [0]);
    town.check_writes();
}

#[tokio::test(start_paused = true)]
async fn one_that_only_we_cannot_reach_is_declared_dead_once_and_robbed_of_nothing_later() {
    let town = Town::new(3, HOLDS).await;
    town.link_one_way(1, 0, LinkState::Refused);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let risen = town.node(0).conversations.cluster().lease().me();
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).held(1).await;
    let begun = tokio::time::Instant::now();
    let refused = town.node(1).send("x", "now").await;
    assert!(matches!(refused, Err(RequestError::Refused(_))), "{refused:?}");
    assert!(begun.elapsed() <= Duration::from_secs(16));
    assert_eq!(town.node(0).conversations.cluster().lease().me(), risen);
    assert_eq!(town.lives_at("x"), [0]);
    town.release_all();
    town.node(0).ended("x", 1).await;
    assert_eq!(town.runs_of("x", "c"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waited_past_its_deadline_for_a_holder_is_not_carried_out() {
    let town = Town::new(3, ASKS).await;
    town.node(1).send("x", "go").await.unwrap();
    let busy = town.node(2).send("x", "now").await;
    assert!(matches!(busy, Err(RequestError::Rejected(_))), "{busy:?}");
    // Node 1 cannot reach 0, which lives; there the conversation goes, and 2 does not know.
    town.link_one_way(1, 0, LinkState::Refused);
    tokio::time::sleep(Duration::from_secs(2)).await;
    town.node(1).passivated("x").await;
    town.node(0).conversations.start(&ConversationId::new("x")).await.unwrap();
    let refused = town.node(2).approve("x", "c").await;
    assert!(matches!(refused, Err(RequestError::Refused(_) | RequestError::Lost)), "{refused:?}");
    town.node(0).passivated("x").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let events = town.node(0).journal("x").await;
    assert!(!events.iter().any(|event| matches!(event.data, EventData::Resolution(_))));
}
