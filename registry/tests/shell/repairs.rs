//! Operators repair conversations, from whichever node.

use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::request::{FailCallRequest, Reply, Request, RequestError};
use abide_conversation::command::IfBusy;
use abide_conversation::event::{EventData, TurnOutcome};
use abide_conversation::{CallId, ConversationId, Principal, Rejection};
use abide_registry::router::MoveError;
use futures::future::join_all;
use serde_json::json;
use tokio::time::Instant;

use crate::operators::quarantine;
use crate::revival::{ASKS, HOLDS, HOLDS_ONCE};
use crate::rig::{Rig, results, say};
use crate::town::Town;

const PATIENT: &str = r#"
name: a
retry: {max_attempts: 3, base: 1h, max: 1h}
model: {provider: scripted, script: [{text: "Well."}]}
"#;
const COMPLETED: (TurnOutcome, Option<String>) = (TurnOutcome::Completed, None);

fn id(id: &str) -> ConversationId {
    ConversationId::new(id)
}

fn fail(call: &str) -> Request {
    let (call, by) = (CallId::new(call), Principal::new("operator"));
    Request::FailCall(FailCallRequest { call, by, error: "given up".to_owned() })
}

fn suspended(data: &EventData) -> bool {
    matches!(data, EventData::Suspension(_))
}

/// Waits until something of the conversation waits for a later attempt.
async fn paused(rig: &Rig, name: &str) {
    let look = async {
        loop {
            let sight = rig.conversations.get_actor(&id(name)).await.unwrap();
            let live = sight.and_then(|sight| sight.live);
            if live.is_some_and(|(_, live)| !live.backoffs.is_empty()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), look).await.expect("nothing ever waited");
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_later_attempt_is_tried_now_from_any_node() {
    let town = Town::new(3, PATIENT).await;
    for (number, name) in ["x", "y"].into_iter().enumerate() {
        town.node(0).model.asked.store(0, Ordering::SeqCst);
        town.node(0).send(name, "stumble").await.unwrap();
        paused(town.node(2), name).await;
        let began = Instant::now();
        let retried = town.node(number).conversations.retry(&id(name)).await.unwrap();
        assert!(retried.len() == 1 && retried[0].starts_with("model step 1 of "), "{retried:?}");
        assert_eq!(town.node(1).ended(name, 1).await, COMPLETED);
        assert!(began.elapsed() < Duration::from_secs(60), "it waited all the same");
        assert_eq!(town.node(0).model.asked.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_starts_nothing_that_runs_twice() {
    let town = Town::new(2, HOLDS).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).held(1).await;
    for number in [0, 1] {
        let retried = town.node(number).conversations.retry(&id("x")).await.unwrap();
        assert_eq!(retried, [""; 0]);
    }
    town.release_all();
    assert_eq!(town.node(1).ended("x", 1).await, COMPLETED);
    assert_eq!(town.runs_of("x", "c"), 1);
    let nobody = town.node(1).conversations.retry(&id("y")).await;
    assert_eq!(nobody, Err(RequestError::Rejected(Rejection::NotFound)));
}

#[tokio::test(start_paused = true)]
async fn a_retry_lets_a_conversation_out_of_quarantine() {
    let town = Town::new(2, HOLDS).await;
    quarantine(town.node(0), "bad").await;
    town.node(0).model.calm.store(true, Ordering::SeqCst);
    town.release_all();
    let retried = town.node(1).conversations.retry(&id("bad")).await.unwrap();
    assert_eq!(retried, ["its actor"]);
    assert_eq!(town.node(1).ended("bad", 1).await, COMPLETED);
    assert!(town.node(1).quarantined("bad").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_open_call_is_failed_live_or_parked_from_any_node() {
    for (agent, parks) in [(HOLDS, false), (ASKS, false), (ASKS, true)] {
        let town = Town::new(2, agent).await;
        town.node(0).send("x", "go").await.unwrap();
        match agent == HOLDS {
            true => town.node(0).held(1).await,
            false => drop(town.node(0).until_unseen("x", suspended).await),
        }
        if parks {
            town.node(0).passivated("x").await;
        }
        let failed = town.node(1).ask("x", fail("c")).await.unwrap();
        assert_eq!(town.node(1).ended("x", 1).await, COMPLETED);
        let journal = town.node(1).journal("x").await;
        let error = json!({"ok": false, "error": "given up", "error_type": "TOOL_ERROR"});
        assert_eq!(results(&journal, "c"), [error]);
        let Reply::Resolved { seq } = failed else { panic!("{failed:?}") };
        let at = journal.iter().find(|event| event.seq == seq).unwrap();
        assert!(matches!(at.data, EventData::ToolResult(_)));
        let again = town.node(0).ask("x", fail("c")).await;
        assert!(
            matches!(again, Err(RequestError::Rejected(Rejection::CallNotOpen(_)))),
            "{again:?}"
        );
        town.release_all();
        town.node(1).check("x").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_conversation_is_moved_with_what_it_was_doing() {
    let town = Town::new(3, HOLDS).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).held(1).await;
    let moved = town.node(2).conversations.move_to(&id("x"), Some("n1"), false).await;
    assert_eq!(moved.as_deref(), Ok("n1"));
    town.node(1).held(1).await;
    assert_eq!((town.lives_at("x"), town.holder("x").await.unwrap().node), (vec![1], "n1".into()));
    // Nobody said where: not where it is.
    let moved = town.node(1).conversations.move_to(&id("x"), None, false).await.unwrap();
    assert_ne!(moved, "n1");
    town.release_all();
    assert_eq!(town.node(0).ended("x", 1).await, COMPLETED);
    assert_eq!(town.runs_of("x", "c"), 3);
    town.node(0).check("x").await;
    town.check_writes();
}

#[tokio::test(start_paused = true)]
async fn nobody_comes_between_the_two_nodes_of_a_move() {
    let town = Town::new(3, ASKS).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).until_unseen("x", suspended).await;
    let crowd = (0..30).map(|n| {
        let node = town.node(n % 3);
        async move { node.ask("x", say("more", IfBusy::Queue)).await }
    });
    let (door, x) = (&town.node(2).conversations, id("x"));
    let (moved, crowd) = tokio::join!(door.move_to(&x, Some("n1"), false), join_all(crowd));
    assert_eq!(moved.as_deref(), Ok("n1"));
    assert!(crowd.iter().all(Result::is_ok), "{crowd:?}");
    assert_eq!((town.lives_at("x"), town.holder("x").await.unwrap().node), (vec![1], "n1".into()));
    town.check_writes();
}

#[tokio::test(start_paused = true)]
async fn a_parked_conversation_is_moved_and_released() {
    let town = Town::new(3, ASKS).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).until_unseen("x", suspended).await;
    town.node(0).passivated("x").await;
    assert_eq!(town.node(0).conversations.release(&id("x"), false).await, Ok(false));
    let moved = town.node(0).conversations.move_to(&id("x"), Some("n2"), false).await;
    assert_eq!((moved.as_deref(), town.lives_at("x")), (Ok("n2"), vec![2]));
}

#[tokio::test(start_paused = true)]
async fn what_must_not_run_twice_is_interrupted_only_by_force() {
    for moves in [true, false] {
        let town = Town::new(2, HOLDS_ONCE).await;
        town.node(0).send("x", "go").await.unwrap();
        town.node(0).held(1).await;
        let door = &town.node(1).conversations;
        let refused = match moves {
            true => door.move_to(&id("x"), None, false).await.map(drop),
            false => door.release(&id("x"), false).await.map(drop),
        };
        assert_eq!(refused, Err(MoveError::Runs(vec![CallId::new("c")])));
        assert_eq!(town.lives_at("x"), [0], "nothing was done");
        match moves {
            true => drop(door.move_to(&id("x"), None, true).await.unwrap()),
            false => assert!(door.release(&id("x"), true).await.unwrap()),
        }
        assert_eq!(town.node(1).ended("x", 1).await, COMPLETED);
        let journal = town.node(1).journal("x").await;
        assert_eq!(results(&journal, "c")[0]["error_type"], "INTERRUPTED");
        assert_eq!(town.runs_of("x", "c"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_move_that_cannot_be_says_why() {
    let town = Town::new(3, ASKS).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).until_unseen("x", suspended).await;
    town.node(2).life.drain(Duration::from_secs(60)).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let door = &town.node(1).conversations;
    for (node, why) in [
        ("n7", MoveError::NoSuchNode("n7".to_owned())),
        ("n0", MoveError::There("n0".to_owned())),
        ("n2", MoveError::Draining("n2".to_owned())),
    ] {
        assert_eq!(door.move_to(&id("x"), Some(node), true).await, Err(why));
    }
    let nobody = door.move_to(&id("y"), None, false).await;
    assert_eq!(nobody, Err(MoveError::Failed(RequestError::Rejected(Rejection::NotFound))));
    let alone = Town::new(1, ASKS).await;
    alone.node(0).send("x", "go").await.unwrap();
    assert_eq!(
        alone.node(0).conversations.move_to(&id("x"), None, false).await,
        Err(MoveError::Alone)
    );
}

#[tokio::test(start_paused = true)]
async fn a_released_conversation_is_started_anew_by_whoever_needs_it() {
    let town = Town::new(3, ASKS).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).until_unseen("x", suspended).await;
    assert_eq!(town.node(1).conversations.release(&id("x"), false).await, Ok(true));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((town.lives_at("x"), town.holder("x").await), (vec![], None));
    town.release_all();
    town.node(2).approve("x", "c").await.unwrap();
    assert_eq!(town.node(1).ended("x", 1).await, COMPLETED);
    assert_eq!(town.lives_at("x"), [2]);
    town.check_writes();
}

#[tokio::test(start_paused = true)]
async fn what_runs_when_it_is_released_goes_on_by_itself() {
    let town = Town::new(2, HOLDS).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).held(1).await;
    assert_eq!(town.node(0).conversations.release(&id("x"), false).await, Ok(true));
    town.release_all();
    assert_eq!(town.node(1).ended("x", 1).await, COMPLETED);
    assert_eq!(town.runs_of("x", "c"), 2);
    town.node(1).check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_quarantined_conversation_is_moved_and_released() {
    for moves in [true, false] {
        let town = Town::new(2, HOLDS).await;
        quarantine(town.node(0), "bad").await;
        for number in [0, 1] {
            town.node(number).model.calm.store(true, Ordering::SeqCst);
        }
        town.release_all();
        let door = &town.node(1).conversations;
        match moves {
            true => assert_eq!(door.move_to(&id("bad"), None, false).await.as_deref(), Ok("n1")),
            false => assert_eq!(door.release(&id("bad"), false).await, Ok(true)),
        }
        assert_eq!(town.node(1).ended("bad", 1).await, COMPLETED);
        assert!(town.node(1).quarantined("bad").await.is_none());
        town.check_writes();
    }
}
