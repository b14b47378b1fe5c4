//! Tests of the limits on one node.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::*;
use crate::definition::LimitScope;

fn limits(concurrency: Option<u32>, rate: Option<(u32, u64)>) -> RunLimits {
    let rate = rate.map(|(count, seconds)| Rate { count, per: Duration::from_secs(seconds) });
    RunLimits { concurrency, per: LimitScope::Node, rate }
}

/// Enters a gate, which no other node concerns.
async fn wait(limiter: &Limiter, limits: RunLimits) -> RunPermit {
    limiter.enter("t".to_owned(), limits, &Arc::default()).await
}

fn enter(limiter: &Limiter, key: &str, limits: RunLimits) -> Option<RunPermit> {
    // A task may poll so much at a time, and no more.
    let client = Arc::default();
    let entering = limiter.enter(key.to_owned(), limits, &client);
    tokio::task::unconstrained(entering).now_or_never()
}

#[tokio::test]
async fn what_is_over_the_limit_waits_in_order() {
    let limiter = Limiter::default();
    let two = limits(Some(2), None);
    let first = enter(&limiter, "t", two).unwrap();
    let second = enter(&limiter, "t", two).unwrap();
    let mut third: BoxFuture<'_, RunPermit> = Box::pin(wait(&limiter, two));
    let mut fourth: BoxFuture<'_, RunPermit> = Box::pin(wait(&limiter, two));
    assert!((&mut third).now_or_never().is_none());
    assert!((&mut fourth).now_or_never().is_none());
    drop(first);
    assert!((&mut fourth).now_or_never().is_none(), "the third was there before");
    let third = (&mut third).now_or_never().unwrap();
    drop(third);
    assert!((&mut fourth).now_or_never().is_some());
    drop(second);
}

#[tokio::test]
async fn whoever_stops_waiting_makes_room_for_the_next() {
    let limiter = Limiter::default();
    let one = limits(Some(1), None);
    let first = enter(&limiter, "t", one).unwrap();
    let mut second: BoxFuture<'_, RunPermit> = Box::pin(wait(&limiter, one));
    assert!((&mut second).now_or_never().is_none());
    let mut third: BoxFuture<'_, RunPermit> = Box::pin(wait(&limiter, one));
    assert!((&mut third).now_or_never().is_none());
    drop(second);
    drop(first);
    assert!((&mut third).now_or_never().is_some());
}

#[tokio::test]
async fn other_tools_and_other_limits_do_not_wait_for_each_other() {
    let limiter = Limiter::default();
    let _held = enter(&limiter, "t", limits(Some(1), None)).unwrap();
    assert!(enter(&limiter, "other", limits(Some(1), None)).is_some());
    assert!(enter(&limiter, "t", limits(Some(2), None)).is_some());
    assert!(enter(&limiter, "t", limits(Some(1), None)).is_none());
}

#[tokio::test(start_paused = true)]
async fn no_more_begin_within_any_span_than_the_rate_permits() {
    let limiter = Limiter::default();
    let rate = limits(None, Some((3, 10)));
    let mut starts = Vec::new();
    let begin = Instant::now();
    for _ in 0..10 {
        drop(wait(&limiter, rate).await);
        starts.push(begin.elapsed().as_secs());
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert!(starts.windows(4).all(|span| span[3] - span[0] >= 10), "{starts:?}");
    assert_eq!(starts[..4], [0, 1, 2, 10]);
}

#[tokio::test(start_paused = true)]
async fn the_gates_that_are_kept_are_bounded_and_those_that_count_stay() {
    let limiter = Limiter::default();
    let once = limits(None, Some((1, 60)));
    assert!(enter(&limiter, "counts", once).is_some());
    let held = enter(&limiter, "held", limits(Some(1), None)).unwrap();
    for n in 0..2_000 {
        assert!(enter(&limiter, &n.to_string(), limits(Some(1), None)).is_some());
    }
    assert!(limiter.gates.lock().unwrap().len() <= MAX_IDLE_GATES);
    assert!(enter(&limiter, "counts", once).is_none());
    assert!(enter(&limiter, "held", limits(Some(1), None)).is_none());
    drop(held);
}
