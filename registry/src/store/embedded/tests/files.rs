//! Opening and reopening the directory of a store.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use abide_actors::journal::Journal;
use abide_conversation::{AgentName, Event, Revision, Seq, State, replay};
use futures::FutureExt;
use redb::Database;
use tokio::task::JoinSet;

use super::super::super::commit_benchmark::CommitBenchmark;
use super::super::super::conformance::*;
use super::super::super::{StagedJournal, Staging, Store, StoredAgent};
use super::super::{Durability, Embedded, OpenError, tables};

/// Longer than closing a store takes.
const DEADLINE: Duration = Duration::from_secs(10);

pub(super) fn open(dir: &Path) -> Embedded {
    Embedded::open(dir, Durability::Os).unwrap()
}

#[tokio::test]
async fn what_an_import_left_that_died_is_gone_after_a_reopen() {
    let dir = tempfile::tempdir().unwrap();
    let staged = StagedJournal {
        id: id("a"),
        import: "i".to_owned(),
        last_seq: Seq::ZERO,
        blobs: BTreeSet::new(),
    };
    let events: Arc<[Event]> = (1..=3).map(event).collect();
    let store = open(dir.path());
    store.stage(&staged, events.clone()).await.unwrap();
    assert!(store.stage(&staged, events.clone()).await.is_err(), "other events are aside");
    drop(store);
    let store = open(dir.path());
    store.stage(&staged, events).await.unwrap();
}

#[tokio::test]
async fn everything_is_found_after_a_reopen() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let held = claim_conversation(&store, "a").await;
    let mut first = commit(1, 3);
    first.summary.alarm = Some(at(60));
    first.summary.active = true;
    first.opened.push(pending_call("call_1", 1, 60));
    first.responses.push(response("key:1", "yes", 60));
    first.state = Some(Arc::new(State { seq: Seq::new(2), ..Default::default() }));
    store.append(&id("a"), &held, first.clone()).await.unwrap();
    let agent = StoredAgent {
        name: AgentName::new("demo"),
        revision: Revision::new("r1"),
        definition: serde_json::json!({"name": "demo"}),
        put_at: None,
    };
    store.put_agent(&own(), agent.clone(), None).await.unwrap();
    drop(store);

    let store = open(dir.path());
    let loaded = store.load(&id("a")).await.unwrap().unwrap();
    assert_eq!((Some(Arc::new(loaded.state)), loaded.events), (first.state, vec![event(3)]));
    assert_eq!(store.summary(&id("a")).await, Ok(Some(first.summary)));
    let inbox = store.inbox(&own(), &Default::default(), None, 9).await.unwrap().items;
    assert_eq!(inbox[0].pending, first.opened[0]);
    assert_eq!(store.alarms(9).await.unwrap(), [(id("a"), at(60))]);
    let active = store.active(&crate::partition::PartitionSet::all(), None, 9).await.unwrap();
    assert_eq!(active.items, [(id("a"), None)]);
    assert!(store.stored_response(&scope_of("a"), "key:1", at(0)).await.unwrap().is_some());
    assert_eq!(store.agents(&own()).await, Ok(vec![agent]));
}

#[tokio::test]
async fn claims_end_with_their_process_and_epochs_keep_growing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let held = create_conversation(&store, "a").await;
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.current_claim(&id("a")).await, Ok(None));
    assert!(claim_conversation(&store, "a").await.epoch > held.epoch);
}

#[tokio::test]
async fn a_store_tells_when_its_directory_can_be_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()));
    let close_watch = store.close_watch();
    create_conversation(&*store, "a").await;
    let holder = tokio::spawn(hold(store));
    assert!(close_watch.closed().now_or_never().is_none());
    holder.abort();
    tokio::time::timeout(DEADLINE, close_watch.closed()).await.unwrap();
    open(dir.path());
}

/// Holds a store until it is aborted.
async fn hold(_store: Arc<Embedded>) {
    std::future::pending().await
}

#[test]
fn a_second_opening_is_refused_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let _store = open(dir.path());
    let bytes = || std::fs::read(dir.path().join("abide.redb")).unwrap();
    let before = bytes();
    let refused = Embedded::open(dir.path(), Durability::Os).unwrap_err();
    assert!(matches!(&refused, OpenError::InUse { dir: named } if named == dir.path()));
    assert!(refused.to_string().contains("in use by another process"), "{refused}");
    assert!(before == bytes());
}

#[test]
fn another_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let database = Database::open(dir.path().join("abide.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(tables::META).unwrap().insert("format", 99).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let refused = Embedded::open(dir.path(), Durability::Os).unwrap_err();
    assert!(matches!(refused, OpenError::Format { ref found, .. } if found == "99"), "{refused}");
}

#[test]
fn a_file_of_something_else_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("abide.redb");
    let text = "not a database at all. ".repeat(1000);
    std::fs::write(&path, &text).unwrap();
    let refused = Embedded::open(dir.path(), Durability::Os).unwrap_err();
    assert!(matches!(refused, OpenError::Unusable { .. }), "{refused}");
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
}

#[tokio::test]
async fn a_half_written_new_file_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("abide.redb.new"), [7; 5000]).unwrap();
    create_conversation(&open(dir.path()), "a").await;
}

#[tokio::test]
async fn a_cached_state_of_another_format_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let held = claim_conversation(&store, "a").await;
    let mut cached = commit(1, 2);
    cached.state = Some(Arc::new(State { seq: Seq::new(2), ..Default::default() }));
    store.append(&id("a"), &held, cached).await.unwrap();
    drop(store);
    let state = serde_json::to_vec(&State { seq: Seq::new(2), ..Default::default() });
    let ahead = serde_json::to_vec(&State { seq: Seq::new(9), ..Default::default() });
    let unreadable = [
        (tables::STATE_FORMAT, br#"{"seq":2}"#.to_vec()),
        (tables::STATE_FORMAT + 1, state.unwrap()),
        (tables::STATE_FORMAT, ahead.unwrap()),
    ];
    for (format, json) in unreadable {
        let database = Database::open(dir.path().join("abide.redb")).unwrap();
        let transaction = database.begin_write().unwrap();
        let value = (format, json.as_slice());
        transaction.open_table(tables::STATES).unwrap().insert("a", value).unwrap();
        transaction.commit().unwrap();
        drop(database);
        let loaded = open(dir.path()).load(&id("a")).await.unwrap().unwrap();
        assert_eq!((loaded.state.seq, loaded.events.len()), (Seq::ZERO, 2));
    }
}

#[tokio::test]
async fn a_long_journal_is_folded_page_by_page_as_it_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let held = claim_conversation(&store, "a").await;
    let journal = commit(1, 1_000);
    store.append(&id("a"), &held, journal.clone()).await.unwrap();
    let loaded = store.load(&id("a")).await.unwrap().unwrap();
    assert!(loaded.events.len() < 64, "{} events are in memory at once", loaded.events.len());
    assert_eq!(loaded.cached_seq, Seq::ZERO);
    let folded = replay(State::default(), journal.events.iter());
    assert_eq!(replay(loaded.state, &loaded.events), folded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_share_an_fsync() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(Embedded::open(dir.path(), Durability::Fsync).unwrap());
    let before = store.stats();
    let mut floor = CommitBenchmark::new(store.clone(), &holder("n"), 64).await.unwrap();
    floor.run(640, 100).await.unwrap();
    let after = store.stats();
    let (commits, fsyncs) = (after.commits - before.commits, after.fsyncs - before.fsyncs);
    assert_eq!(commits, 640);
    assert!(fsyncs > 0 && fsyncs * 4 < commits, "{fsyncs} fsyncs for {commits} commits");
    floor.end().await.unwrap();
    assert_eq!(store.conversations(&own(), &Default::default(), None, 9).await.unwrap().items, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_commit_does_not_affect_the_rest_of_its_batch() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()));
    let mut writers = JoinSet::new();
    for number in 0..60 {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            let name = format!("c{number}");
            let mut held = claim_conversation(&*store, &name).await;
            if number % 3 == 1 {
                held.epoch = held.epoch.next();
            }
            let misplaced = u64::from(number % 3 == 2);
            let commit = commit(1 + misplaced, 1 + misplaced);
            let outcome = store.append(&id(&name), &held, commit).await;
            (number % 3, outcome.map_err(|refusal| refusal.to_string()), name)
        });
    }
    for (kind, outcome, name) in writers.join_all().await {
        let events = store.events(&id(&name), Seq::ZERO, 9).await.unwrap().len();
        assert_eq!((outcome.is_ok(), events), (kind == 0, usize::from(kind == 0)), "{name}");
    }
}

#[tokio::test]
async fn commits_remove_a_few_expired_responses() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let held = claim_conversation(&store, "a").await;
    let mut first = commit(1, 1);
    first.responses = (0..20).map(|n| response(&format!("key:{n:02}"), "x", 10 + n)).collect();
    store.append(&id("a"), &held, first).await.unwrap();
    let kept = async || {
        let mut kept = 0;
        for n in 0..20 {
            let stored =
                store.stored_response(&scope_of("a"), &format!("key:{n:02}"), at(0)).await.unwrap();
            kept += usize::from(stored.is_some());
        }
        kept
    };
    for (seq, left) in [(2, 12), (3, 5), (4, 5)] {
        let mut later = commit(seq, seq);
        Arc::make_mut(&mut later.events)[0].at = at(24);
        store.append(&id("a"), &held, later).await.unwrap();
        assert_eq!(kept().await, left, "after {seq}");
    }
}

#[tokio::test]
async fn nobody_else_can_read_a_new_store() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("deep/store");
    let store = open(&dir);
    create_conversation(&store, "a").await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    let files: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 2);
    assert!(files.iter().all(|file| mode(file) == 0o600), "{files:?}");
}
