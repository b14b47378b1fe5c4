//! The operators' audit under several nodes, lost replies, and a server that refuses it.

use std::collections::BTreeSet;
use std::future::{Future as _, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use abide_actors::blobs::{Blob, Blobs};
use abide_conversation::{AgentName, Revision};
use futures::future::join_all;
use serde_json::json;

use super::super::super::conformance::*;
use super::super::super::operations::{Effect, OperationLog};
use super::super::super::{KeyChange, Store, StoredAgent};
use super::super::command::keys::Tag;
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

/// The effects that the stores carry out, each of which finds what it is for.
async fn prepared_effects(store: &Redis) -> Vec<Effect> {
    let (demo, blob) = (scoped("demo"), Blob::new("text/plain", "one"));
    let agent = |revision: &str| StoredAgent {
        name: AgentName::new("demo"),
        revision: Revision::new(revision),
        definition: json!({}),
        put_at: None,
    };
    store.put_agent(&own(), agent("r1"), None).await.unwrap();
    let remembered = decision("ann");
    store.set_decision(&demo, &remembered.id, Some(&remembered)).await.unwrap();
    store.change_key(KeyChange::Add(key("k", "one"))).await.unwrap();
    store.put_blob(&blob_id(&blob), &blob).await.unwrap();
    vec![
        Effect::PutAgent {
            tenant: own(),
            agent: agent("r2"),
            response: None,
            newest: Some(Revision::new("r1")),
        },
        Effect::ReplaceDecision { agent: demo.clone(), decision: decision("ops") },
        Effect::ChangeKey(KeyChange::Add(key("new", "two"))),
        Effect::ChangeKey(KeyChange::Update(key("k", "two"))),
        Effect::ChangeKey(KeyChange::Remove(scoped("k"))),
        Effect::DeleteBlob(blob_id(&blob)),
        Effect::DeleteAgent { name: demo, response: None },
    ]
}

/// What the effects change.
async fn seen(store: &Redis) -> String {
    let blob = blob_id(&Blob::new("text/plain", "one"));
    let seen = (
        store.agents(&own()).await,
        store.decisions(&scoped("demo")).await,
        store.keys(None).await.map(|list| list.map(|list| list.keys.len())),
        store.keys(None).await.map(|list| list.map(|list| list.version)),
        store.blob_info(&blob).await,
    );
    format!("{seen:?}")
}

#[tokio::test]
async fn what_cannot_be_recorded_is_not_done() {
    let server = Server::start(&["--appendfsync", "no"]).await;
    let store = open(&server).await;
    let effects = prepared_effects(&store).await;
    store.operate(&operation(None, "a"), Effect::Follows).await.unwrap();
    let before = seen(&store).await;
    server.ask::<()>(&["RENAME", "abide:{agents}:operations", "aside"]).await;
    server.ask::<()>(&["SET", "abide:{agents}:operations", "broken"]).await;
    for effect in effects.iter().chain([&Effect::Follows]) {
        let refused = store.operate(&operation(None, "b"), effect.clone()).await;
        assert_unavailable(refused, "WRONGTYPE");
        assert_eq!(seen(&store).await, before, "{effect:?}");
    }
    server.ask::<()>(&["RENAME", "aside", "abide:{agents}:operations"]).await;
    for effect in effects {
        let seen_before = seen(&store).await;
        let done = store.operate(&operation(None, "b"), effect.clone()).await.unwrap();
        assert!(done.entry.is_some(), "{effect:?}");
        assert_ne!(seen(&store).await, seen_before, "{effect:?}");
    }
    assert_eq!(targets(&*store, None).await.len(), 8);
}

#[tokio::test]
async fn a_blob_whose_deletion_was_recorded_by_a_node_that_died_is_deleted_by_another_one() {
    let server = Server::start(&["--appendfsync", "no"]).await;
    let store = open(&server).await;
    let blob = Blob::new("text/plain", "one");
    let id = blob_id(&blob);
    store.put_blob(&id, &blob).await.unwrap();
    // The server refuses the deletion itself, as if the node had died before it.
    server.ask::<()>(&["ACL", "SETUSER", "default", "-unlink"]).await;
    let operation = operation(Some("default"), "blob");
    let refused = store.operate(&operation, Effect::DeleteBlob(id.clone())).await;
    assert_unavailable(refused, "can't run this command");
    assert!(store.blob_info(&id).await.unwrap().is_some());
    assert_eq!(targets(&*store, None).await, ["blob"]);
    server.ask::<()>(&["ACL", "SETUSER", "default", "+unlink"]).await;
    let other = open(&server).await;
    let repeated = other.operate(&operation, Effect::DeleteBlob(id.clone())).await.unwrap();
    assert!(repeated.answer && repeated.entry.is_some());
    assert_eq!(other.blob_info(&id).await, Ok(None));
    assert_eq!(targets(&*other, None).await, ["blob", "blob"]);
}

/// The number of keys, each of which has its entry in the tenant's chain, and no entry is without one.
async fn count_recorded_keys(store: &Redis) -> usize {
    let keys = store.tenants_keys(&own()).await.unwrap();
    let keys: BTreeSet<String> = keys.into_iter().map(|key| key.id).collect();
    assert_eq!(keys, BTreeSet::from_iter(targets(store, Some(&own())).await));
    keys.len()
}

#[tokio::test]
async fn a_node_that_dies_at_any_moment_leaves_an_entry_and_its_effect_or_neither() {
    let server = Server::start(&["--appendfsync", "no"]).await;
    let observer = open(&server).await;
    let mut completed = 0;
    for steps in 0..24 {
        let store = open(&server).await;
        let id = steps.to_string();
        let change = Effect::ChangeKey(KeyChange::Add(key(&id, "k")));
        let recorded = operation(Some("default"), &id);
        let mut dying = Box::pin(store.operate(&recorded, change));
        let mut polls = 0;
        // Each poll but the first follows something that the server has answered.
        let is_complete = poll_fn(|context| {
            polls += 1;
            match dying.as_mut().poll(context) {
                Poll::Ready(_) => Poll::Ready(true),
                Poll::Pending if polls > steps => Poll::Ready(false),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        completed += usize::from(is_complete);
        drop(dying);
        // What the node had sent is carried out before what it sends now.
        store.operate(&operation(None, "end"), Effect::Follows).await.unwrap();
        count_recorded_keys(&observer).await;
    }
    let keys = count_recorded_keys(&observer).await;
    assert!(keys >= completed, "{keys} of {completed} operations that ended have their effect");
    assert!((1..24).contains(&keys), "{keys}: nodes died too early, or too late");
}

#[tokio::test]
async fn a_decision_that_was_revoked_after_it_was_read_is_not_replaced() {
    let server = Server::start(&["--appendfsync", "no"]).await;
    let store = Redis::open(&server.url(), Durability::Os).await.unwrap();
    let (demo, first) = (scoped("demo"), decision("ann"));
    store.set_decision(&demo, &first.id, Some(&first)).await.unwrap();
    let key = Tag::Agents.key_of("decisions", demo.as_str());
    let stored: Vec<u8> = server.ask(&["HGET", &key, first.id.as_str()]).await;
    let replace =
        async |next: &[u8]| store.replace_decision_by_script(&demo, &first.id, &stored, next).await;
    assert_eq!(replace(b"{}").await, Ok(true));
    assert_eq!(replace(b"{}").await, Ok(true), "it is a repeat");
    assert_eq!(replace(b"[]").await, Ok(false), "another one is there");
    store.set_decision(&demo, &first.id, None).await.unwrap();
    assert_eq!(replace(b"{}").await, Ok(false), "it was revoked");
    assert_eq!(store.decisions(&demo).await, Ok(vec![]));
}
