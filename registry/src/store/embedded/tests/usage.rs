//! What is counted of tenants, in the file.

use std::path::Path;
use std::sync::Arc;

use abide_actors::blobs::{Blob, Blobs};
use abide_actors::journal::{Commit, Journal};
use abide_actors::usage_counts::{UsageCounts, day_of};
use redb::{Database, ReadableDatabase, ReadableTable};

use super::super::super::TenantCounts;
use super::super::super::conformance::*;
use super::super::tables;
use super::files::open;

fn database(dir: &Path) -> Database {
    Database::open(dir.join("abide.redb")).unwrap()
}

fn counting(seq: u64, day: i64) -> Commit {
    let mut commit = commit(seq, seq);
    for event in Arc::make_mut(&mut commit.events) {
        event.at = at(day * 86_400);
    }
    commit.usage = Some(UsageCounts { output_tokens: 1, ..Default::default() });
    commit
}

type BlobTypes<'a> = redb::Table<'a, &'static str, (&'static str, u64)>;

#[tokio::test]
async fn blobs_that_an_earlier_version_stored_or_removed_are_counted_at_the_next_opening() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (Blob::new("text/plain", "one"), Blob::new("text/plain", "three"));
    let store = open(dir.path());
    store.put_blob(&blob_id(&one), &one).await.unwrap();
    drop(store);
    let change = |work: &dyn Fn(&mut BlobTypes<'_>)| {
        let database = database(dir.path());
        let transaction = database.begin_write().unwrap();
        work(&mut transaction.open_table(tables::BLOB_TYPES).unwrap());
        transaction.commit().unwrap();
    };
    let id = blob_id(&two);
    change(&|types| drop(types.insert(id.as_str(), ("text/plain", 5)).unwrap()));
    let store = open(dir.path());
    assert_eq!(store.blob_bytes(&own()).await, Ok(8));
    drop(store);
    change(&|types| drop(types.remove(blob_id(&one).as_str()).unwrap()));
    let store = open(dir.path());
    assert_eq!(store.blob_bytes(&own()).await, Ok(5));
}

#[tokio::test]
async fn usage_outlives_the_process_and_is_removed_when_it_is_too_old() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let held = claim_conversation(&store, "a").await;
    for (seq, day) in [(1, 0), (2, 1)] {
        store.append(&id("a"), &held, counting(seq, day)).await.unwrap();
    }
    drop(store);
    let store = open(dir.path());
    let held = claim_conversation(&store, "a").await;
    let tokens =
        async |day: i64| store.tokens_of_day(&own(), day_of(at(day * 86_400))).await.unwrap();
    assert_eq!((tokens(0).await, tokens(1).await), (1, 1));
    store.append(&id("a"), &held, counting(3, 401)).await.unwrap();
    assert_eq!((tokens(0).await, tokens(1).await, tokens(401).await), (0, 1, 1));
    drop(store);
    let database = database(dir.path());
    let usage = database.begin_read().unwrap().open_table(tables::USAGE).unwrap();
    assert_eq!(usage.iter().unwrap().count(), 4, "a row and a sum for each day");
}
