//! Promises about the members of a cluster.

use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::Holder;
use abide_conversation::Timestamp;

use super::super::{Durability, Redis};
use super::servers::{Server, until};
use crate::member::ProcessId;
use crate::membership::{Member, MemberState, Membership, Renewed};

pub(super) fn member(node: &str, incarnation: &str, lease_ms: u64) -> Member {
    let holder = Holder { node: NodeName::new(node), incarnation: Incarnation::new(incarnation) };
    Member {
        holder,
        process: ProcessId::new(format!("{node}-process")),
        address: "127.0.0.1:7070".to_owned(),
        state: MemberState::Up,
        live_actors: 0,
        version: "1".to_owned(),
        wire: 1,
        since: Timestamp::UNIX_EPOCH,
        lease_ms,
    }
}

/// The names of the members that are alive.
pub(super) fn names(renewed: &Renewed) -> Vec<&str> {
    match renewed {
        Renewed::Alive { members, .. } => {
            members.iter().map(|seen| seen.member.holder.node.as_str()).collect()
        }
        Renewed::Evicted => vec!["buried"],
    }
}

const LONG: u64 = 60_000;

async fn open() -> (Server, Redis) {
    let server = Server::start(&["--appendfsync", "no"]).await;
    let redis = Redis::open(&server.url(), Durability::Os).await.unwrap();
    (server, redis)
}

#[tokio::test]
async fn all_who_entered_are_told_of_by_name_as_they_are_now() {
    let (_server, redis) = open().await;
    redis.enter(&member("b", "1", LONG)).await.unwrap();
    let entered = redis.enter(&member("a", "1", LONG)).await.unwrap();
    assert_eq!(names(&entered), ["a", "b"]);
    let draining =
        Member { state: MemberState::Draining, live_actors: 7, ..member("b", "1", LONG) };
    let Ok(Renewed::Alive { now, members }) = redis.renew(&draining).await else { panic!() };
    assert_eq!(members[1].member, draining);
    assert!(members.iter().all(|seen| seen.silent_ms < LONG));
    let later = redis.renew(&draining).await;
    assert!(matches!(later, Ok(Renewed::Alive { now: later, .. }) if later >= now));
}

#[tokio::test]
async fn who_is_silent_for_longer_than_its_lease_is_removed_by_the_others() {
    let (_server, redis) = open().await;
    redis.enter(&member("short", "1", 200)).await.unwrap();
    redis.enter(&member("long", "1", LONG)).await.unwrap();
    until("the silent one is removed", async || {
        names(&redis.renew(&member("long", "1", LONG)).await.unwrap()) == ["long"]
    })
    .await;
    let short = member("short", "1", 200);
    assert_eq!(redis.renew(&short).await, Ok(Renewed::Evicted));
    assert_eq!(redis.enter(&short).await, Ok(Renewed::Evicted));
    assert_eq!(redis.declare_dead_if(&short.holder, false).await, Ok(true));
    let next = redis.enter(&member("short", "2", 200)).await.unwrap();
    assert_eq!(names(&next), ["long", "short"]);
}

#[tokio::test]
async fn only_the_silent_and_the_suspect_are_buried() {
    let (_server, redis) = open().await;
    let (one, two) = (member("one", "1", LONG), member("two", "1", 200));
    redis.enter(&one).await.unwrap();
    redis.enter(&two).await.unwrap();
    assert_eq!(redis.declare_dead_if(&one.holder, false).await, Ok(false));
    assert_eq!(names(&redis.renew(&one).await.unwrap())[0], "one");
    until("two is dead", async || redis.declare_dead_if(&two.holder, false).await.unwrap()).await;
    assert_eq!(redis.renew(&two).await, Ok(Renewed::Evicted));
    assert_eq!(redis.declare_dead_if(&one.holder, true).await, Ok(true));
    assert_eq!(redis.renew(&one).await, Ok(Renewed::Evicted));
    assert_eq!(redis.enter(&one).await, Ok(Renewed::Evicted));
}

#[tokio::test]
async fn who_was_never_a_member_is_dead_and_stays_so() {
    let (_server, redis) = open().await;
    let one = member("one", "1", LONG);
    assert_eq!(redis.renew(&one).await, Ok(Renewed::Evicted));
    assert_eq!(redis.declare_dead_if(&one.holder, false).await, Ok(true));
    assert_eq!(redis.enter(&one).await, Ok(Renewed::Evicted));
}

#[tokio::test]
async fn a_new_incarnation_is_the_death_of_the_earlier_one() {
    let (_server, redis) = open().await;
    let (one, two) = (member("a", "1", LONG), member("a", "2", LONG));
    redis.enter(&one).await.unwrap();
    let entered = redis.enter(&two).await.unwrap();
    assert_eq!(names(&entered), ["a"]);
    assert_eq!(redis.renew(&one).await, Ok(Renewed::Evicted));
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
        ..member("a", incarnation, LONG)
    };
    redis.enter(&of("old", "1")).await.unwrap();
    redis.leave(&of("old", "1").holder).await.unwrap();
    redis.enter(&of("new", "2")).await.unwrap();
    assert_eq!(redis.enter(&of("old", "3")).await, Ok(Renewed::Evicted));
    assert_eq!(names(&redis.renew(&of("new", "2")).await.unwrap()), ["a"]);
    assert_eq!(names(&redis.enter(&of("new", "4")).await.unwrap()), ["a"]);
}

#[tokio::test]
async fn who_leaves_is_gone_at_once_and_for_ever() {
    let (_server, redis) = open().await;
    let (one, two) = (member("one", "1", LONG), member("two", "1", LONG));
    redis.enter(&one).await.unwrap();
    redis.enter(&two).await.unwrap();
    redis.leave(&one.holder).await.unwrap();
    assert_eq!(names(&redis.renew(&two).await.unwrap()), ["two"]);
    assert_eq!(redis.renew(&one).await, Ok(Renewed::Evicted));
    assert_eq!(redis.enter(&one).await, Ok(Renewed::Evicted));
}

#[tokio::test]
async fn after_the_server_was_away_nobody_dies_of_its_absence() {
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
