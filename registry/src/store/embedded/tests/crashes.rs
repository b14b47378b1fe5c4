//! The store of a process that is killed at any moment.

use std::collections::HashMap;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use abide_actors::journal::{InboxFilter, Journal};
use abide_conversation::Seq;
use tokio::task::JoinSet;

use super::super::super::conformance::*;
use super::super::super::operations::{Effect, OperationLog};
use super::super::super::{KeyChange, Store};
use super::super::writer::Job;
use super::super::{Durability, Embedded, compaction};
use super::files::open;

/// The environment variable that makes a test the process to be killed; names the store's
/// directory.
const DIR: &str = "ABIDE_TEST_STORE";
const LANES: usize = 8;
const ROUNDS: u64 = 8;

fn child(test: &str, dir: &Path) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(DIR, dir).stdout(Stdio::piped()).spawn().unwrap()
}

/// Tells the parent what is done.
fn acknowledge(lane: usize, seq: u64) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nack {lane} {seq}").and_then(|()| out.flush()).unwrap();
}

fn open_to_be_killed(dir: &Path) -> Arc<Embedded> {
    let durability = if dir.ends_with("fsync") { Durability::Fsync } else { Durability::Os };
    Arc::new(Embedded::open(dir, durability).unwrap())
}

/// Claims the conversations, and begins to append to all of them for ever.
async fn append_for_ever(store: &Arc<Embedded>) -> JoinSet<()> {
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        let name = format!("c{lane}");
        let held = claim_conversation(&**store, &name).await;
        let summary = store.summary(&id(&name)).await.unwrap();
        let mut seq = summary.map_or(0, |summary| summary.last_seq.get());
        let store = Arc::clone(store);
        lanes.spawn(async move {
            loop {
                let mut next = commit(seq + 1, seq + 2);
                next.summary.alarm = Some(at(seq as i64));
                next.opened.push(pending_call(&format!("call_{seq}"), 1, 60));
                store.append(&id(&name), &held, next).await.unwrap();
                seq += 2;
                acknowledge(lane, seq);
            }
        });
    }
    lanes
}

/// Kills the child this long after its start, or after its first acknowledgement in a lane, and returns
/// the last acknowledged `seq` of each lane.
fn kill_after(mut child: Child, after: Duration, lane: Option<usize>) -> HashMap<usize, u64> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (send, acks) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let words: Vec<_> = line.split(' ').collect();
            if let ["ack", lane, seq] = words[..] {
                let _ = send.send((lane.parse::<usize>().unwrap(), seq.parse::<u64>().unwrap()));
            }
        }
    });
    let mut last = HashMap::new();
    while lane.is_some_and(|lane| !last.contains_key(&lane)) {
        last.extend([acks.recv_timeout(Duration::from_secs(30)).unwrap()]);
    }
    let (_never, moment) = mpsc::channel::<()>();
    assert_eq!(moment.recv_timeout(after), Err(RecvTimeoutError::Timeout));
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
    last.extend(acks.iter());
    last
}

async fn check(dir: &Path, acknowledged: &HashMap<usize, u64>) {
    let store = open(dir);
    let mut alarms = 0;
    for lane in 0..LANES {
        let name = format!("c{lane}");
        let events = store.events(&id(&name), Seq::ZERO, usize::MAX).await.unwrap();
        assert!((1..).zip(&events).all(|(seq, event)| event.seq.get() == seq), "{name} has a gap");
        let found = events.len() as u64;
        assert!(found >= acknowledged.get(&lane).copied().unwrap_or(0), "{name} lost a commit");
        assert_eq!(found % 2, 0, "{name} has half a commit");
        let summary = store.summary(&id(&name)).await.unwrap();
        assert_eq!(summary.as_ref().map_or(0, |summary| summary.last_seq.get()), found);
        alarms += usize::from(summary.is_some());
        let filter = InboxFilter { conversation: Some(id(&name).local()), ..Default::default() };
        let open = store.inbox(&own(), &filter, None, usize::MAX).await.unwrap().items.len();
        assert_eq!(open as u64, found / 2, "{name}: the inbox is not the journal's");
    }
    assert_eq!(store.alarms(LANES + 1).await.unwrap().len(), alarms);
}

/// Kills children that append, every other one after its first acknowledgement in this lane, and checks
/// what each of them leaves.
async fn kill_writers(test: &str, lane: usize) {
    let parent = tempfile::tempdir().unwrap();
    for dir in [parent.path().join("fsync"), parent.path().join("os")] {
        let mut acknowledged = HashMap::new();
        for round in 0..ROUNDS {
            let after = Duration::from_micros(round * round * 2_300);
            let first = (round % 2 == 1).then_some(lane);
            acknowledged.extend(kill_after(child(test, &dir), after, first));
            check(&dir, &acknowledged).await;
        }
        assert!(acknowledged.values().sum::<u64>() > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_any_moment_loses_nothing_acknowledged() {
    if let Some(dir) = env::var_os(DIR) {
        let store = open_to_be_killed(Path::new(&dir));
        append_for_ever(&store).await.join_all().await;
        return;
    }
    let test = "store::embedded::tests::crashes::a_kill_at_any_moment_loses_nothing_acknowledged";
    kill_writers(test, 0).await;
}

/// The lane of the child that compacts.
const COMPACTIONS: usize = LANES;

/// Has the file compacted over and over, whatever its size.
async fn compact_for_ever(store: Arc<Embedded>) {
    for number in 1.. {
        if let Ok(database) = store.shared.file().database {
            compaction::set_compact_bytes(&database, 0).unwrap();
        }
        store.submit(Job::Compact).await.unwrap().unwrap();
        acknowledge(COMPACTIONS, number);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_while_the_file_is_compacted_loses_nothing_acknowledged() {
    if let Some(dir) = env::var_os(DIR) {
        let store = open_to_be_killed(Path::new(&dir));
        let lanes = append_for_ever(&store).await;
        tokio::join!(lanes.join_all(), compact_for_ever(store));
        return;
    }
    let test = "store::embedded::tests::crashes::\
        a_kill_while_the_file_is_compacted_loses_nothing_acknowledged";
    kill_writers(test, COMPACTIONS).await;
}

/// Leaves a conversation at work until the process is killed.
async fn work_for_ever(dir: &Path) {
    let store = Embedded::open(dir, Durability::Os).unwrap();
    let held = claim_conversation(&store, "a").await;
    let mut working = commit(1, 1);
    working.summary.active = true;
    store.append(&id("a"), &held, working).await.unwrap();
    acknowledge(0, 1);
    std::future::pending().await
}

#[tokio::test]
async fn a_process_that_was_killed_counts_as_a_death_and_one_that_closed_the_store_does_not() {
    if let Some(dir) = env::var_os(DIR) {
        return work_for_ever(Path::new(&dir)).await;
    }
    let test = "store::embedded::tests::crashes::\
        a_process_that_was_killed_counts_as_a_death_and_one_that_closed_the_store_does_not";
    let dir = tempfile::tempdir().unwrap();
    kill_after(child(test, dir.path()), Duration::ZERO, Some(0));
    for opening in 1..=2 {
        let store = open(dir.path());
        for _ in 0..2 {
            let claimed = store.claim_and_load(&id("a"), &holder("n"), None).await.unwrap();
            assert_eq!(claimed.deaths, 1, "at opening {opening}");
        }
    }
}

/// Adds keys, and does what follows its entry, until the process is killed.
async fn operate_for_ever(dir: &Path) {
    let store = Embedded::open(dir, Durability::Os).unwrap();
    let held = claim_conversation(&store, "a").await;
    let summary = store.summary(&id("a")).await.unwrap();
    let mut number = summary.map_or(0, |summary| summary.last_seq.get());
    loop {
        number += 1;
        let (operation, name) =
            (operation(Some("default"), &format!("key {number}")), number.to_string());
        let change = Effect::ChangeKey(KeyChange::Add(key(&name, "k")));
        store.operate(&operation, change).await.unwrap();
        let operation = self::operation(None, &format!("commit {number}"));
        store.operate(&operation, Effect::Follows).await.unwrap();
        store.append(&id("a"), &held, commit(number, number)).await.unwrap();
        acknowledge(0, number);
    }
}

/// The highest number among these texts that begin with a word.
fn last_number(texts: &[String], word: &str) -> u64 {
    let numbers = texts.iter().filter_map(|text| text.strip_prefix(word)?.trim().parse().ok());
    numbers.max().unwrap_or(0)
}

#[tokio::test]
async fn a_kill_at_any_moment_leaves_no_effect_without_its_entry() {
    if let Some(dir) = env::var_os(DIR) {
        return operate_for_ever(Path::new(&dir)).await;
    }
    let test = "store::embedded::tests::crashes::\
        a_kill_at_any_moment_leaves_no_effect_without_its_entry";
    let dir = tempfile::tempdir().unwrap();
    for round in 0..ROUNDS {
        let after = Duration::from_micros(round * round * 2_300);
        let acknowledged = kill_after(child(test, dir.path()), after, Some(0));
        let store = open(dir.path());
        let entries = targets(&store, None).await;
        let keys = store.tenants_keys(&own()).await.unwrap();
        let keys: Vec<String> = keys.into_iter().map(|key| key.id).collect();
        assert_eq!(last_number(&entries, "key"), last_number(&keys, ""), "{entries:?}");
        let done = store.summary(&id("a")).await.unwrap().unwrap().last_seq.get();
        let recorded = last_number(&entries, "commit");
        assert!(done == recorded || done + 1 == recorded, "{done} done, {recorded} recorded");
        assert!(done >= acknowledged[&0]);
    }
}

#[test]
fn another_process_is_refused() {
    if let Some(dir) = env::var_os(DIR) {
        let refused = Embedded::open(Path::new(&dir), Durability::Os).unwrap_err();
        writeln!(std::io::stdout(), "\nrefused: {refused}").unwrap();
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let _store = open(dir.path());
    let other = child("store::embedded::tests::crashes::another_process_is_refused", dir.path());
    let output = other.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = format!("refused: the store in {} is in use", dir.path().display());
    assert!(output.status.success() && text.contains(&line), "{text}");
}
