//! Imports of long journals, which are moved in slices.

use std::collections::BTreeSet;
use std::path::Path;

use abide_actors::journal::{Claim, Journal, StoreError};
use abide_conversation::Seq;
use redb::{Database, ReadableDatabase, ReadableTableMetadata};

use super::super::super::conformance::*;
use super::super::super::{StagedJournal, Staging, Store};
use super::super::staging::StageWrite;
use super::super::write::Write;
use super::super::{Embedded, tables};
use super::files::open;

/// The events of a journal that takes several slices.
const EVENTS: u64 = 3_500;

fn staged(import: &str, last_seq: u64) -> StagedJournal {
    let (import, last_seq) = (import.to_owned(), Seq::new(last_seq));
    StagedJournal { id: id("a"), import, last_seq, blobs: BTreeSet::new() }
}

async fn stage(store: &Embedded, import: &str) {
    let events = (1..=EVENTS).map(event).collect();
    store.stage(&staged(import, 0), events).await.unwrap();
}

/// Moves one slice.
async fn promote(store: &Embedded, import: &str, held: &Claim) {
    let (staged, held) = (staged(import, EVENTS), held.clone());
    let moved = store.write(Write::Stage(StageWrite::Promote { staged, held })).await;
    assert_eq!(moved, Ok(true));
}

async fn assert_unseen(store: &Embedded) {
    assert_eq!(store.load(&id("a")).await, Ok(None));
    assert_eq!(store.summary(&id("a")).await, Ok(None));
    assert_eq!(store.events(&id("a"), Seq::ZERO, 9).await, Ok(vec![]));
    assert_eq!(store.events_before(&id("a"), Seq::MAX, 9).await, Ok(vec![]));
    let listed = store.conversations(&own(), &Default::default(), None, 9).await.unwrap();
    assert!(listed.items.iter().all(|(listed, _)| *listed != id("a")));
}

/// The number of event rows in the file.
fn rows(dir: &Path) -> u64 {
    let database = Database::open(dir.join("abide.redb")).unwrap();
    database.begin_read().unwrap().open_table(tables::JOURNAL).unwrap().len().unwrap()
}

#[tokio::test]
async fn a_long_import_is_moved_in_slices_and_seen_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    stage(&store, "i").await;
    let held = claim_conversation(&store, "a").await;
    promote(&store, "i", &held).await;
    assert_unseen(&store).await;
    // Others write in between.
    create_conversation(&store, "b").await;
    let before = store.stats().commits;
    let end = commit(EVENTS + 1, EVENTS + 1);
    store.publish(&staged("i", EVENTS), &held, end).await.unwrap();
    assert!(store.stats().commits - before >= EVENTS / 1_000);
    let events = store.events(&id("a"), Seq::ZERO, usize::MAX).await.unwrap();
    assert_eq!(events, (1..=EVENTS + 1).map(event).collect::<Vec<_>>());
    drop(store);
    assert_eq!(rows(dir.path()), EVENTS + 2);
    let store = open(dir.path());
    assert_eq!(store.summary(&id("a")).await.unwrap().unwrap().last_seq, Seq::new(EVENTS + 1));
    drop(store);
    assert_eq!(rows(dir.path()), EVENTS + 2, "nothing of it is removed");
}

#[tokio::test]
async fn what_an_import_has_moved_is_removed_when_its_process_has_died() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    stage(&store, "i").await;
    promote(&store, "i", &claim_conversation(&store, "a").await).await;
    drop(store);
    assert_eq!(rows(dir.path()), 1_000);
    let store = open(dir.path());
    assert_unseen(&store).await;
    create_conversation(&store, "a").await;
    assert_eq!(store.events(&id("a"), Seq::ZERO, usize::MAX).await, Ok(vec![event(1)]));
    drop(store);
    assert_eq!(rows(dir.path()), 1);
}

#[tokio::test]
async fn a_long_import_leaves_a_conversation_alone_that_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    stage(&store, "i").await;
    let held = create_conversation(&store, "a").await;
    let end = commit(EVENTS + 1, EVENTS + 1);
    let refused = store.publish(&staged("i", EVENTS), &held, end).await;
    assert_eq!(refused, Err(StoreError::Conflict));
    assert_eq!(store.events(&id("a"), Seq::ZERO, usize::MAX).await, Ok(vec![event(1)]));
}

#[tokio::test]
async fn a_conversation_of_the_same_id_waits_until_a_failed_import_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    stage(&store, "i").await;
    let held = claim_conversation(&store, "a").await;
    promote(&store, "i", &held).await;
    promote(&store, "i", &held).await;
    let next = store.claim(&id("a"), &holder("n"), Some(&holder("n"))).await.unwrap();
    let a = id("a");
    let created = store.append(&a, &next, commit(1, 1));
    let failed = async {
        let end = commit(EVENTS + 1, EVENTS + 1);
        let refused = store.publish(&staged("i", EVENTS), &held, end).await;
        store.unstage(&staged("i", EVENTS)).await.unwrap();
        refused
    };
    let (created, failed) = tokio::join!(created, failed);
    assert_eq!(created, Ok(()));
    assert!(failed.is_err());
    assert_eq!(store.events(&id("a"), Seq::ZERO, usize::MAX).await, Ok(vec![event(1)]));
    drop(store);
    assert_eq!(rows(dir.path()), 1);
}
