//! Peers that die, are restarted, leave, or were never there.

use std::time::Duration;

use tokio::net::TcpListener;

use crate::node::{ECHO, HOLD};
use crate::proxy::Proxy;
use crate::rig::{Node, pair, within};

const AT_ONCE: Duration = Duration::from_millis(500);

#[tokio::test]
async fn a_killed_peer_refuses_connections_and_both_sides_see_it_at_once() {
    let (mut a, mut b) = pair().await;
    // One that was connected for a moment only is dialled again after a pause.
    a.calls("p-b", (1_000, 1, 256), ECHO, 10_000).await;
    let killed = b.kill().await;
    let took = a.link("p-b", Some("Refused")).await - killed;
    assert!(took < AT_ONCE, "the one that dials took {took:?}");
    println!("refused after {took:?} for the one that dials");
    assert_eq!(a.call("p-b", 1, 1_000).await, Err("Unconnected".to_owned()));

    let (mut a, mut b) = pair().await;
    b.calls("p-a", (1_000, 1, 256), ECHO, 10_000).await;
    let killed = a.kill().await;
    let took = b.link("p-a", Some("Refused")).await - killed;
    assert!(took < AT_ONCE, "the one that is dialled took {took:?}");
    println!("refused after {took:?} for the one that is dialled");
}

#[tokio::test]
async fn a_call_under_way_to_a_peer_that_is_killed_ends_with_it() {
    let (mut a, mut b) = pair().await;
    let held = tokio::spawn(async move {
        let outcome = a.call_so("p-b", 256, HOLD, 20_000).await;
        (a, outcome)
    });
    // The call is in the process when its bytes are.
    b.metric_reaches("test_calls_total", 1).await;
    b.kill().await;
    let (_a, (outcome, took)) = held.await.unwrap();
    assert_eq!(outcome, Err("Lost".to_owned()));
    assert!(took < 10_000, "it took {took} ms");
}

#[tokio::test]
async fn a_restart_at_the_same_address_is_another_process() {
    let (mut a, mut b) = pair().await;
    b.kill().await;
    let mut again = Node::with("b", "p-b2", &b.address, Some("a secret")).await;
    let all = [a.other(), b.other(), again.other()];
    a.members(&all).await;
    again.members(&all).await;
    a.link("p-b2", Some("Connected")).await;
    a.link("p-b", Some("Refused")).await;
    again.link("p-a", Some("Connected")).await;
    assert_eq!(a.call("p-b2", 256, 10_000).await, Ok(256));
    assert_eq!(again.call("p-a", 256, 10_000).await, Ok(256));
}

#[tokio::test]
async fn another_process_at_its_address_means_that_a_peer_is_gone() {
    let (mut a, b) = tokio::join!(Node::start("a", "p-a"), Node::start("b", "p-b"));
    let c = Node::start("b", "p-b2").await;
    let proxy = Proxy::start(&b.address).await;
    a.members(&[b.at(&proxy.address)]).await;
    a.link("p-b", Some("Connected")).await;
    proxy.lead_to(&c.address);
    a.link("p-b", Some("Refused")).await;
    // It is dialled for ever, and told of once.
    a.metric_reaches("abide_peers_refused_total{cause=\"other\"}", 3).await;
    assert_eq!(a.logged("cause=\"other\"").len(), 1);
}

#[tokio::test]
async fn a_peer_that_was_never_connected_never_counts_as_refused() {
    let mut a = Node::start("a", "p-a").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    a.members(&[("b".to_owned(), "p-b".to_owned(), address.clone())]).await;
    drop(within("a connection", listener.accept()).await.unwrap());
    drop(listener);
    a.logs("missed=Some(Nobody)").await;
    a.link("p-b", Some("Lost")).await;
    let _b = Node::with("b", "p-b", &address, Some("a secret")).await;
    a.link("p-b", Some("Connected")).await;
    assert!(!a.ever("p-b", "Refused"));
}

#[tokio::test]
async fn a_process_that_leaves_the_members_is_forgotten() {
    let (mut a, mut b) = pair().await;
    a.members(&[]).await;
    a.link("p-b", None).await;
    b.link("p-a", Some("Lost")).await;
    assert_eq!(a.call("p-b", 256, 10_000).await, Err("Unconnected".to_owned()));
    a.members(&[b.other()]).await;
    a.link("p-b", Some("Connected")).await;
    b.link("p-a", Some("Connected")).await;
    assert_eq!(b.call("p-a", 256, 10_000).await, Ok(256));
    assert!(!b.ever("p-a", "Refused"));
}

#[tokio::test]
async fn a_process_that_is_no_member_yet_is_let_in_and_forgotten_when_it_goes() {
    let (mut a, mut b) = tokio::join!(Node::start("a", "p-a"), Node::start("b", "p-b"));
    a.members(&[b.other()]).await;
    b.link("p-a", Some("Connected")).await;
    assert_eq!(b.call("p-a", 256, 10_000).await, Ok(256));
    a.kill().await;
    b.link("p-a", None).await;
}

#[tokio::test]
async fn a_dialler_that_comes_again_takes_its_own_place() {
    let (mut a, mut b) = tokio::join!(Node::start("a", "p-a"), Node::start("b", "p-b"));
    let proxy = Proxy::start(&b.address).await;
    a.members(&[b.at(&proxy.address)]).await;
    b.link("p-a", Some("Connected")).await;
    // The one that is dialled hears nothing of it.
    proxy.forsake();
    b.metric_reaches("abide_peer_sessions_total{end=\"replaced\"}", 1).await;
    assert_eq!(a.call_when_connected("p-b").await, Ok(256));
    assert_eq!(b.call_when_connected("p-a").await, Ok(256));
}

#[tokio::test]
async fn connections_come_back_when_the_server_that_keeps_them_dies() {
    let (mut a, mut b) = pair().await;
    a.kill_server().await;
    a.metric_reaches("abide_peer_sessions_total{end=\"session\"}", 1).await;
    assert_eq!(a.call_when_connected("p-b").await, Ok(256));
    // As soon as one side can call, the other is about to.
    assert_eq!(b.call_when_connected("p-a").await, Ok(256));
}
