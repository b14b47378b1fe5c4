//! Encryption at rest, in the file.

use std::path::Path;

use abide_actors::journal::{Journal, StoreError};
use abide_conversation::Seq;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::super::super::conformance::*;
use super::super::super::{Lists, Store};
use super::super::{Durability, Embedded, OpenError, tables};

fn open(dir: &Path, keys: &[u8]) -> Embedded {
    try_open(dir, keys).unwrap()
}

fn try_open(dir: &Path, keys: &[u8]) -> Result<Embedded, OpenError> {
    let ring = (!keys.is_empty()).then(|| key_ring(keys));
    Embedded::open_encrypted(dir, Durability::Os, ring)
}

fn open_file(dir: &Path) -> Database {
    Database::open(dir.join("abide.redb")).unwrap()
}

fn is_in_file(dir: &Path, text: &str) -> bool {
    let bytes = std::fs::read(dir.join("abide.redb")).unwrap();
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

type Rows = TableDefinition<'static, (&'static str, u64), &'static [u8]>;

/// Replaces the event of a conversation by another row of the journal, changed by `change`.
fn replace_event(dir: &Path, at: (&str, u64), by: (&str, u64), change: impl Fn(&mut Vec<u8>)) {
    const JOURNAL: Rows = tables::JOURNAL;
    let database = open_file(dir);
    let transaction = database.begin_write().unwrap();
    {
        let mut journal = transaction.open_table(JOURNAL).unwrap();
        let mut bytes = journal.get(by).unwrap().unwrap().value().to_vec();
        change(&mut bytes);
        journal.insert(at, bytes.as_slice()).unwrap();
    }
    transaction.commit().unwrap();
}

async fn assert_unreadable(store: &Embedded, name: &str) {
    let loaded = store.load(&id(name)).await;
    assert!(matches!(loaded, Err(StoreError::Unreadable(_))), "{loaded:?}");
    let events = store.events(&id(name), Seq::ZERO, 9).await;
    assert!(matches!(events, Err(StoreError::Unreadable(_))), "{events:?}");
}

#[tokio::test]
async fn nothing_of_the_content_is_in_an_encrypted_file() {
    for (keys, is_found) in [([].as_slice(), true), (&[1], false)] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), keys);
        plant(&store, "a").await;
        plant_shared(&store).await;
        assert_planted(&store, "a").await;
        assert_planted_shared(&store).await;
        drop(store);
        let store = open(dir.path(), keys);
        assert_planted(&store, "a").await;
        assert_planted_shared(&store).await;
        bury_planted(&store, "a").await;
        drop(store);
        assert_eq!(is_in_file(dir.path(), SECRET), is_found);
    }
}

#[tokio::test]
async fn an_event_that_was_changed_or_moved_is_noticed_and_harms_no_other_conversation() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &[1]);
    for name in ["a", "b", "c", "d"] {
        plant(&store, name).await;
    }
    drop(store);
    replace_event(dir.path(), ("a", 2), ("a", 2), |bytes| bytes[20] ^= 1);
    replace_event(dir.path(), ("b", 2), ("c", 2), |_| {});
    replace_event(dir.path(), ("d", 2), ("d", 1), |_| {});
    let store = open(dir.path(), &[1]);
    for name in ["a", "b", "d"] {
        let events = store.events(&id(name), Seq::ZERO, 9).await;
        assert!(matches!(events, Err(StoreError::Unreadable(_))), "{events:?}");
    }
    assert_planted(&store, "c").await;
}

#[tokio::test]
async fn a_plain_event_that_was_changed_is_noticed_and_harms_no_other_conversation() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &[]);
    for name in ["a", "b"] {
        plant(&store, name).await;
    }
    drop(store);
    replace_event(dir.path(), ("a", 2), ("a", 2), |bytes| bytes.truncate(9));
    let store = open(dir.path(), &[]);
    let events = store.events(&id("a"), Seq::ZERO, 9).await;
    assert!(matches!(events, Err(StoreError::Unreadable(_))), "{events:?}");
    assert_planted(&store, "b").await;
}

#[tokio::test]
async fn a_damaged_summary_is_listed_without_content_and_harms_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &[1]);
    plant(&store, "a").await;
    plant(&store, "b").await;
    drop(store);
    let database = open_file(dir.path());
    let transaction = database.begin_write().unwrap();
    {
        const HEADS: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("heads");
        let mut heads = transaction.open_table(HEADS).unwrap();
        let other = heads.get("b").unwrap().unwrap().value().to_vec();
        heads.insert("a", other.as_slice()).unwrap();
    }
    transaction.commit().unwrap();
    drop(database);
    let store = open(dir.path(), &[1]);
    assert!(matches!(store.summary(&id("a")).await, Err(StoreError::Unreadable(_))));
    assert_unreadable(&store, "a").await;
    let listed = store.conversations(&own(), &Default::default(), None, 9).await.unwrap();
    assert_eq!(listed.items.len(), 2);
    assert!(listed.items[0].1.metadata.is_empty());
    // Nor does it become what the list shows.
    assert_eq!(store.relist(&id("a"), &listed.items[0].1, &[]).await, Ok(true));
    assert!(matches!(store.summary(&id("a")).await, Err(StoreError::Unreadable(_))));
    assert_planted(&store, "b").await;
    // An operator can still delete it.
    let held = claim_conversation(&store, "a").await;
    store.delete(&id("a"), &held, None, Vec::new()).await.unwrap();
    assert_eq!(store.load(&id("a")).await, Ok(None));
}

#[tokio::test]
async fn a_store_is_opened_only_with_its_keys() {
    let dir = tempfile::tempdir().unwrap();
    plant(&open(dir.path(), &[1]), "a").await;
    let message = |keys: &[u8]| try_open(dir.path(), keys).unwrap_err().to_string();
    assert!(message(&[]).contains("is encrypted (key k1), and --encrypt-key-file is not given"));
    assert!(message(&[2]).contains("uses the key k1, which --encrypt-key-file lacks"));
    let other = key_file(&[2]).replace("k2", "k1");
    let ring = super::super::super::KeyRing::parse(&other).unwrap();
    let wrong = Embedded::open_encrypted(dir.path(), Durability::Os, Some(ring)).unwrap_err();
    assert!(wrong.to_string().contains("the key k1 of --encrypt-key-file is not its key"));
    assert_planted(&open(dir.path(), &[1]), "a").await;
}

#[tokio::test]
async fn what_was_written_before_stays_readable_and_the_next_commit_is_sealed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &[]);
    create_conversation(&store, "a").await;
    plant(&store, "plain").await;
    drop(store);
    let store = open(dir.path(), &[1]);
    assert_planted(&store, "plain").await;
    let held = store.claim_and_load(&id("a"), &holder("n"), None).await.unwrap().claim;
    store.append(&id("a"), &held, commit(2, 3)).await.unwrap();
    assert_eq!(store.events(&id("a"), Seq::ZERO, 9).await.unwrap(), [event(1), event(2), event(3)]);
    drop(store);
    let store = open(dir.path(), &[1]);
    assert_eq!(store.events(&id("a"), Seq::ZERO, 9).await.unwrap(), [event(1), event(2), event(3)]);
    drop(store);
    let database = open_file(dir.path());
    let journal = database.begin_read().unwrap().open_table(tables::JOURNAL).unwrap();
    let first = |seq| journal.get(("a", seq)).unwrap().unwrap().value()[0];
    assert_eq!([first(1), first(2), first(3)], [b'{', 1, 1]);
}

#[tokio::test]
async fn after_a_key_file_that_begins_with_plain_nothing_more_is_sealed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &[1]);
    plant(&store, "a").await;
    drop(store);
    let plain = super::super::super::KeyRing::parse(&format!("plain\n{}", key_file(&[1]))).unwrap();
    let store = Embedded::open_encrypted(dir.path(), Durability::Os, Some(plain)).unwrap();
    assert_planted(&store, "a").await;
    let held = store.claim_and_load(&id("a"), &holder("n"), None).await.unwrap().claim;
    store.append(&id("a"), &held, commit(3, 3)).await.unwrap();
    assert_eq!(store.events(&id("a"), Seq::ZERO, 9).await.unwrap().len(), 3);
    plant(&store, "b").await;
    drop(store);
    assert!(is_in_file(dir.path(), SECRET));
    let store = open(dir.path(), &[1]);
    assert_eq!(store.events(&id("a"), Seq::ZERO, 9).await.unwrap().len(), 3);
    assert_planted(&store, "b").await;
}

#[tokio::test]
async fn a_conversation_that_is_created_again_has_another_key() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &[1]);
    let held = create_conversation(&store, "a").await;
    let key = |store: &Embedded| {
        let record = store.read_row(|from| super::super::read::sealed_record(from, &id("a")));
        record.unwrap().unwrap().wrapped_key()
    };
    let first = key(&store);
    store.append(&id("a"), &held, commit(2, 2)).await.unwrap();
    assert_eq!(key(&store), first);
    store.delete(&id("a"), &held, Some(response("key:1", "gone", 60)), Vec::new()).await.unwrap();
    assert!(store.stored_response(&scope_of("a"), "key:1", at(0)).await.unwrap().is_some());
    create_conversation(&store, "a").await;
    assert_ne!(key(&store), first);
    assert_eq!(store.events(&id("a"), Seq::ZERO, 9).await, Ok(vec![event(1)]));
}

#[tokio::test]
async fn after_a_rotation_the_old_key_is_not_needed_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &[1]);
    plant(&store, "a").await;
    plant(&store, "acme/a").await;
    plant_shared(&store).await;
    drop(store);
    let store = open(dir.path(), &[2, 1]);
    // A commit wraps the data key of its conversation anew.
    create_conversation(&store, "b").await;
    drop(store);
    assert!(try_open(dir.path(), &[2]).is_err());
    let store = open(dir.path(), &[2, 1]);
    let done = store.rewrap().await.unwrap().unwrap();
    assert_eq!((done.conversations, done.rewrapped, done.unreadable), (3, 2, 0));
    assert_eq!(done.retired, ["k1"]);
    let again = store.rewrap().await.unwrap().unwrap();
    assert_eq!((again.rewrapped, again.retired), (0, vec![]));
    drop(store);
    let store = open(dir.path(), &[2]);
    assert_planted(&store, "a").await;
    assert_planted_shared(&store).await;
    assert_eq!(store.load(&id("acme/a")).await.unwrap().unwrap().state.seq, Seq::new(2));
    drop(store);
    assert!(try_open(dir.path(), &[1]).is_err());
}

#[tokio::test]
async fn a_commit_wraps_the_data_key_of_its_conversation_by_the_first_key() {
    let dir = tempfile::tempdir().unwrap();
    plant(&open(dir.path(), &[1]), "a").await;
    let store = open(dir.path(), &[2, 1]);
    let held = store.claim_and_load(&id("a"), &holder("n"), None).await.unwrap().claim;
    store.append(&id("a"), &held, commit(3, 3)).await.unwrap();
    let done = store.rewrap().await.unwrap().unwrap();
    assert_eq!((done.conversations, done.rewrapped), (1, 0));
    assert_eq!(store.events(&id("a"), Seq::ZERO, 9).await.unwrap().len(), 3);
}

/// The first bytes of the values that `rewrap` seals.
fn first_bytes(dir: &Path) -> Vec<u8> {
    type Texts = TableDefinition<'static, &'static str, &'static [u8]>;
    const TEXTS: [Texts; 2] = [tables::REVISIONS, tables::WEBHOOKS];
    const OPERATIONS: Rows = tables::OPERATIONS;
    let database = open_file(dir);
    let snapshot = database.begin_read().unwrap();
    let mut firsts = Vec::new();
    for texts in TEXTS {
        let table = snapshot.open_table(texts).unwrap();
        firsts.extend(table.range::<&str>(..).unwrap().map(|row| row.unwrap().1.value()[0]));
    }
    let table = snapshot.open_table(OPERATIONS).unwrap();
    firsts.extend(table.range::<(&str, u64)>(..).unwrap().map(|row| row.unwrap().1.value()[0]));
    firsts
}

#[tokio::test]
async fn what_was_plain_and_belongs_to_no_conversation_is_read_and_sealed_by_a_pass() {
    let dir = tempfile::tempdir().unwrap();
    let planted = plant_plain_or_sealed(&open(dir.path(), &[])).await;
    let store = open(dir.path(), &[1]);
    assert_plain_or_sealed(&store).await;
    drop(store);
    assert_eq!(first_bytes(dir.path()), vec![b'{'; planted as usize]);
    let store = open(dir.path(), &[1]);
    assert_eq!(store.rewrap().await.unwrap().unwrap().sealed, planted);
    assert_plain_or_sealed(&store).await;
    assert_eq!(store.rewrap().await.unwrap().unwrap().sealed, 0);
    drop(store);
    assert_eq!(first_bytes(dir.path()), vec![2; planted as usize]);
    // Another key of the file changes nothing of that.
    assert_eq!(open(dir.path(), &[2, 1]).rewrap().await.unwrap().unwrap().sealed, 0);
    assert_plain_or_sealed(&open(dir.path(), &[2])).await;
}

#[tokio::test]
async fn a_pass_finds_a_tenant_that_has_only_agents() {
    let dir = tempfile::tempdir().unwrap();
    plant_agents_alone(&open(dir.path(), &[])).await;
    let store = open(dir.path(), &[1]);
    assert_eq!(store.rewrap().await.unwrap().unwrap().sealed, 2);
    assert_eq!(store.rewrap().await.unwrap().unwrap().sealed, 0);
    drop(store);
    assert_eq!(first_bytes(dir.path()), [2, 2]);
}

#[tokio::test]
async fn data_keys_are_wrapped_anew_in_one_write_with_commits_of_others() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        plant(&open(dir.path(), &[1]), name).await;
    }
    let store = open(dir.path(), &[2, 1]);
    let held = store.claim_and_load(&id("a"), &holder("n"), None).await.unwrap().claim;
    let names: Vec<String> = (0..20).map(|n| format!("c{n}")).collect();
    let created = futures::future::join_all(names.iter().map(|name| async {
        let held = claim_conversation(&store, name).await;
        store.append(&id(name), &held, commit(1, 1)).await
    }));
    let a = id("a");
    let of_a = store.append(&a, &held, commit(3, 3));
    let (rewrapped, of_a, created) = tokio::join!(store.rewrap(), of_a, created);
    assert!(rewrapped.is_ok() && of_a.is_ok() && created.iter().all(Result::is_ok));
}
