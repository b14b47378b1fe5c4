//! What deletions leave in the file is overwritten, whoever reads meanwhile.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use abide_actors::journal::{Journal, StoreError};
use redb::ReadableTableMetadata;
use tokio::sync::oneshot;

use super::super::super::Erasures;
use super::super::super::conformance::*;
use super::super::{Embedded, tables};
use super::files::open;

/// The events of a journal that is removed in several slices.
const LONG_JOURNAL_EVENTS: u64 = 8_000;
/// How long an overwriting waits for a reader that does not end.
const SHORT: Duration = Duration::from_millis(50);

fn is_in_file(dir: &Path, text: &str) -> bool {
    let bytes = std::fs::read(dir.join("abide.redb")).unwrap();
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Writes a conversation whose events have the secret, and deletes it after `begun`.
async fn plant_and_delete(store: &Embedded, events: u64, begun: impl Future<Output = ()>) {
    let held = claim_conversation(store, "a").await;
    let mut planted = commit(1, events);
    for event in Arc::make_mut(&mut planted.events) {
        *event = event_of(event.seq.get(), SECRET);
    }
    store.append(&id("a"), &held, planted).await.unwrap();
    begun.await;
    store.delete(&id("a"), &held, None, Vec::new()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_of_a_reader_are_overwritten_when_it_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (begins, begun) = oneshot::channel();
    let (ends, end) = mpsc::channel::<()>();
    let mut reader = None;
    plant_and_delete(&store, 50, async {
        let shared = Arc::clone(&store.shared);
        reader = Some(tokio::task::spawn_blocking(move || {
            let read = shared.read(|from| {
                let rows = from.open_table(tables::JOURNAL)?.len()?;
                begins.send(()).unwrap();
                // It goes on until the test ends it.
                let _ = end.recv();
                Ok(rows)
            });
            read.map_err(|failure| failure.error)
        }));
        begun.await.unwrap();
    })
    .await;
    let late = Err(StoreError::Unavailable("a read has not ended in time".to_owned()));
    assert_eq!(store.overwrite_within(SHORT).await, late);
    assert!(is_in_file(dir.path(), SECRET), "the reader sees it");
    drop(ends);
    assert_eq!(reader.unwrap().await.unwrap(), Ok(50));
    store.overwrite_deleted().await.unwrap();
    assert!(!is_in_file(dir.path(), SECRET));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_begin_later_hold_nothing_up() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    plant_and_delete(&store, 50, async {}).await;
    let present = store.shared.present_readers();
    assert_eq!(Arc::strong_count(&present), 1, "nobody reads");
    let (ends, end) = mpsc::channel::<()>();
    let (begins, begun) = oneshot::channel();
    let shared = Arc::clone(&store.shared);
    let reader = tokio::task::spawn_blocking(move || {
        let read = shared.read(|_| {
            begins.send(()).unwrap();
            let _ = end.recv();
            Ok(())
        });
        read.map_err(|failure| failure.error)
    });
    begun.await.unwrap();
    assert_eq!(Arc::strong_count(&present), 1, "the reader is none of those before");
    assert_eq!(Arc::strong_count(&store.shared.present_readers()), 2);
    drop(ends);
    assert_eq!(reader.await.unwrap(), Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_long_deletion_still_has_to_remove_is_overwritten_too() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    plant_and_delete(&store, LONG_JOURNAL_EVENTS, async {}).await;
    store.overwrite_deleted().await.unwrap();
    assert!(!is_in_file(dir.path(), SECRET));
}

/// Creates a conversation, unless the file is being compacted.
async fn try_create(store: &Embedded, name: &str) -> Result<(), StoreError> {
    let held = store.claim(&id(name), &holder("n"), None).await?;
    store.append(&id(name), &held, commit(1, 1)).await
}

#[tokio::test]
async fn a_file_that_is_overwritten_while_others_write_is_compacted() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let bytes = || std::fs::metadata(dir.path().join("abide.redb")).unwrap().len();
    let (mut sizes, mut created) = (Vec::new(), Vec::new());
    for number in 0..1_000 {
        create_conversation(&store, &format!("early-{number}")).await;
    }
    for round in 0..8 {
        let writes = async {
            for number in 0..50 {
                let name = format!("{round}-{number}");
                match try_create(&store, &name).await {
                    Ok(()) => created.push(name),
                    Err(StoreError::Unavailable(_)) => tokio::task::yield_now().await,
                    Err(error) => panic!("{error}"),
                }
            }
        };
        let (overwritten, ()) = tokio::join!(store.overwrite_free_pages(), writes);
        overwritten.unwrap();
        sizes.push(bytes());
    }
    assert!(sizes.iter().all(|size| *size <= 3 * sizes[0]), "{sizes:?}");
    assert!(created.len() > 200, "{}", created.len());
    for name in created {
        assert!(store.load(&id(&name)).await.unwrap().is_some(), "{name}");
    }
}
