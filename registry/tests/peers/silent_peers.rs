//! Peers that are connected and send nothing.

use std::time::Duration;

use tokio::time::Instant;

use crate::node::ECHO;
use crate::node_process::{NodeProcess, pair};
use crate::proxy::Proxy;

/// The limit for a silent session, 7 s, with some tolerance.
const MAX_SILENCE: Duration = Duration::from_secs(9);
/// The limit for lost packets: 2 s, after 1 s without any, with some tolerance. The kernel looks at it only
/// when it repeats a packet, at times that double: that may be twice as late.
const MAX_LOSS: Duration = Duration::from_secs(6);

#[tokio::test]
async fn a_stopped_peer_delays_no_call_past_its_deadline_and_comes_back_by_itself() {
    let (mut a, mut b) = pair().await;
    b.signal("STOP").await;
    let stopped = Instant::now();
    let (outcome, took) = a.call_with("p-b", 256, ECHO, 200).await;
    assert_eq!(outcome, Err("Lost".to_owned()));
    assert!((200..2_000).contains(&took), "it took {took} ms");

    let took = a.wait_for_link("p-b", Some("Lost")).await - stopped;
    assert!(took < MAX_SILENCE, "its session ended after {took:?}");
    a.metric_reaches("abide_peer_sessions_total{end=\"idle\"}", 1).await;
    let (outcome, _) = a.call_with("p-b", 256, ECHO, 200).await;
    assert_eq!(outcome, Err("Unconnected".to_owned()));

    b.signal("CONT").await;
    a.wait_for_link("p-b", Some("Connected")).await;
    b.wait_for_link("p-a", Some("Connected")).await;
    assert_eq!(a.call("p-b", 256, 10_000).await, Ok(256));
    assert_eq!(b.call("p-a", 256, 10_000).await, Ok(256));
    assert!(!a.was_link_ever("p-b", "Refused"));
}

#[tokio::test]
async fn a_connection_whose_packets_are_lost_is_given_up_by_both_sides_within_seconds() {
    let (mut a, mut b) =
        tokio::join!(NodeProcess::start("a", "p-a"), NodeProcess::start("b", "p-b"));
    let proxy = Proxy::start(&b.address).await;
    a.set_members(&[b.peer_address_at(&proxy.address)]).await;
    b.set_members(&[a.peer_address()]).await;
    a.wait_for_link("p-b", Some("Connected")).await;
    b.wait_for_link("p-a", Some("Connected")).await;
    proxy.lose_packets();
    let lost = Instant::now();
    let (outcome, took) = a.call_with("p-b", 256, ECHO, 10_000).await;
    assert_eq!(outcome, Err("Lost".to_owned()));
    assert!(u128::from(took) < MAX_LOSS.as_millis(), "the call took {took} ms");
    let took = b.wait_for_link("p-a", Some("Lost")).await - lost;
    assert!(took < MAX_LOSS, "b took {took:?}");
    a.wait_for_link("p-b", Some("Connected")).await;
    b.wait_for_link("p-a", Some("Connected")).await;
    // A connection that was made before the other side gave up the old one ends with that.
    while a.call("p-b", 256, 10_000).await != Ok(256) {
        a.wait_for_link("p-b", Some("Connected")).await;
    }
}

#[tokio::test]
async fn calls_to_a_stopped_peer_do_not_pile_up() {
    let (mut a, b) = pair().await;
    b.signal("STOP").await;
    let before = a.resident_mib();
    // This would take 16 GiB if all calls were buffered.
    let (outcomes, _) = a.calls("p-b", (65_536, 64, 256 << 10), ECHO, 100).await;
    let grown = a.resident_mib().saturating_sub(before);
    println!("{outcomes:?}; {grown} MiB more");
    assert!(outcomes["Full"] + outcomes.get("Unconnected").unwrap_or(&0) > 60_000);
    assert!(grown < 512, "{grown} MiB were buffered");
    a.wait_for_link("p-b", Some("Lost")).await;
    a.metric_reaches("abide_peer_sessions_total{end=\"stalled\"}", 1).await;
    b.signal("CONT").await;
    a.wait_for_link("p-b", Some("Connected")).await;
    assert_eq!(a.call("p-b", 256, 10_000).await, Ok(256));
}

#[tokio::test]
async fn a_connection_that_is_dead_without_a_word_is_given_up_by_both_sides() {
    let (mut a, mut b) =
        tokio::join!(NodeProcess::start("a", "p-a"), NodeProcess::start("b", "p-b"));
    let proxy = Proxy::start(&b.address).await;
    a.set_members(&[b.peer_address_at(&proxy.address)]).await;
    b.set_members(&[a.peer_address()]).await;
    a.wait_for_link("p-b", Some("Connected")).await;
    b.wait_for_link("p-a", Some("Connected")).await;
    proxy.set_open(false);
    let dead = Instant::now();
    for (node, other) in [(&mut a, "p-b"), (&mut b, "p-a")] {
        let took = node.wait_for_link(other, Some("Lost")).await - dead;
        assert!(took < MAX_SILENCE, "{} took {took:?}", node.config.name);
    }
    proxy.set_open(true);
    a.wait_for_link("p-b", Some("Connected")).await;
    b.wait_for_link("p-a", Some("Connected")).await;
    assert_eq!(a.call("p-b", 256, 10_000).await, Ok(256));
    assert!(!a.was_link_ever("p-b", "Refused") && !b.was_link_ever("p-a", "Refused"));
}
