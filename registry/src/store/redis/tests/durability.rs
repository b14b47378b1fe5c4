//! The durability is checked as long as the store is open.

use std::num::NonZeroU8;

use abide_actors::journal::{Journal, StoreError};

use super::super::super::Store;
use super::super::super::conformance::*;
use super::super::{Durability, Redis};
use super::members::member;
use super::servers::{Server, wait_until};
use crate::membership::{Membership, MembershipStatus};

fn assert_refused<T: std::fmt::Debug>(outcome: Result<T, StoreError>, with: &str) {
    match outcome {
        Err(StoreError::Unavailable(why)) => assert!(why.contains(with), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn writes_are_refused_as_long_as_a_setting_breaks_the_promise() {
    let server = Server::start(&["--appendfsync", "always"]).await;
    let store = Redis::open(&server.url(), Durability::Fsync).await.unwrap();
    let held = create_conversation(&store, "a").await;
    let me = member("n", "1", 60_000);
    store.enter(&me).await.unwrap();
    server.ask::<()>(&["CONFIG", "SET", "appendfsync", "everysec"]).await;
    wait_until("the store knows", async || store.require_durability().is_err()).await;
    let why = store.require_durability().unwrap_err();
    assert!(why.contains("appendfsync is everysec, and must be always"), "{why}");
    assert!(why.contains(&server.port.to_string()), "{why}");
    assert_refused(store.append(&id("a"), &held, commit(2, 2)).await, "must be always");
    // Reads, claims and the membership go on.
    assert_eq!(store.load(&id("a")).await.unwrap().unwrap().events.len(), 1);
    assert!(store.claim(&id("a"), &holder("m"), None).await.is_ok());
    assert!(matches!(store.renew(&me).await, Ok(MembershipStatus::Alive { .. })));
    server.ask::<()>(&["CONFIG", "SET", "appendfsync", "always"]).await;
    wait_until("the store accepts writes", async || store.require_durability().is_ok()).await;
    assert_eq!(store.append(&id("a"), &held, commit(2, 2)).await, Ok(()));
}

#[tokio::test]
async fn no_write_is_acknowledged_by_a_new_server_that_cannot_keep_it() {
    let mut server = Server::start(&["--appendfsync", "always"]).await;
    let mut store = Redis::open(&server.url(), Durability::Fsync).await.unwrap();
    // The connection itself must find out.
    store._watching.abort_all();
    create_conversation(&store, "a").await;
    server.kill();
    server.restart_with("--appendonly", "no").await;
    // A claim promises nothing, and may be what opens the connection.
    wait_until("the store is back", async || {
        store.claim(&id("b"), &holder("n"), None).await.is_ok()
    })
    .await;
    let held = claim_conversation(&store, "b").await;
    for _ in 0..2 {
        let refused = store.append(&id("b"), &held, commit(1, 1)).await;
        assert_refused(refused, "appendonly is no, and must be yes");
    }
    assert_eq!(store.load(&id("b")).await, Ok(None));
}

#[tokio::test]
async fn a_store_without_its_replicas_says_so() {
    let primary = Server::start(&["--appendfsync", "no"]).await;
    let port = primary.port.to_string();
    let of = ["--appendfsync", "no", "--replicaof", "127.0.0.1", &port];
    let mut replica = Server::start(&of).await;
    wait_until("the primary counts its replica", async || {
        let info: String = primary.ask(&["INFO", "replication"]).await;
        info.contains("state=online")
    })
    .await;
    let wanted = Durability::Replicas(NonZeroU8::MIN);
    let store = Redis::open(&primary.url(), wanted).await.unwrap();
    assert_eq!(store.require_durability(), Ok(()));
    replica.kill();
    wait_until("the store knows", async || store.require_durability().is_err()).await;
    let why = store.require_durability().unwrap_err();
    assert!(why.contains("0 replicas are connected, and 1 are needed"), "{why}");
    replica.restart().await;
    wait_until("the store is sound", async || store.require_durability().is_ok()).await;
}
