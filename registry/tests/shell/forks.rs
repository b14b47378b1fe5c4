//! A fork begins as another's prefix, and is whole whatever dies on the way.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::request::{ForkRequest, Reply, Request, RequestError};
use abide_conversation::event::{Event, EventData, TurnOutcome};
use abide_conversation::{ConversationId, Rejection};

use crate::flaky::{Checkpoint, Flaky};
use crate::revival::{ASKS, HOLDS};
use crate::rig::{Rig, results};

const SAYS: &str = "{name: a, model: {provider: scripted, script: [{text: 'You: {{ user }}'}]}}";

fn fork_of(from: &str, at_seq: Option<u64>) -> Request {
    Request::Fork(ForkRequest { from: ConversationId::new(from), at_seq })
}

fn is_forked(data: &EventData) -> bool {
    matches!(data, EventData::Forked(_))
}

fn types(events: &[Event]) -> Vec<String> {
    let name = |event: &Event| serde_json::to_value(event).unwrap()["type"].to_string();
    events.iter().map(name).collect()
}

#[tokio::test(start_paused = true)]
async fn a_fork_is_cut_where_it_is_asked_to_and_goes_its_own_way() {
    let rig = Rig::new(SAYS).await;
    for n in 1..=3 {
        rig.send("x", &format!("message {n}")).await.unwrap();
        rig.ended("x", n).await;
    }
    let first = rig.journal("x").await;
    let at_seq =
        first.iter().find(|event| matches!(event.data, EventData::TurnEnded(_))).unwrap().seq;
    let done = rig.ask("y", fork_of("x", Some(at_seq))).await.unwrap();
    assert!(matches!(done, Reply::Created { id, .. } if id == ConversationId::new("y")));
    let copy = rig.journal("y").await;
    assert_eq!(copy[1..at_seq as usize], first[1..at_seq as usize], "whole when it is answered");
    assert_eq!(copy.len() as u64, at_seq + 1);
    rig.send("y", "other").await.unwrap();
    assert_eq!(rig.ended("y", 2).await, (TurnOutcome::Completed, None));
    assert_eq!(rig.journal("x").await, first, "the other hears nothing of it");
    rig.check("y").await;
}

#[tokio::test(start_paused = true)]
async fn what_is_open_is_cancelled_in_the_copy_alone() {
    for agent in [ASKS, HOLDS] {
        let rig = Rig::new(agent).await;
        rig.send("x", "go").await.unwrap();
        rig.until_unseen("x", |data| matches!(data, EventData::ToolCall(_))).await;
        rig.ask("y", fork_of("x", None)).await.unwrap();
        assert_eq!(rig.ended("y", 1).await, (TurnOutcome::Cancelled, Some("forked".to_owned())));
        assert_eq!(results(&rig.journal("y").await, "c")[0]["error_type"], "CANCELLED");
        assert!(results(&rig.journal("x").await, "c").is_empty());
        assert!(rig.state("y").await.pending_calls().is_empty());
        rig.check("y").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_fork_of_what_is_not_there_is_refused_and_leaves_nothing() {
    let rig = Rig::new(SAYS).await;
    rig.send("x", "go").await.unwrap();
    rig.ended("x", 1).await;
    let refused = rig.ask("y", fork_of("nobody", None)).await;
    assert_eq!(refused, Err(RequestError::Rejected(Rejection::NotFound)));
    let refused = rig.ask("y", fork_of("x", Some(99))).await;
    assert!(matches!(refused, Err(RequestError::Invalid { field, .. }) if field == "at_seq"));
    let refused = rig.ask("x", fork_of("x", None)).await;
    assert_eq!(refused, Err(RequestError::Rejected(Rejection::ConversationExists)));
    assert!(rig.journal("y").await.is_empty());
    assert_eq!(rig.ask("y", fork_of("x", Some(1))).await.map(|_| ()), Ok(()));
}

/// A journal that takes several pages.
async fn long(rig: &Rig, id: &str) {
    for n in 1..=100 {
        rig.send(id, "go").await.unwrap();
        rig.ended(id, n).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_goes_on_after_its_actor_died_at_any_write() {
    for write in 0..3 {
        for before in [true, false] {
            let store = Arc::new(Flaky::default());
            let rig = Rig::over(store.clone(), SAYS).await;
            long(&rig, "x").await;
            let checkpoint = Checkpoint::new(write, before);
            *store.checkpoint.lock().unwrap() = Some(checkpoint.clone());
            let asked = rig.ask("y", fork_of("x", None));
            let killed = async {
                checkpoint.reached().await;
                checkpoint.refuse.store(true, Ordering::SeqCst);
                checkpoint.go.add_permits(1);
            };
            let (answer, ()) = tokio::join!(asked, killed);
            // Whoever was not answered asks again, and finds it made or makes it.
            let mut again = answer.map(|_| ());
            while !matches!(again, Ok(()) | Err(RequestError::Rejected(_))) {
                tokio::time::sleep(Duration::from_secs(1)).await;
                again = rig.ask("y", fork_of("x", None)).await.map(|_| ());
            }
            rig.until("y", is_forked).await;
            let (first, copy) = (rig.journal("x").await, rig.journal("y").await);
            assert_eq!(copy[1..first.len()], first[1..], "{write} {before}");
            assert_eq!(types(&copy[first.len()..]), ["\"forked\""]);
            rig.check("y").await;
        }
    }
}
