//! Promises about the members of a cluster.

use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::Holder;
use abide_conversation::Timestamp;

use super::super::{Durability, Redis};
use super::servers::{Server, wait_until};
use crate::member::ProcessId;
use crate::membership::{Member, MemberState, Membership, MembershipStatus};

pub(super) fn member(node: &str, incarnation: &str, lease_ms: u64) -> Member {
    let holder = Holder { node: NodeName::new(node), incarnation: Incarnation::new(incarnation) };
    Member {
        holder,
        process: ProcessId::new(format!("{node}-process")),
        address: "127.0.0.1:7070".to_owned(),
        state: MemberState::Up,
        live_actors: 0,
        version: "1".to_owned(),
        protocol_version: 1,
        handshake_version: 1,
        live_directory_version: 1,
        stored_form_version: 1,
        cookie: None,
        auth: None,
        ports: Vec::new(),
        since: Timestamp::UNIX_EPOCH,
        lease_ms,
    }
}

/// The names of the members that are alive.
pub(super) fn names(renewed: &MembershipStatus) -> Vec<&str> {
    match renewed {
        MembershipStatus::Alive { members, .. } => {
            members.iter().map(|seen| seen.member.holder.node.as_str()).collect()
        }
        MembershipStatus::Evicted => vec!["evicted"],
    }
}

const LONG_LEASE_MS: u64 = 60_000;

async fn open() -> (Server, Redis) {
    let server = Server::start(&["--appendfsync", "no"]).await;
    let redis = Redis::open(&server.url(), Durability::Os).await.unwrap();
    (server, redis)
}

#[tokio::test]
async fn a_renewal_lists_all_members_by_name_with_their_present_state() {
    let (_server, redis) = open().await;
    redis.enter(&member("b", "1", LONG_LEASE_MS)).await.unwrap();
    let entered = redis.enter(&member("a", "1", LONG_LEASE_MS)).await.unwrap();
    assert_eq!(names(&entered), ["a", "b"]);
    let draining =
        Member { state: MemberState::Draining, live_actors: 7, ..member("b", "1", LONG_LEASE_MS) };
    let Ok(MembershipStatus::Alive { now, members }) = redis.renew(&draining).await else {
        panic!()
    };
    assert_eq!(members[1].member, draining);
    assert!(members.iter().all(|seen| seen.silent_ms < LONG_LEASE_MS));
    let later = redis.renew(&draining).await;
    assert!(matches!(later, Ok(MembershipStatus::Alive { now: later, .. }) if later >= now));
}

#[tokio::test]
async fn a_member_silent_for_longer_than_its_lease_is_removed_by_the_others() {
    let (_server, redis) = open().await;
    redis.enter(&member("short", "1", 200)).await.unwrap();
    redis.enter(&member("long", "1", LONG_LEASE_MS)).await.unwrap();
    wait_until("the silent one is removed", async || {
        names(&redis.renew(&member("long", "1", LONG_LEASE_MS)).await.unwrap()) == ["long"]
    })
    .await;
    let short = member("short", "1", 200);
    assert_eq!(redis.renew(&short).await, Ok(MembershipStatus::Evicted));
    assert_eq!(redis.enter(&short).await, Ok(MembershipStatus::Evicted));
    assert_eq!(redis.declare_dead_if(&short.holder, false).await, Ok(true));
    let next = redis.enter(&member("short", "2", 200)).await.unwrap();
    assert_eq!(names(&next), ["long", "short"]);
}

#[tokio::test]
async fn only_silent_or_suspected_members_are_declared_dead() {
    let (_server, redis) = open().await;
    let (live, silent) = (member("live", "1", LONG_LEASE_MS), member("silent", "1", 200));
    redis.enter(&live).await.unwrap();
    redis.enter(&silent).await.unwrap();
    assert_eq!(redis.declare_dead_if(&live.holder, false).await, Ok(false));
    assert_eq!(names(&redis.renew(&live).await.unwrap())[0], "live");
    wait_until("the silent member is dead", async || {
        redis.declare_dead_if(&silent.holder, false).await.unwrap()
    })
    .await;
    assert_eq!(redis.renew(&silent).await, Ok(MembershipStatus::Evicted));
    assert_eq!(redis.declare_dead_if(&live.holder, true).await, Ok(true));
    assert_eq!(redis.renew(&live).await, Ok(MembershipStatus::Evicted));
    assert_eq!(redis.enter(&live).await, Ok(MembershipStatus::Evicted));
}

#[tokio::test]
async fn a_holder_that_was_never_a_member_is_dead_for_ever() {
    let (_server, redis) = open().await;
    let one = member("one", "1", LONG_LEASE_MS);
    assert_eq!(redis.renew(&one).await, Ok(MembershipStatus::Evicted));
    assert_eq!(redis.declare_dead_if(&one.holder, false).await, Ok(true));
    assert_eq!(redis.enter(&one).await, Ok(MembershipStatus::Evicted));
}

#[tokio::test]
async fn a_new_incarnation_ends_the_earlier_one() {
    let (_server, redis) = open().await;
    let (one, two) = (member("a", "1", LONG_LEASE_MS), member("a", "2", LONG_LEASE_MS));
    redis.enter(&one).await.unwrap();
    let entered = redis.enter(&two).await.unwrap();
    assert_eq!(names(&entered), ["a"]);
    assert_eq!(redis.renew(&one).await, Ok(MembershipStatus::Evicted));
    assert_eq!(redis.declare_dead_if(&one.holder, false).await, Ok(true));
    assert_eq!(redis.leave(&one.holder).await, Ok(()));
    assert_eq!(redis.declare_dead_if(&two.holder, false).await, Ok(false));
    assert_eq!(names(&redis.renew(&two).await.unwrap()), ["a"]);
}

#[tokio::test]
async fn a_process_whose_name_another_has_taken_never_comes_back() {
    let (_server, redis) = open().await;
    let of = |process: &str, incarnation| Member {
        process: ProcessId::new(process),
        ..member("a", incarnation, LONG_LEASE_MS)
    };
    redis.enter(&of("old", "1")).await.unwrap();
    redis.leave(&of("old", "1").holder).await.unwrap();
    redis.enter(&of("new", "2")).await.unwrap();
    assert_eq!(redis.enter(&of("old", "3")).await, Ok(MembershipStatus::Evicted));
    assert_eq!(names(&redis.renew(&of("new", "2")).await.unwrap()), ["a"]);
    assert_eq!(names(&redis.enter(&of("new", "4")).await.unwrap()), ["a"]);
}

#[tokio::test]
async fn a_member_that_leaves_is_gone_at_once_and_for_ever() {
    let (_server, redis) = open().await;
    let (one, two) = (member("one", "1", LONG_LEASE_MS), member("two", "1", LONG_LEASE_MS));
    redis.enter(&one).await.unwrap();
    redis.enter(&two).await.unwrap();
    redis.leave(&one.holder).await.unwrap();
    assert_eq!(names(&redis.renew(&two).await.unwrap()), ["two"]);
    assert_eq!(redis.renew(&one).await, Ok(MembershipStatus::Evicted));
    assert_eq!(redis.enter(&one).await, Ok(MembershipStatus::Evicted));
}

#[tokio::test]
async fn no_member_is_declared_dead_because_the_server_was_away() {
    let (server, redis) = open().await;
    let members = ["a", "b", "c"].map(|name| member(name, "1", 200));
    for member in &members {
        redis.enter(member).await.unwrap();
    }
    // This looks as if all nodes had been silent for ten seconds.
    let back = "for _, m in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do \
         redis.call('ZINCRBY', KEYS[1], -10000, m) end";
    server.ask::<()>(&["EVAL", back, "1", "abide:{members}:seen"]).await;
    assert_eq!(names(&redis.renew(&members[1]).await.unwrap()), ["a", "b", "c"]);
}

/// Moves the moment at which each member was last seen: back, as if nobody had been heard for that
/// long, or ahead, as if the server's clock had gone back.
async fn shift(server: &Server, by_ms: i64, names: &[&str]) {
    for name in names {
        let by = by_ms.to_string();
        server.ask::<f64>(&["ZINCRBY", "abide:{members}:seen", &by, name]).await;
    }
}

#[tokio::test]
async fn a_dead_member_stays_dead_when_the_clock_goes_back() {
    let (server, redis) = open().await;
    let hung = member("hung", "1", 200);
    let live = member("live", "1", LONG_LEASE_MS);
    redis.enter(&hung).await.unwrap();
    redis.enter(&live).await.unwrap();
    shift(&server, 3_600_000, &["hung", "live"]).await;
    assert_eq!(names(&redis.renew(&live).await.unwrap()), ["hung", "live"]);
    wait_until("the silent one is removed", async || {
        names(&redis.renew(&live).await.unwrap()) == ["live"]
    })
    .await;
    assert_eq!(redis.renew(&hung).await, Ok(MembershipStatus::Evicted));
}

#[tokio::test]
async fn a_survivor_that_is_always_late_does_not_keep_a_dead_member_alive() {
    let (server, redis) = open().await;
    let (dead, late) = (member("dead", "1", LONG_LEASE_MS), member("late", "1", LONG_LEASE_MS));
    redis.enter(&dead).await.unwrap();
    redis.enter(&late).await.unwrap();
    let mut rounds = 0;
    while names(&redis.renew(&late).await.unwrap()) == ["dead", "late"] {
        shift(&server, -36_000, &["dead", "late"]).await;
        rounds += 1;
        assert!(rounds < 5, "the dead member lives after {rounds} leases and more");
    }
    assert!(rounds >= 2, "its lease starts anew at first");
}

#[tokio::test]
async fn the_silence_of_a_late_member_excuses_nobody_while_others_renew() {
    let (server, redis) = open().await;
    let members = ["dead", "late", "punctual"].map(|name| member(name, "1", LONG_LEASE_MS));
    for member in &members {
        redis.enter(member).await.unwrap();
    }
    shift(&server, -61_000, &["dead"]).await;
    shift(&server, -36_000, &["late"]).await;
    assert_eq!(names(&redis.renew(&members[1]).await.unwrap()), ["late", "punctual"]);
}

#[tokio::test]
async fn a_member_that_was_heard_again_is_excused_again() {
    let (server, redis) = open().await;
    let (a, b) = (member("a", "1", LONG_LEASE_MS), member("b", "1", LONG_LEASE_MS));
    redis.enter(&a).await.unwrap();
    redis.enter(&b).await.unwrap();
    for _ in 0..5 {
        shift(&server, -600_000, &["a", "b"]).await;
        assert_eq!(names(&redis.renew(&a).await.unwrap()), ["a", "b"]);
        assert_eq!(names(&redis.renew(&b).await.unwrap()), ["a", "b"]);
    }
}
