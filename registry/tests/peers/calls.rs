//! Calls between connected nodes, and their limits.

use crate::node::{ECHO, HOLD};
use crate::node_process::pair;

#[tokio::test]
async fn two_nodes_call_each_other() {
    let (mut a, mut b) = pair().await;
    assert_eq!(a.call("p-b", 256, 10_000).await, Ok(256));
    assert_eq!(b.call("p-a", 256, 10_000).await, Ok(256));
    assert_eq!(a.metric("abide_peers_connected").await, 1);
}

/// Prints how long the calls take: `cargo test -p abide-registry --test peers many -- --nocapture`.
#[tokio::test]
async fn many_calls_are_all_answered() {
    let (mut a, _b) = pair().await;
    for (count, concurrency) in [(5_000, 1), (20_000, 64)] {
        let (outcomes, took) = a.calls("p-b", (count, concurrency, 256), ECHO, 20_000).await;
        assert_eq!(outcomes, [("Answered".to_owned(), count)].into());
        println!("{count} calls, {concurrency} at a time: {took} ms");
    }
}

#[tokio::test]
async fn a_large_call_is_carried_and_a_larger_one_is_not_sent() {
    let (mut a, _b) = pair().await;
    let largest = abide_registry::peers::MAX_MESSAGE_BYTES;
    assert_eq!(a.call("p-b", largest, 10_000).await, Ok(largest));
    assert_eq!(a.call("p-b", largest + 1, 10_000).await, Err("TooLarge".to_owned()));
    assert_eq!(a.call("p-b", 1, 10_000).await, Ok(1));
}

#[tokio::test]
async fn a_call_that_is_not_answered_ends_at_its_deadline() {
    let (mut a, _b) = pair().await;
    let (outcome, took) = a.call_with("p-b", 256, HOLD, 200).await;
    assert_eq!(outcome, Err("Lost".to_owned()));
    assert!((200..2_000).contains(&took), "it took {took} ms");
    assert_eq!(a.call("p-b", 256, 10_000).await, Ok(256));
}

#[tokio::test]
async fn calls_under_way_to_a_process_are_bounded_in_number_and_in_bytes() {
    let (mut a, _b) = pair().await;
    let (outcomes, _) = a.calls("p-b", (1_500, 1_500, 256), HOLD, 1_000).await;
    assert_eq!(outcomes, [("Full".to_owned(), 476), ("Lost".to_owned(), 1_024)].into());
    let (outcomes, _) = a.calls("p-b", (20, 20, 4 << 20), HOLD, 3_000).await;
    assert_eq!(outcomes, [("Full".to_owned(), 4), ("Lost".to_owned(), 16)].into());
    // The slots of the ended calls are free again.
    let (outcomes, _) = a.calls("p-b", (1_000, 1_000, 256), ECHO, 20_000).await;
    assert_eq!(outcomes, [("Answered".to_owned(), 1_000)].into());
}

#[tokio::test]
async fn a_call_to_an_unconnected_process_fails_at_once() {
    let (mut a, _b) = pair().await;
    let (outcome, took) = a.call_with("p-c", 256, ECHO, 10_000).await;
    assert_eq!(outcome, Err("Unconnected".to_owned()));
    assert!(took < 1_000, "it took {took} ms");
}
