//! The operators' audit under several nodes, lost replies, and a server that refuses it.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;

use super::super::super::conformance::*;
use super::super::super::operations::{Effect, OperationLog};
use super::super::super::{KeyChange, Store};
use super::super::{Durability, Redis};
use super::proxy::Proxy;
use super::servers::Server;
use super::single::assert_unavailable;

async fn open(server: &Server) -> Arc<Redis> {
    Arc::new(Redis::open(&server.url(), Durability::Os).await.unwrap())
}

#[tokio::test]
async fn nodes_that_operate_at_once_do_not_fork_a_chain() {
    let server = Server::start(&["--appendfsync", "no"]).await;
    let nodes = [open(&server).await, open(&server).await, open(&server).await];
    let operate = |number: usize| {
        let store = nodes[number % 3].clone();
        async move {
            let change = Effect::ChangeKey(KeyChange::Add(key(&number.to_string(), "k")));
            store.operate(&operation(Some("default"), &number.to_string()), change).await
        }
    };
    for outcome in join_all((0..36).map(operate)).await {
        assert!(outcome.unwrap().entry.is_some());
    }
    for chain in [None, Some(own())] {
        let targets = targets(&*nodes[0], chain.as_ref()).await;
        assert_eq!((targets.len(), targets.iter().collect::<BTreeSet<_>>().len()), (36, 36));
    }
    assert_eq!(nodes[1].tenants_keys(&own()).await.unwrap().len(), 36);
}

#[tokio::test]
async fn an_operation_whose_reply_was_lost_has_one_entry() {
    let server = Server::start(&["--appendfsync", "no"]).await;
    let direct = open(&server).await;
    let proxy = Proxy::to(server.port).await;
    let mut lossy = Redis::open(&proxy.url(), Durability::Os).await.unwrap();
    // A reply that is lost must be one of the test's own.
    lossy._watching.abort_all();
    let change = |id: &str| Effect::ChangeKey(KeyChange::Add(key(id, "k")));
    for effect in [change("warm"), Effect::Follows] {
        lossy.operate(&operation(Some("default"), "warm"), effect).await.unwrap();
    }
    let mut entries = 2;
    for effect in [change("a"), Effect::Follows] {
        // Each end of a chain is read first, on another connection.
        proxy.lose_nth_reply(3);
        let outcome = lossy.operate(&operation(Some("default"), "a"), effect).await.unwrap();
        assert!(proxy.has_lost_reply() && outcome.entry.is_some());
        entries += 1;
        assert_eq!(targets(&*direct, None).await.len(), entries);
        assert_eq!(targets(&*direct, Some(&own())).await.len(), entries);
    }
}

#[tokio::test]
async fn what_cannot_be_recorded_is_not_done() {
    let server = Server::start(&["--appendfsync", "no"]).await;
    let store = open(&server).await;
    let change = |id: &str| Effect::ChangeKey(KeyChange::Add(key(id, "k")));
    store.operate(&operation(None, "a"), change("a")).await.unwrap();
    server.ask::<()>(&["RENAME", "abide:{agents}:operations", "aside"]).await;
    server.ask::<()>(&["SET", "abide:{agents}:operations", "broken"]).await;
    let refused = store.operate(&operation(None, "b"), change("b")).await;
    assert_unavailable(refused, "WRONGTYPE");
    assert_eq!(store.tenants_keys(&own()).await, Ok(vec![key("a", "k")]));
    server.ask::<()>(&["RENAME", "aside", "abide:{agents}:operations"]).await;
    store.operate(&operation(None, "b"), change("b")).await.unwrap();
    assert_eq!(targets(&*store, None).await, ["a", "b"]);
    assert_eq!(store.tenants_keys(&own()).await.unwrap().len(), 2);
}
