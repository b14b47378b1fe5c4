//! The store on a disk that is full or broken, and then works again.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use abide_actors::journal::{Journal, StoreError};

use super::super::super::conformance::*;
use abide_conversation::{ConversationId, Scoped};

use super::super::super::operations::{Effect, OperationLog};
use super::super::super::{KeyChange, Store};
use super::super::{Durability, Embedded};
use super::Fault;
use super::files::open;

fn inject_fault(store: &Embedded, fault: Fault) {
    *store.shared.probe.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
}

/// Appends until the first refusal, and returns the last acknowledged `seq`.
async fn append_until_refused(store: &Embedded, from: u64) -> (u64, StoreError) {
    let held = claim_conversation(store, "a").await;
    let mut acknowledged = from;
    loop {
        let seq = acknowledged + 1;
        let mut next = commit(seq, seq);
        Arc::make_mut(&mut next.events)[0] = event_of(seq, &"x".repeat(20_000));
        match store.append(&id("a"), &held, next).await {
            Ok(()) => acknowledged = seq,
            Err(refusal) => return (acknowledged, refusal),
        }
    }
}

/// Retries until the store is available again. Needs no pause: every try awaits the store.
async fn last_seq(store: &Embedded, id: &Scoped<ConversationId>) -> u64 {
    loop {
        match store.load(id).await {
            Ok(loaded) => {
                let events = loaded.map_or_else(Vec::new, |loaded| loaded.events);
                assert!((1..).zip(&events).all(|(seq, event)| event.seq.get() == seq));
                return events.len() as u64;
            }
            Err(StoreError::Unavailable(_)) => tokio::task::yield_now().await,
            Err(refusal) => panic!("{refusal}"),
        }
    }
}

async fn check_recovery(dir: &Path, fault: impl Fn() -> Fault) {
    let store = open(dir);
    let mut last = 0;
    for _ in 0..3 {
        if last == 0 {
            let held = claim_conversation(&store, "a").await;
            store.append(&id("a"), &held, commit(1, 1)).await.unwrap();
            last = 1;
        }
        inject_fault(&store, fault());
        let (acknowledged, refusal) = append_until_refused(&store, last).await;
        assert!(matches!(refusal, StoreError::Unavailable(_)), "{refusal}");
        let held = claim_conversation(&store, "a").await;
        let next = commit(acknowledged + 1, acknowledged + 1);
        let again = store.append(&id("a"), &held, next).await;
        assert_ne!(again, Ok(()), "while the fault lasts");
        inject_fault(&store, Fault::None);
        let found = last_seq(&store, &id("a")).await;
        assert!(found == acknowledged || found == acknowledged + 1, "{found}, {acknowledged}");
        let next = commit(found + 1, found + 1);
        store.append(&id("a"), &held, next).await.unwrap();
        last = found + 1;
    }
    drop(store);
    assert_eq!(last_seq(&open(dir), &id("a")).await, last);
}

#[tokio::test]
async fn a_full_disk_is_unavailable_until_it_has_room() {
    let dir = tempfile::tempdir().unwrap();
    check_recovery(dir.path(), || Fault::Room(200_000)).await;
}

#[tokio::test]
async fn a_broken_disk_is_unavailable_until_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    check_recovery(dir.path(), || Fault::Broken).await;
}

#[tokio::test]
async fn what_cannot_be_recorded_is_not_done() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let add = |id: &str| Effect::ChangeKey(KeyChange::Add(key(id, "k")));
    store.operate(&operation(None, "a"), add("a")).await.unwrap();
    inject_fault(&store, Fault::Broken);
    for effect in [add("b"), Effect::Follows] {
        let refused = store.operate(&operation(None, "b"), effect).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    }
    inject_fault(&store, Fault::None);
    last_seq(&store, &id("c")).await;
    assert_eq!(store.tenants_keys(&own()).await, Ok(vec![key("a", "k")]));
    assert_eq!(targets(&store, None).await, ["a"]);
    store.operate(&operation(None, "b"), add("b")).await.unwrap();
    assert_eq!(targets(&store, None).await, ["a", "b"]);
}

#[tokio::test]
async fn claims_change_hands_while_the_disk_is_broken() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let old = create_conversation(&store, "a").await;
    inject_fault(&store, Fault::Broken);
    assert!(store.append(&id("a"), &old, commit(2, 2)).await.is_err());
    let new = store.claim(&id("a"), &holder("m"), Some(&old.holder)).await.unwrap();
    assert!(new.epoch > old.epoch);
    store.release(&id("a"), &new).await.unwrap();
    assert_eq!(store.current_claim(&id("a")).await, Ok(None));
    drop(store);
}

#[tokio::test]
async fn after_a_failed_fsync_nothing_is_served_until_another_process_opens_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), Durability::Fsync).unwrap();
    let held = create_conversation(&store, "a").await;
    inject_fault(&store, Fault::Sync);
    let refused = store.append(&id("a"), &held, commit(2, 2)).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    inject_fault(&store, Fault::None);
    let reason = store.failure_watch().failed().await;
    assert!(reason.contains("fsync"), "{reason}");
    let next = commit(2, 2);
    assert!(matches!(store.append(&id("a"), &held, next).await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.load(&id("a")).await, Err(StoreError::Unavailable(_))));
    drop(store);
    let found = last_seq(&open(dir.path()), &id("a")).await;
    assert!(found == 1 || found == 2, "{found}");
}

#[tokio::test]
async fn a_writer_that_panics_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let held = create_conversation(&store, "a").await;
    inject_fault(&store, Fault::Panic);
    let refused = store.append(&id("a"), &held, commit(2, 2)).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    assert_eq!(store.failure_watch().failed().await, "its writer panicked");
    // The panic has poisoned the locks of the database, which panics when it is dropped. A node
    // ends its process instead.
    std::mem::forget(store);
}
