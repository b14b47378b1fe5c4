//! The deletion of long journals, in slices.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use abide_actors::blobs::{Blob, Blobs};
use abide_actors::journal::{Claim, Commit, Journal};
use abide_conversation::Seq;
use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata};
use tokio::task::JoinSet;

use super::super::super::conformance::*;
use super::super::super::{BlobNames, Lists, Rebuild};
use super::super::staging::PromotedJournals;
use super::super::write::OpenTables;
use super::super::{Embedded, tables};
use super::files::open;
use crate::partition::PartitionSet;

/// The number of events of a journal that takes several slices to delete.
const LONG_JOURNAL_EVENTS: u64 = 5_000;

async fn append_long_journal(store: &Embedded, name: &str) -> Claim {
    let held = claim_conversation(store, name).await;
    store.append(&id(name), &held, commit(1, LONG_JOURNAL_EVENTS)).await.unwrap();
    held
}

/// The number of event rows in the file.
fn rows(dir: &Path) -> u64 {
    let database = Database::open(dir.join("abide.redb")).unwrap();
    database.begin_read().unwrap().open_table(tables::JOURNAL).unwrap().len().unwrap()
}

async fn assert_gone(store: &Embedded, name: &str) {
    let id = id(name);
    assert_eq!(store.load(&id).await, Ok(None));
    assert_eq!(store.summary(&id).await, Ok(None));
    assert_eq!(store.events(&id, Seq::ZERO, 9).await, Ok(vec![]));
    assert_eq!(store.events(&id, Seq::new(LONG_JOURNAL_EVENTS - 9), usize::MAX).await, Ok(vec![]));
    assert_eq!(store.events_before(&id, Seq::MAX, 9).await, Ok(vec![]));
}

/// Deletes a conversation as a process does that dies right after the deletion: the events remain.
fn delete_without_sweep(dir: &Path, name: &str) {
    let database = Database::open(dir.join("abide.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    tables::HEADS.open_to_write(&transaction, &own()).unwrap().remove(name).unwrap();
    transaction.open_table(tables::UNSWEPT).unwrap().insert(name, ()).unwrap();
    transaction.commit().unwrap();
}

#[tokio::test]
async fn a_long_journal_is_removed_in_slices() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for name in ["a", "b"] {
        append_long_journal(&store, name).await;
    }
    drop(store);
    delete_without_sweep(dir.path(), "a");
    delete_without_sweep(dir.path(), "b");
    let database = Database::open(dir.path().join("abide.redb")).unwrap();
    let mut slices = 0;
    loop {
        let transaction = database.begin_write().unwrap();
        let before = transaction.open_table(tables::JOURNAL).unwrap().len().unwrap();
        let promoted = PromotedJournals::default();
        let mut open = OpenTables::new(&transaction, &promoted).unwrap();
        let swept = open.sweep(None).unwrap();
        assert_eq!(open.has_unswept().unwrap(), before > 1_000);
        drop(open);
        let after = transaction.open_table(tables::JOURNAL).unwrap().len().unwrap();
        transaction.commit().unwrap();
        if !swept {
            break;
        }
        assert_eq!(after, before.saturating_sub(1_000));
        slices += 1;
    }
    assert_eq!(slices, 2 * LONG_JOURNAL_EVENTS / 1_000);
}

#[tokio::test]
async fn a_deleted_conversation_is_gone_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let held = append_long_journal(&store, "a").await;
    let other = create_conversation(&store, "b").await;
    store.delete(&id("a"), &held, None, Vec::new()).await.unwrap();
    assert_gone(&store, "a").await;
    store.append(&id("b"), &other, commit(2, 2)).await.unwrap();
}

#[tokio::test]
async fn the_next_process_finishes_an_interrupted_deletion() {
    let dir = tempfile::tempdir().unwrap();
    append_long_journal(&open(dir.path()), "a").await;
    delete_without_sweep(dir.path(), "a");
    let store = open(dir.path());
    assert_gone(&store, "a").await;
    create_conversation(&store, "a").await;
    assert_eq!(store.events(&id("a"), Seq::ZERO, 9).await, Ok(vec![event(1)]));
    drop(store);
    assert_eq!(rows(dir.path()), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_created_again_has_nothing_of_the_deleted_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()));
    let mut lanes = JoinSet::new();
    for lane in 0..3 {
        let store = Arc::clone(&store);
        lanes.spawn(async move {
            let name = format!("c{lane}");
            for _ in 0..2 {
                let held = append_long_journal(&store, &name).await;
                store.delete(&id(&name), &held, None, Vec::new()).await.unwrap();
                let held = create_conversation(&*store, &name).await;
                assert_eq!(store.events(&id(&name), Seq::ZERO, 9).await, Ok(vec![event(1)]));
                assert_eq!(store.summary(&id(&name)).await.unwrap().unwrap().last_seq, Seq::FIRST);
                store.delete(&id(&name), &held, None, Vec::new()).await.unwrap();
            }
        });
    }
    lanes.join_all().await;
    create_conversation(&*store, "last").await;
    drop(store);
    let left = rows(dir.path());
    let database = Database::open(dir.path().join("abide.redb")).unwrap();
    let unswept = database.begin_read().unwrap().open_table(tables::UNSWEPT).unwrap();
    let unswept = unswept.iter().unwrap().count() as u64;
    assert!(left <= 1 + unswept, "{left} rows for {unswept} conversations");
}

#[tokio::test]
async fn large_events_are_read_back_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let held = claim_conversation(&store, "a").await;
    let mut large = commit(1, 3);
    Arc::make_mut(&mut large.events)[1] = event_of(2, &"x".repeat(900_000));
    store.append(&id("a"), &held, large.clone()).await.unwrap();
    assert_eq!(store.load(&id("a")).await.unwrap().unwrap().events, *large.events);
    assert_eq!(store.events(&id("a"), Seq::FIRST, 1).await.unwrap(), large.events[1..2]);
}

#[tokio::test]
async fn a_file_that_is_overwritten_again_and_again_does_not_grow() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    append_long_journal(&store, "a").await;
    let bytes = || std::fs::metadata(dir.path().join("abide.redb")).unwrap().len();
    store.overwrite_free_pages().await.unwrap();
    let once = bytes();
    for _ in 0..6 {
        store.overwrite_free_pages().await.unwrap();
    }
    assert!(bytes() <= 2 * once, "{} bytes after {once}", bytes());
    assert_eq!(
        store.events(&id("a"), Seq::ZERO, usize::MAX).await.unwrap().len() as u64,
        LONG_JOURNAL_EVENTS
    );
}

#[tokio::test]
async fn names_of_a_conversation_that_an_older_build_has_deleted_are_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let rebuild = Rebuild::after(None, at(0)).ended(at(0));
    assert!(store.replace_rebuild(None, &rebuild).await.unwrap());
    let [own, shared] = ["own", "shared"].map(|text| Blob::new("text/plain", text));
    for blob in [&own, &shared] {
        store.put_blob(&blob_id(blob), blob).await.unwrap();
    }
    let both = format!("{} {}", own.id(), shared.id());
    for (name, text) in [("a", both.as_str()), ("b", shared.id().as_str())] {
        let held = create_conversation(&store, name).await;
        let events = [event_of(2, text)].into();
        store.append(&id(name), &held, Commit { events, ..commit(2, 2) }).await.unwrap();
    }
    drop(store);
    delete_without_sweep(dir.path(), "a");
    let store = open(dir.path());
    let first = store.drop_lost_names(&PartitionSet::all(), None, 1).await.unwrap();
    assert_eq!(first.as_deref(), Some("a"));
    let second = store.drop_lost_names(&PartitionSet::all(), Some("a"), 9).await.unwrap();
    assert_eq!(second, None);
    assert_eq!(store.blob_info(&blob_id(&own)).await, Ok(None));
    assert!(store.blob_info(&blob_id(&shared)).await.unwrap().is_some());
    assert_eq!(store.named_blobs(&id("a")).await, Ok(BTreeSet::new()));
    assert_eq!(store.named_blobs(&id("b")).await, Ok([shared.id()].into()));
}
