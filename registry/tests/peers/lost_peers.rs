//! Peers that die, restart, leave, or never connected.

use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::node::{ECHO, HOLD, peer_address};
use crate::node_process::{NodeProcess, SECRET, pair, within};
use crate::proxy::Proxy;

const MAX_DETECTION_TIME: Duration = Duration::from_millis(500);

#[tokio::test]
async fn a_killed_peer_refuses_connections_and_both_sides_see_it_at_once() {
    let (mut a, mut b) = pair().await;
    // A peer that was connected only for a moment would be dialled again after a pause.
    a.calls("p-b", (1_000, 1, 256), ECHO, 10_000).await;
    let killed = b.kill().await;
    let took = a.wait_for_link("p-b", Some("Refused")).await - killed;
    assert!(took < MAX_DETECTION_TIME, "the dialling side took {took:?}");
    println!("refused after {took:?} for the dialling side");
    assert_eq!(a.call("p-b", 1, 1_000).await, Err("Unconnected".to_owned()));

    let (mut a, mut b) = pair().await;
    b.calls("p-a", (1_000, 1, 256), ECHO, 10_000).await;
    let killed = a.kill().await;
    let took = b.wait_for_link("p-a", Some("Refused")).await - killed;
    assert!(took < MAX_DETECTION_TIME, "the dialled side took {took:?}");
    println!("refused after {took:?} for the dialled side");
}

#[tokio::test]
async fn a_call_under_way_to_a_peer_that_is_killed_ends_with_it() {
    let (mut a, mut b) = pair().await;
    let held = tokio::spawn(async move {
        let outcome = a.call_with("p-b", 256, HOLD, 20_000).await;
        (a, outcome)
    });
    // Wait until the call has arrived in the process.
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
    let mut again = NodeProcess::with("b", "p-b2", &b.address, Some(SECRET)).await;
    let all = [a.peer_address(), b.peer_address(), again.peer_address()];
    a.set_members(&all).await;
    again.set_members(&all).await;
    a.wait_for_link("p-b2", Some("Connected")).await;
    a.wait_for_link("p-b", Some("Refused")).await;
    again.wait_for_link("p-a", Some("Connected")).await;
    assert_eq!(a.call("p-b2", 256, 10_000).await, Ok(256));
    assert_eq!(again.call("p-a", 256, 10_000).await, Ok(256));
}

#[tokio::test]
async fn another_process_at_its_address_means_that_a_peer_is_gone() {
    let (mut a, b) = tokio::join!(NodeProcess::start("a", "p-a"), NodeProcess::start("b", "p-b"));
    let c = NodeProcess::start("b", "p-b2").await;
    let proxy = Proxy::start(&b.address).await;
    a.set_members(&[b.peer_address_at(&proxy.address)]).await;
    a.wait_for_link("p-b", Some("Connected")).await;
    proxy.redirect(&c.address);
    a.wait_for_link("p-b", Some("Refused")).await;
    // The peer is dialled again and again, but logged only once.
    a.metric_reaches("abide_peers_refused_total{cause=\"other\"}", 3).await;
    assert_eq!(a.log_lines("cause=\"other\"").len(), 1);
}

#[tokio::test]
async fn a_peer_that_is_killed_before_it_was_connected_refuses_connections_for_both_sides() {
    for (here, there) in [("a", "b"), ("b", "a")] {
        let process = format!("p-{there}");
        let mut node = NodeProcess::start(here, &format!("p-{here}")).await;
        let mut killed = NodeProcess::start(there, &process).await;
        let member = killed.peer_address();
        killed.kill().await;
        let learned = Instant::now();
        node.set_members(&[member]).await;
        let took = node.wait_for_link(&process, Some("Refused")).await - learned;
        assert!(took < MAX_DETECTION_TIME, "{here} took {took:?}");
        println!("refused after {took:?} for {here}, which was never connected");
        let mut again = NodeProcess::with(there, &process, &killed.address, Some(SECRET)).await;
        again.set_members(&[node.peer_address()]).await;
        node.wait_for_link(&process, Some("Connected")).await;
    }
}

#[tokio::test]
async fn a_handshake_that_breaks_off_is_no_refusal_but_the_next_attempt_may_be() {
    let mut a = NodeProcess::start("a", "p-a").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    a.set_members(&[peer_address("b", "p-b", &address)]).await;
    drop(within("a connection", listener.accept()).await.unwrap());
    a.wait_for_log("error=Some(Unreachable)").await;
    assert!(!a.was_link_ever("p-b", "Refused"));
    drop(listener);
    a.wait_for_link("p-b", Some("Refused")).await;
}

#[tokio::test]
async fn another_process_at_the_address_of_a_peer_that_was_never_connected_says_nothing() {
    let (mut a, b) = tokio::join!(NodeProcess::start("a", "p-a"), NodeProcess::start("b", "p-b"));
    a.set_members(&[peer_address("c", "p-c", &b.address)]).await;
    a.wait_for_log("error=Some(OtherProcess)").await;
    a.metric_reaches("abide_peers_refused_total{cause=\"other\"}", 2).await;
    assert!(!a.was_link_ever("p-c", "Refused"));
}

#[tokio::test]
async fn a_new_member_makes_itself_known_to_the_node_that_is_to_dial_it() {
    let (mut a, mut b) =
        tokio::join!(NodeProcess::start("a", "p-a"), NodeProcess::start("b", "p-b"));
    // Only the second node, which does not dial, knows of the other.
    b.set_members(&[a.peer_address()]).await;
    // The first report is that of the start; the second one has the members read anew.
    a.wait_for_link_reports(2).await;
    a.set_members(&[b.peer_address()]).await;
    a.wait_for_link("p-b", Some("Connected")).await;
    b.wait_for_link("p-a", Some("Connected")).await;
}

#[tokio::test]
async fn a_process_that_leaves_the_members_is_forgotten() {
    let (mut a, mut b) = pair().await;
    a.set_members(&[]).await;
    a.wait_for_link("p-b", None).await;
    b.wait_for_link("p-a", Some("Lost")).await;
    assert_eq!(a.call("p-b", 256, 10_000).await, Err("Unconnected".to_owned()));
    a.set_members(&[b.peer_address()]).await;
    a.wait_for_link("p-b", Some("Connected")).await;
    b.wait_for_link("p-a", Some("Connected")).await;
    assert_eq!(b.call("p-a", 256, 10_000).await, Ok(256));
    assert!(!b.was_link_ever("p-a", "Refused"));
}

#[tokio::test]
async fn a_process_that_is_no_member_yet_is_let_in_and_forgotten_when_it_goes() {
    let (mut a, mut b) =
        tokio::join!(NodeProcess::start("a", "p-a"), NodeProcess::start("b", "p-b"));
    a.set_members(&[b.peer_address()]).await;
    b.wait_for_link("p-a", Some("Connected")).await;
    assert_eq!(b.call("p-a", 256, 10_000).await, Ok(256));
    a.kill().await;
    b.wait_for_link("p-a", None).await;
}

#[tokio::test]
async fn a_dialler_that_comes_again_takes_its_own_place() {
    let (mut a, mut b) =
        tokio::join!(NodeProcess::start("a", "p-a"), NodeProcess::start("b", "p-b"));
    let proxy = Proxy::start(&b.address).await;
    a.set_members(&[b.peer_address_at(&proxy.address)]).await;
    b.wait_for_link("p-a", Some("Connected")).await;
    // The side that was dialled does not notice.
    proxy.abandon_callee();
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
    // When one side can call again, the other can soon, too.
    assert_eq!(b.call_when_connected("p-a").await, Ok(256));
}
