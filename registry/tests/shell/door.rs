//! One door: a request finds its conversation wherever it lives, and whatever the network does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use abide_actors::conversation::ConversationMsg;
use abide_actors::request::{IdempotencyKey, Request, RequestError};
use abide_conversation::ConversationId;
use abide_conversation::command::IfBusy;
use abide_conversation::event::{EventData, TurnOutcome};
use abide_registry::membership::LinkState;
use abide_registry::placement::Policy;
use abide_registry::protocol::CallRequest;
use tokio::time::Instant;

use crate::revival::{ASKS, HOLDS};
use crate::rig::{Rig, say};
use crate::town::{Fate, Killed, Town};

fn key(name: &str) -> Vec<IdempotencyKey> {
    let (key, fingerprint) = (format!("message:{name}"), name.to_owned());
    vec![IdempotencyKey { key, fingerprint, field: "message_id".into() }]
}

fn is_delivery(ask: &CallRequest) -> bool {
    matches!(ask, CallRequest::Deliver { .. })
}

/// The number of messages that users said.
async fn said(rig: &Rig, id: &str) -> usize {
    let events = rig.journal(id).await;
    events.iter().filter(|event| matches!(event.data, EventData::UserMsg(_))).count()
}

/// Judges the first delivery only.
fn once(fate: Fate) -> impl FnMut(&str, &str, &CallRequest) -> Fate + Send {
    let mut done = false;
    move |_, _, ask| match is_delivery(ask) && !std::mem::replace(&mut done, true) {
        true => fate,
        false => Fate::Carried,
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_for_a_conversation_that_lives_elsewhere_is_carried_there() {
    let town = Town::new(3, ASKS).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).until_unseen("x", |data| matches!(data, EventData::Suspension(_))).await;
    town.release_all();
    town.node(1).approve("x", "c").await.unwrap();
    assert_eq!(town.lives_at("x"), [0]);
    let late = town.node(2).approve("x", "c").await;
    assert!(matches!(late, Err(RequestError::Rejected(_))), "{late:?}");
    assert_eq!(town.node(2).ended("x", 1).await, (TurnOutcome::Completed, None));
    assert_eq!(town.lives_at("x"), [0]);
    town.node(0).check("x").await;
}

#[tokio::test(start_paused = true)]
async fn of_nodes_that_start_one_conversation_at_once_one_holds_it_and_all_are_served() {
    let town = Town::new(3, HOLDS).await;
    town.release_all();
    for round in 0..20 {
        let id = format!("x{round}");
        let send = |number: usize| town.node(number).ask(&id, say("hi", IfBusy::Queue));
        let (a, b, c) = tokio::join!(send(0), send(1), send(2));
        for sent in [a, b, c] {
            sent.unwrap();
        }
        assert_eq!(town.lives_at(&id).len(), 1);
        town.node(0).ended(&id, 3).await;
        assert_eq!(said(town.node(0), &id).await, 3);
        town.node(0).check(&id).await;
    }
    town.check_writes();
}

#[tokio::test(start_paused = true)]
async fn a_stale_cached_answer_is_corrected() {
    let town = Town::new(3, ASKS).await;
    let (zero, one, two) = (town.node(0), town.node(1), town.node(2));
    one.send("x", "go").await.unwrap();
    let busy = zero.send("x", "now").await;
    assert!(matches!(busy, Err(RequestError::Rejected(_))), "{busy:?}");
    one.passivated("x").await;
    two.conversations.start(&ConversationId::new("x")).await.unwrap();
    assert_eq!(town.lives_at("x"), [2]);
    town.release_all();
    zero.approve("x", "c").await.unwrap();
    assert_eq!(zero.ended("x", 1).await, (TurnOutcome::Completed, None));
    assert_eq!(town.lives_at("x"), [2], "it was not drawn back");
    zero.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_request_finds_a_conversation_that_is_being_passivated_or_killed() {
    let town = Town::new(2, ASKS).await;
    let (zero, one) = (town.node(0), town.node(1));
    zero.send("x", "go").await.unwrap();
    zero.until_unseen("x", |data| matches!(data, EventData::Suspension(_))).await;
    let leaving = zero.conversations.table().get(&ConversationId::new("x")).unwrap();
    for handled in 0..10 {
        leaving.actor.cast(ConversationMsg::IdleTimeout(handled)).unwrap();
    }
    one.ask("x", say("second", IfBusy::Queue)).await.unwrap();
    zero.kill("x").await;
    one.kill("x").await;
    one.ask("x", say("third", IfBusy::Queue)).await.unwrap();
    town.release_all();
    one.approve("x", "c").await.unwrap();
    one.ended("x", 1).await;
    assert_eq!(said(zero, "x").await, 3);
    town.check_writes();
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_lost_is_asked_for_again_when_that_is_safe() {
    let town = Town::new(2, HOLDS).await;
    town.release_all();
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).ended("x", 1).await;
    town.net.judge(once(Fate::Swallowed));
    town.node(1).repeat("x", say("again", IfBusy::Reject), key("m")).await.unwrap();
    assert_eq!(town.node(0).ended("x", 2).await, (TurnOutcome::Completed, None));
    assert_eq!(said(town.node(0), "x").await, 2);

    town.net.judge(once(Fate::Swallowed));
    let lost = town.node(1).send("x", "once").await;
    assert_eq!(lost, Err(RequestError::Lost));
    assert_eq!(town.node(0).ended("x", 3).await, (TurnOutcome::Completed, None));
    assert_eq!(said(town.node(0), "x").await, 3, "it was carried out once");
    town.node(0).check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_comes_after_its_deadline_is_not_carried_out() {
    let town = Town::new(2, HOLDS).await;
    town.release_all();
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).ended("x", 1).await;
    town.net.judge(once(Fate::Delayed(Duration::from_secs(20))));
    let late = town.node(1).send("x", "late").await;
    assert!(matches!(late, Err(RequestError::Lost | RequestError::Refused(_))), "{late:?}");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(said(town.node(0), "x").await, 1);
}

#[tokio::test(start_paused = true)]
async fn an_unintelligible_call_is_answered_so_and_asked_again() {
    let town = Town::new(2, HOLDS).await;
    town.release_all();
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).ended("x", 1).await;
    let begun = Instant::now();
    town.net.judge(once(Fate::Garbled));
    town.node(1).send("x", "again").await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "nobody waited for a deadline");
    assert_eq!(said(town.node(0), "x").await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_asked_too_much_sends_no_more_and_says_so() {
    let town = Town::new(2, HOLDS).await;
    town.release_all();
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).ended("x", 1).await;
    town.net.judge(once(Fate::Full));
    assert_eq!(town.node(1).send("x", "again").await, Err(RequestError::Overloaded));
    assert_eq!(said(town.node(0), "x").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_cannot_be_reached_is_waited_for_with_patience() {
    let town = Town::new(2, HOLDS).await;
    town.release_all();
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).ended("x", 1).await;
    town.link(0, 1, LinkState::Lost);
    let heal = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        town.link(0, 1, LinkState::Connected);
    };
    let (sent, ()) = tokio::join!(town.node(1).send("x", "again"), heal);
    sent.unwrap();
    assert_eq!(town.lives_at("x"), [0], "nothing was taken from a holder that lives");
    town.link(0, 1, LinkState::Lost);
    let begun = Instant::now();
    let never = town.node(1).send("x", "again").await;
    assert!(matches!(never, Err(RequestError::Refused(_))), "{never:?}");
    assert!(begun.elapsed() <= Duration::from_secs(16));
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_cluster_asks_seldom() {
    let town = Town::new(2, HOLDS).await;
    town.release_all();
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).ended("x", 1).await;
    town.link(0, 1, LinkState::Lost);
    let renewals = Arc::new(AtomicU32::new(0));
    let count = async {
        let mut views = town.node(1).conversations.cluster().watch();
        while views.changed().await.is_ok() {
            renewals.fetch_add(1, Ordering::SeqCst);
        }
    };
    tokio::select! {
        _ = town.node(1).send("x", "again") => {}
        () = count => {}
    }
    let renewals = renewals.load(Ordering::SeqCst);
    assert!(renewals < 15 * 60, "{renewals} renewals in fifteen seconds");
}

#[tokio::test(start_paused = true)]
async fn conversations_are_placed_as_the_policy_says() {
    let town = Town::placing(3, ASKS, Policy::Rendezvous).await;
    for n in 0..10 {
        let id = format!("x{n}");
        town.node(n % 3).send(&id, "go").await.unwrap();
        let first = town.lives_at(&id);
        town.node(first[0]).passivated(&id).await;
        town.node((n + 1) % 3).conversations.start(&ConversationId::new(&*id)).await.unwrap();
        assert_eq!(town.lives_at(&id), first, "{id}");
    }

    let town = Town::placing(3, ASKS, Policy::LeastLoaded).await;
    for n in 0..30 {
        town.node(0).send(&format!("x{n}"), "go").await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    for number in 0..3 {
        let live = town.node(number).conversations.table().len();
        assert!((3..=7).contains(&live), "{live} on node {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_node_that_dies_goes_to_the_next_one() {
    let mut town = Town::new(3, HOLDS).await;
    town.release_all();
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).ended("x", 1).await;
    town.kill(0, Killed::HalfOpen);
    let begun = Instant::now();
    town.node(1).repeat("x", say("again", IfBusy::Reject), key("m")).await.unwrap();
    let took = begun.elapsed();
    assert!(took <= crate::rig::LEASE + Duration::from_secs(1), "{took:?}");
    town.node(1).ended("x", 2).await;
    town.node(1).check("x").await;
}

#[tokio::test(start_paused = true)]
async fn what_the_border_lets_in_reaches_a_conversation_elsewhere_however_deep_it_is() {
    let town = Town::new(2, ASKS).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).until_unseen("x", |data| matches!(data, EventData::Suspension(_))).await;
    let deep = (0..124).fold(serde_json::json!(1), |inner, _| serde_json::json!([inner]));
    let Request::Send(mut send) = say("deep", IfBusy::Queue) else { unreachable!("a message") };
    send.content = vec![serde_json::json!({"type": "json", "data": deep})];
    town.node(1).ask("x", Request::Send(send)).await.unwrap();
    assert_eq!(said(town.node(0), "x").await, 2);
}
