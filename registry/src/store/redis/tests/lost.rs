//! Every script whose answer was lost is repeated, and takes effect once.

use std::sync::Arc;

use abide_actors::journal::{InboxFilter, Journal};
use abide_conversation::Seq;

use super::super::super::conformance::*;
use super::super::super::{Store, StoredAgent};
use super::super::{Durability, Redis};
use super::members::{member, names};
use super::proxy::Proxy;
use super::servers::Server;
use crate::membership::{Membership, Renewed};

/// Two stores on one server, of which the second connects through the proxy.
async fn two() -> (Server, Redis, Proxy, Redis) {
    let server = Server::start(&["--appendfsync", "no"]).await;
    let direct = Redis::open(&server.url(), Durability::Os).await.unwrap();
    let proxy = Proxy::to(server.port).await;
    let lossy = Redis::open(&proxy.url(), Durability::Os).await.unwrap();
    (server, direct, proxy, lossy)
}

/// Runs the call once, so that the server knows the script and the connection is open, then again
/// with a lost answer.
async fn twice<T>(proxy: &Proxy, mut what: impl AsyncFnMut(&'static str) -> T) -> T {
    what("warm").await;
    proxy.lose_an_answer();
    let outcome = what("a").await;
    assert!(proxy.has_lost_it());
    outcome
}

#[tokio::test]
async fn an_append_recognises_its_own_commit() {
    let (_server, direct, proxy, lossy) = two().await;
    let mut whole = commit(1, 3);
    whole.head.alarm = Some(at(60));
    whole.opened.push(pending("call_1", 1, 60));
    whole.answers.push(answer("key:1", "yes", 60));
    let appended = twice(&proxy, async |name| {
        let held = claimed(&direct, name).await;
        lossy.append(&id(name), &held, whole.clone()).await
    });
    assert_eq!(appended.await, Ok(()));
    assert_eq!(direct.events(&id("a"), Seq::ZERO, 9).await.unwrap(), *whole.events);
    let inbox = InboxFilter { conversation: Some(id("a")), ..Default::default() };
    assert_eq!(direct.inbox(&inbox, None, 9).await.unwrap().items.len(), 1);
    let held = direct.holding(&id("a")).await.unwrap().unwrap();
    assert_eq!(lossy.append(&id("a"), &held, commit(4, 4)).await, Ok(()));
}

#[tokio::test]
async fn a_claim_and_a_release_and_a_deletion_bear_repeating() {
    let (_server, direct, proxy, lossy) = two().await;
    let claim = async |name| lossy.claim(&id(name), &holder("n"), None).await.unwrap();
    let held = twice(&proxy, claim).await;
    assert_eq!(direct.holding(&id("a")).await, Ok(Some(held.clone())));
    let taken = twice(&proxy, async |name| {
        lossy.claim(&id(name), &holder("m"), Some(&holder("n"))).await.unwrap()
    });
    let taken = taken.await;
    assert_eq!((&taken.holder, taken.epoch), (&holder("m"), held.epoch + 1));

    let deleted = twice(&proxy, async |name| {
        let held = direct.holding(&id(name)).await.unwrap().unwrap();
        direct.append(&id(name), &held, commit(1, 2)).await.unwrap();
        lossy.delete(&id(name), &held, Some(answer("key:1", "gone", 60))).await
    });
    assert_eq!(deleted.await, Ok(()));
    assert_eq!(direct.head(&id("a")).await, Ok(None));
    assert!(direct.answer("a", "key:1", at(0)).await.unwrap().is_some());

    let released = twice(&proxy, async |name| {
        let held = claimed(&direct, name).await;
        lossy.release(&id(name), &held).await
    });
    assert_eq!(released.await, Ok(()));
    assert_eq!(direct.holding(&id("a")).await, Ok(None));
}

#[tokio::test]
async fn a_reservation_knows_that_it_is_its_own() {
    let (_server, direct, proxy, lossy) = two().await;
    let reserve = async |scope| lossy.reserve(scope, answer("key:1", "x", 60), at(0)).await;
    assert_eq!(twice(&proxy, reserve).await, Ok(true));
    assert_eq!(direct.reserve("a", answer("key:1", "x", 60), at(0)).await, Ok(false));
}

#[tokio::test]
async fn an_agent_is_new_once_and_deleted_once() {
    let (_server, direct, proxy, lossy) = two().await;
    let agent = |name: &str| StoredAgent {
        name: abide_conversation::AgentName::new(name),
        revision: abide_conversation::Revision::new("r1"),
        definition: serde_json::json!({}),
    };
    let put = async |name| lossy.put_agent(agent(name), None).await;
    assert_eq!(twice(&proxy, put).await, Ok(true));
    let delete = async |name| lossy.delete_agent(&agent(name).name, None).await;
    assert_eq!(twice(&proxy, delete).await, Ok(true));
    assert_eq!(direct.agents().await, Ok(vec![]));
}

#[tokio::test]
async fn a_member_enters_renews_and_leaves_once() {
    let (_server, direct, proxy, lossy) = two().await;
    let entered = twice(&proxy, async |name| lossy.enter(&member(name, "1", 5_000)).await.unwrap());
    assert_eq!(names(&entered.await), ["a", "warm"]);
    let renewed = twice(&proxy, async |name| lossy.renew(&member(name, "1", 5_000)).await.unwrap());
    assert_eq!(names(&renewed.await), ["a", "warm"]);
    let buried =
        twice(&proxy, async |name| lossy.declare_dead_if(&member(name, "1", 0).holder, true).await);
    assert_eq!(buried.await, Ok(true));
    assert_eq!(direct.renew(&member("a", "1", 5_000)).await, Ok(Renewed::Evicted));
}

#[tokio::test]
async fn a_connection_that_hangs_is_replaced() {
    let (_server, _direct, proxy, lossy) = two().await;
    let lossy: Arc<dyn Store> = Arc::new(lossy);
    let held = created(&*lossy, "a").await;
    proxy.hang(true);
    let refused = lossy.append(&id("a"), &held, commit(2, 2)).await;
    assert!(
        matches!(refused, Err(abide_actors::journal::StoreError::Unavailable(_))),
        "{refused:?}"
    );
    proxy.hang(false);
    // It took effect although its answer was lost: the journal has moved on.
    assert_eq!(lossy.load(&id("a")).await.unwrap().unwrap().events.len(), 2);
    assert_eq!(lossy.append(&id("a"), &held, commit(3, 3)).await, Ok(()));
}
