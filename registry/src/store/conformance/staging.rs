//! Promises about journals that are being imported.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;

use abide_actors::journal::{Claim, StoreError};
use abide_conversation::{Event, Seq};

use super::super::{StagedJournal, Store, SummaryFilter};
use super::fixtures::*;

/// An import of the conversation `a` that has these many events aside.
fn staged(import: &str, last_seq: u64) -> StagedJournal {
    let (last_seq, blobs) = (Seq::new(last_seq), BTreeSet::new());
    StagedJournal { id: id("a"), import: import.to_owned(), last_seq, blobs }
}

fn events(first: u64, last: u64) -> Arc<[Event]> {
    (first..=last).map(event).collect()
}

async fn stage_two_pages(store: &dyn Store, import: &str) {
    store.stage(&staged(import, 0), events(1, 3)).await.unwrap();
    store.stage(&staged(import, 3), events(4, 5)).await.unwrap();
}

async fn is_seen(store: &dyn Store) -> bool {
    let listed = store.conversations(&own(), &SummaryFilter::default(), None, 9).await.unwrap();
    let found = store.list(&own(), &Default::default(), None, 9).await.unwrap();
    let has_any = store.summary(&id("a")).await.unwrap().is_some()
        || store.load(&id("a")).await.unwrap().is_some()
        || !store.events(&id("a"), Seq::ZERO, 9).await.unwrap().is_empty()
        || store.last_seqs(&[id("a")]).await.unwrap() != [None];
    has_any || !listed.items.is_empty() || !found.items.is_empty()
}

pub(in super::super) async fn what_is_aside_is_seen_by_nobody_until_it_is_published(
    store: Arc<dyn Store>,
) {
    let store = &*store;
    // One that died.
    store.stage(&staged("dead", 0), events(1, 2)).await.unwrap();
    stage_two_pages(store, "i").await;
    assert!(!is_seen(store).await);
    let held = claim_conversation(store, "a").await;
    assert!(!is_seen(store).await);
    let mut end = commit(6, 7);
    end.summary.alarm = Some(at(60));
    end.opened.push(pending_call("call_1", 1, 60));
    store.publish(&staged("i", 5), &held, end).await.unwrap();
    assert_eq!(store.alarms(9).await, Ok(vec![(id("a"), at(60))]));
    let inbox = store.inbox(&own(), &Default::default(), None, 9).await.unwrap();
    assert_eq!(inbox.items.len(), 1);
    assert_eq!(store.events(&id("a"), Seq::ZERO, 9).await.unwrap(), events(1, 7).to_vec());
    assert_eq!(store.summary(&id("a")).await.unwrap().unwrap().last_seq, Seq::new(7));
    assert!(is_seen(store).await);
    store.append(&id("a"), &held, commit(8, 8)).await.unwrap();
    assert_eq!(store.events(&id("a"), Seq::ZERO, 9).await.unwrap().len(), 8);
    store.delete(&id("a"), &held, None, Vec::new()).await.unwrap();
    assert!(!is_seen(store).await);
}

pub(in super::super) async fn a_publication_with_the_key_of_a_deletion_is_whole_or_nothing(
    store: Arc<dyn Store>,
) {
    let store = &*store;
    let held = create_conversation(store, "a").await;
    let gone = response("key:1", "gone", 60);
    store.delete(&id("a"), &held, Some(gone), Vec::new()).await.unwrap();
    let held = claim_conversation(store, "a").await;
    stage_two_pages(store, "i").await;
    let mut last = commit(6, 7);
    last.responses = vec![response("key:1", "imported", 60)];
    // Only a store that may have read too little tells one from the other.
    let published = store.publish(&staged("i", 5), &held, last).await;
    let found = store.events(&id("a"), Seq::ZERO, 9).await.unwrap();
    assert_eq!(found.len(), if published.is_ok() { 7 } else { 0 }, "{published:?}");
    assert_eq!(is_seen(store).await, published.is_ok());
}

pub(in super::super) async fn a_publication_is_refused_where_a_conversation_is_or_events_are_missing(
    store: Arc<dyn Store>,
) {
    let store = &*store;
    let refused = async |import: &str, held: &Claim| {
        store.publish(&staged(import, 5), held, commit(6, 6)).await.unwrap_err()
    };
    let held = claim_conversation(store, "a").await;
    stage_two_pages(store, "i").await;
    let other = Claim { epoch: held.epoch.next(), ..held.clone() };
    assert_eq!(refused("i", &other).await, StoreError::Fenced);
    assert!(matches!(refused("nothing", &held).await, StoreError::Unavailable(_)));
    store.stage(&staged("short", 0), events(1, 3)).await.unwrap();
    assert!(matches!(refused("short", &held).await, StoreError::Unavailable(_)));
    assert!(!is_seen(store).await);
    store.unstage(&staged("i", 5)).await.unwrap();
    assert!(matches!(refused("i", &held).await, StoreError::Unavailable(_)));
    stage_two_pages(store, "j").await;
    let gap = store.stage(&staged("j", 9), events(10, 10)).await;
    assert!(matches!(gap, Err(StoreError::Unavailable(_))), "{gap:?}");
    assert!(!is_seen(store).await);
    let gap = store.publish(&staged("j", 5), &held, commit(7, 7)).await;
    assert_eq!(gap, Err(StoreError::Conflict));
    assert!(!is_seen(store).await);
    stage_two_pages(store, "k").await;
    store.append(&id("a"), &held, commit(1, 1)).await.unwrap();
    assert_eq!(refused("k", &held).await, StoreError::Conflict);
    assert_eq!(store.events(&id("a"), Seq::ZERO, 9).await.unwrap(), events(1, 1).to_vec());
}
