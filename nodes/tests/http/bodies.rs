//! The memory that many bodies take at once.

use bytes::Bytes;
use futures::future::join_all;

use crate::api::Api;

/// The most memory that the process may ever have had: without a budget it was ten times as much.
const MAX_PEAK_KIB: u64 = 400 << 10;
const BODIES: usize = 200;

/// The largest memory that this process has ever had, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A body of this length whose metadata is a list of this value.
fn body(value: &str, bytes: usize) -> Bytes {
    let values = value.repeat((bytes - 100) / value.len());
    format!("{{\"agent\":\"demo\",\"metadata\":{{\"a\":[{values}0]}}}}").into()
}

/// Sends many of these bodies at once, which are refused with the first of the statuses, or with the
/// second where the others have the memory.
#[allow(clippy::print_stdout, reason = "the book has what it measures")]
async fn check_peak(body: Bytes, statuses: [u16; 2]) {
    let api = Api::start().await;
    let send = async || {
        let request = api.request("POST", "/v1/conversations").body(body.clone());
        let request = request.header("Content-Type", "application/json");
        // The node may close the connection before it has read everything.
        request.send().await.ok().map(|answer| answer.status().as_u16())
    };
    let answers = join_all((0..BODIES).map(|_| send())).await;
    for status in answers.iter().flatten() {
        assert!(statuses.contains(status), "{status}");
    }
    assert!(answers.contains(&Some(statuses[0])), "{answers:?}");
    let later = api.say("after", "hello").await;
    assert_eq!(later.status, 202, "the memory was given back");
    let peak_kib = peak_kib();
    println!("measured {BODIES} bodies of {} KiB at once: {peak_kib} KiB", body.len() >> 10);
    assert!(peak_kib < MAX_PEAK_KIB, "{peak_kib} KiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_bodies_of_too_many_values_take_little_memory() {
    check_peak(body("{\"\":0},", 1 << 20), [413, 429]).await;
}

/// One of them is small enough to be parsed, but few are at once.
#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_dense_bodies_at_once_take_little_memory() {
    check_peak(body("0,", 1 << 19), [422, 429]).await;
}
