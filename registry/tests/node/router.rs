//! The router: a request finds its conversation on whichever node it is live, whatever the network
//! does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use abide_actors::conversation::ConversationMsg;
use abide_actors::request::{IdempotencyKey, Request, RequestError};
use abide_conversation::command::IfBusy;
use abide_conversation::event::{EventData, TurnOutcome};
use abide_conversation::{AgentName, Scoped};
use abide_registry::member::ProcessId;
use abide_registry::membership::LinkState;
use abide_registry::placement::Policy;
use abide_registry::protocol::CallRequest;
use tokio::time::Instant;

use crate::revival::{APPROVAL_AGENT, HOLD_AGENT};
use crate::test_cluster::{DeathMode, Fate, TestCluster};
use crate::test_node::{TestNode, user_message};

fn key(name: &str) -> Vec<IdempotencyKey> {
    let (key, fingerprint) = (format!("message:{name}"), name.to_owned());
    vec![IdempotencyKey { key, fingerprint, field: "message_id".into() }]
}

fn is_delivery(ask: &CallRequest) -> bool {
    matches!(ask, CallRequest::Deliver { .. })
}

/// The number of user messages in the journal.
async fn user_message_count(node: &TestNode, id: &str) -> usize {
    let events = node.journal(id).await;
    events.iter().filter(|event| matches!(event.data, EventData::UserMsg(_))).count()
}

/// Gives the first delivery this fate, and carries every other call.
fn first_delivery(fate: Fate) -> impl FnMut(&ProcessId, &ProcessId, &CallRequest) -> Fate + Send {
    let mut done = false;
    move |_, _, ask| {
        if is_delivery(ask) && !std::mem::replace(&mut done, true) { fate } else { Fate::Carry }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_for_a_conversation_that_lives_elsewhere_is_carried_there() {
    let cluster = TestCluster::new(3, APPROVAL_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).poll_for_event("x", |data| matches!(data, EventData::Suspension(_))).await;
    cluster.release_all();
    cluster.node(1).approve("x", "c").await.unwrap();
    assert_eq!(cluster.live_on("x"), [0]);
    let late = cluster.node(2).approve("x", "c").await;
    assert!(matches!(late, Err(RequestError::Rejected(_))), "{late:?}");
    assert_eq!(cluster.node(2).turn_end("x", 1).await, (TurnOutcome::Completed, None));
    assert_eq!(cluster.live_on("x"), [0]);
    cluster.node(0).check("x").await;
}

#[tokio::test(start_paused = true)]
async fn when_nodes_start_one_conversation_at_once_one_holds_it_and_all_are_served() {
    let cluster = TestCluster::new(3, HOLD_AGENT).await;
    cluster.release_all();
    for round in 0..20 {
        let id = format!("x{round}");
        let send =
            |number: usize| cluster.node(number).deliver(&id, user_message("hi", IfBusy::Queue));
        let (a, b, c) = tokio::join!(send(0), send(1), send(2));
        for sent in [a, b, c] {
            sent.unwrap();
        }
        assert_eq!(cluster.live_on(&id).len(), 1);
        cluster.node(0).turn_end(&id, 3).await;
        assert_eq!(user_message_count(cluster.node(0), &id).await, 3);
        cluster.node(0).check(&id).await;
    }
    cluster.check_writes();
}

#[tokio::test(start_paused = true)]
async fn a_stale_cached_answer_is_corrected() {
    let cluster = TestCluster::new(3, APPROVAL_AGENT).await;
    let zero = cluster.node(0);
    let one = cluster.node(1);
    let two = cluster.node(2);
    one.send("x", "go").await.unwrap();
    let busy = zero.send("x", "now").await;
    assert!(matches!(busy, Err(RequestError::Rejected(_))), "{busy:?}");
    one.wait_until_passivated("x").await;
    two.conversations.start(&Scoped::parse("x").unwrap()).await.unwrap();
    assert_eq!(cluster.live_on("x"), [2]);
    cluster.release_all();
    zero.approve("x", "c").await.unwrap();
    assert_eq!(zero.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    assert_eq!(cluster.live_on("x"), [2], "the conversation was moved");
    zero.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_request_finds_a_conversation_that_is_being_passivated_or_killed() {
    let cluster = TestCluster::new(2, APPROVAL_AGENT).await;
    let (zero, one) = (cluster.node(0), cluster.node(1));
    zero.send("x", "go").await.unwrap();
    zero.poll_for_event("x", |data| matches!(data, EventData::Suspension(_))).await;
    let leaving = zero.conversations.table().get(&Scoped::parse("x").unwrap()).unwrap();
    for handled in 0..10 {
        leaving.actor.cast(ConversationMsg::IdleTimeout(handled)).unwrap();
    }
    one.deliver("x", user_message("second", IfBusy::Queue)).await.unwrap();
    zero.kill("x").await;
    one.kill("x").await;
    one.deliver("x", user_message("third", IfBusy::Queue)).await.unwrap();
    cluster.release_all();
    one.approve("x", "c").await.unwrap();
    one.turn_end("x", 1).await;
    assert_eq!(user_message_count(zero, "x").await, 3);
    cluster.check_writes();
}

#[tokio::test(start_paused = true)]
async fn an_actor_whose_first_request_was_refused_leaves_memory_at_once() {
    let cluster = TestCluster::new(1, APPROVAL_AGENT).await;
    let mut unknown = user_message("go", IfBusy::Reject);
    if let Request::Send(send) = &mut unknown {
        send.agent = Some(AgentName::new("nobody"));
    }
    let refused = cluster.node(0).deliver("x", unknown).await;
    assert!(matches!(refused, Err(RequestError::AgentMissing(_))), "{refused:?}");
    let refused_at = Instant::now();
    cluster.node(0).wait_until_passivated("x").await;
    assert!(refused_at.elapsed() < Duration::from_secs(1), "{:?}", refused_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_reply_was_lost_is_repeated_when_that_is_safe() {
    let cluster = TestCluster::new(2, HOLD_AGENT).await;
    cluster.release_all();
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).turn_end("x", 1).await;
    cluster.network.set_fates(first_delivery(Fate::LoseReply));
    cluster
        .node(1)
        .deliver_keyed("x", user_message("again", IfBusy::Reject), key("m"))
        .await
        .unwrap();
    assert_eq!(cluster.node(0).turn_end("x", 2).await, (TurnOutcome::Completed, None));
    assert_eq!(user_message_count(cluster.node(0), "x").await, 2);

    cluster.network.set_fates(first_delivery(Fate::LoseReply));
    let lost = cluster.node(1).send("x", "once").await;
    assert_eq!(lost, Err(RequestError::Lost));
    assert_eq!(cluster.node(0).turn_end("x", 3).await, (TurnOutcome::Completed, None));
    assert_eq!(
        user_message_count(cluster.node(0), "x").await,
        3,
        "the message was not carried out exactly once"
    );
    cluster.node(0).check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_comes_after_its_deadline_is_not_carried_out() {
    let cluster = TestCluster::new(2, HOLD_AGENT).await;
    cluster.release_all();
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).turn_end("x", 1).await;
    cluster.network.set_fates(first_delivery(Fate::Delay(Duration::from_secs(20))));
    let late = cluster.node(1).send("x", "late").await;
    assert!(matches!(late, Err(RequestError::Lost | RequestError::Unavailable(_))), "{late:?}");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(user_message_count(cluster.node(0), "x").await, 1);
}

#[tokio::test(start_paused = true)]
async fn an_unintelligible_call_is_reported_at_once_and_repeated() {
    let cluster = TestCluster::new(2, HOLD_AGENT).await;
    cluster.release_all();
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).turn_end("x", 1).await;
    let begun = Instant::now();
    cluster.network.set_fates(first_delivery(Fate::Garble));
    cluster.node(1).send("x", "again").await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "the caller waited for a deadline");
    assert_eq!(user_message_count(cluster.node(0), "x").await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_the_network_has_no_room_for_is_answered_with_overload() {
    let cluster = TestCluster::new(2, HOLD_AGENT).await;
    cluster.release_all();
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).turn_end("x", 1).await;
    cluster.network.set_fates(first_delivery(Fate::RefuseAsFull));
    assert_eq!(cluster.node(1).send("x", "again").await, Err(RequestError::Overloaded));
    assert_eq!(user_message_count(cluster.node(0), "x").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_a_moment_for_a_holder_that_cannot_be_reached_and_then_names_it() {
    let cluster = TestCluster::new(2, HOLD_AGENT).await;
    cluster.release_all();
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).turn_end("x", 1).await;
    cluster.set_link(0, 1, LinkState::Lost);
    let heal = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        cluster.set_link(0, 1, LinkState::Connected);
    };
    let (sent, ()) = tokio::join!(cluster.node(1).send("x", "again"), heal);
    sent.unwrap();
    assert_eq!(cluster.live_on("x"), [0], "the conversation was taken from a live holder");
    cluster.set_link(0, 1, LinkState::Lost);
    let begun = Instant::now();
    let never = cluster.node(1).send("x", "again").await;
    let reason = "node n0, which holds the conversation, cannot be reached from node n1";
    assert_eq!(never, Err(RequestError::Unavailable(reason.to_owned())));
    assert!(begun.elapsed() <= Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(cluster.live_on("x"), [0], "the conversation was taken from a live holder");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_the_cluster_polls_seldom() {
    let cluster = TestCluster::new(2, HOLD_AGENT).await;
    cluster.release_all();
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).turn_end("x", 1).await;
    cluster.set_link(0, 1, LinkState::Lost);
    let renewals = Arc::new(AtomicU32::new(0));
    let count = async {
        let mut views = cluster.node(1).conversations.cluster().watch();
        while views.changed().await.is_ok() {
            renewals.fetch_add(1, Ordering::SeqCst);
        }
    };
    tokio::select! {
        _ = cluster.node(1).send("x", "again") => {}
        () = count => {}
    }
    let renewals = renewals.load(Ordering::SeqCst);
    assert!(renewals < 60, "{renewals} renewals in a second");
}

#[tokio::test(start_paused = true)]
async fn conversations_are_placed_as_the_policy_says() {
    let cluster = TestCluster::with_policy(3, APPROVAL_AGENT, Policy::Rendezvous).await;
    for n in 0..10 {
        let id = format!("x{n}");
        cluster.node(n % 3).send(&id, "go").await.unwrap();
        let first = cluster.live_on(&id);
        cluster.node(first[0]).wait_until_passivated(&id).await;
        cluster.node((n + 1) % 3).conversations.start(&Scoped::parse(&id).unwrap()).await.unwrap();
        assert_eq!(cluster.live_on(&id), first, "{id}");
    }

    let cluster = TestCluster::with_policy(3, APPROVAL_AGENT, Policy::LeastLoaded).await;
    for n in 0..30 {
        cluster.node(0).send(&format!("x{n}"), "go").await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    for number in 0..3 {
        let live = cluster.node(number).conversations.table().len();
        assert!((3..=7).contains(&live), "{live} on node {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_node_that_dies_goes_to_the_next_one() {
    let mut cluster = TestCluster::new(3, HOLD_AGENT).await;
    cluster.release_all();
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).turn_end("x", 1).await;
    cluster.kill(0, DeathMode::HalfOpen);
    let begun = Instant::now();
    cluster
        .node(1)
        .deliver_keyed("x", user_message("again", IfBusy::Reject), key("m"))
        .await
        .unwrap();
    let took = begun.elapsed();
    assert!(took <= crate::test_node::LEASE + Duration::from_secs(1), "{took:?}");
    cluster.node(1).turn_end("x", 2).await;
    cluster.node(1).check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_message_as_deep_as_http_allows_reaches_a_conversation_on_another_node() {
    let cluster = TestCluster::new(2, APPROVAL_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).poll_for_event("x", |data| matches!(data, EventData::Suspension(_))).await;
    let deep = (0..124).fold(serde_json::json!(1), |inner, _| serde_json::json!([inner]));
    let Request::Send(mut send) = user_message("deep", IfBusy::Queue) else {
        unreachable!("a message")
    };
    send.content = vec![serde_json::json!({"type": "json", "data": deep})];
    cluster.node(1).deliver("x", Request::Send(send)).await.unwrap();
    assert_eq!(user_message_count(cluster.node(0), "x").await, 2);
}
