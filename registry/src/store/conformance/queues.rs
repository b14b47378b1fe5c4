//! Promises about the calls that wait in queues.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use abide_actors::journal::{Claim, Commit};
use abide_conversation::Attempt;
use abide_conversation::ids::{CallId, QueueName};
use abide_conversation::state::QueueEntry;

use super::super::Store;
use super::fixtures::*;

fn entry(queue: &str, tool: &str, call: &str, second: i64) -> QueueEntry {
    QueueEntry {
        queue: QueueName::new(queue),
        tool: tool.to_owned(),
        since: at(second),
        call: CallId::new(call),
        attempt: Attempt::FIRST,
    }
}

async fn append(store: &dyn Store, name: &str, held: &Claim, seq: u64, queued: &[QueueEntry]) {
    let commit = Commit { queued: Some(queued.to_vec()), ..commit(seq, seq) };
    store.append(&id(name), held, commit).await.unwrap();
}

/// `conversation/call`, the longest wait first.
async fn heads(store: &dyn Store, tenant_name: &str, queue: &str, tool: &str) -> Vec<String> {
    let queue = QueueName::new(queue);
    let heads = store.queue_heads(&tenant(tenant_name), &queue, tool, 10_000).await.unwrap();
    assert!(!heads.has_more);
    let mut calls = heads.calls;
    calls.sort_by_key(|(_, entry)| entry.since);
    calls.iter().map(|(id, entry)| format!("{id}/{}", entry.call)).collect()
}

/// `queue tool depth oldest` of each.
async fn depths(store: &dyn Store, tenant_name: &str, queue: Option<&str>) -> Vec<String> {
    let queue = queue.map(QueueName::new);
    let depths = store.queue_depths(&tenant(tenant_name), queue.as_ref()).await.unwrap();
    let depths = depths.iter().map(|it| {
        let oldest = it.oldest.unwrap().as_second() - at(0).as_second();
        format!("{} {} {} {oldest}", it.queue, it.tool, it.depth)
    });
    depths.collect()
}

pub(in super::super) async fn calls_that_wait_in_queues_are_found_by_queue_and_tool(
    store: Arc<dyn Store>,
) {
    let store = &*store;
    let (one, two) =
        (claim_conversation(store, "one").await, claim_conversation(store, "two").await);
    let theirs = claim_conversation(store, "acme/one").await;
    let [a, b] = [entry("mail", "send", "a", 20), entry("mail", "draft", "b", 30)];
    append(store, "one", &one, 1, &[a.clone(), b.clone()]).await;
    append(store, "two", &two, 1, &[entry("mail", "send", "c", 10)]).await;
    append(store, "acme/one", &theirs, 1, &[entry("print", "page", "d", 5)]).await;
    assert_eq!(heads(store, "default", "mail", "send").await, ["two/c", "one/a"]);
    assert_eq!(heads(store, "default", "mail", "draft").await, ["one/b"]);
    assert_eq!(heads(store, "acme", "mail", "send").await, [""; 0]);
    assert_eq!(depths(store, "default", None).await, ["mail draft 1 30", "mail send 2 10"]);
    assert_eq!(depths(store, "acme", None).await, ["print page 1 5"]);
    assert_eq!(depths(store, "acme", Some("mail")).await, [""; 0]);

    // A commit that says nothing about queues changes nothing there.
    store.append(&id("one"), &one, commit(2, 2)).await.unwrap();
    assert_eq!(heads(store, "default", "mail", "send").await, ["two/c", "one/a"]);
    let again = QueueEntry { attempt: Attempt::new(2), since: at(40), ..a };
    append(store, "one", &one, 3, &[again, b]).await;
    let queue = QueueName::new("mail");
    let found = store.queue_heads(&tenant("default"), &queue, "send", 10_000).await.unwrap();
    let of_one = found.calls.iter().find(|(owner, _)| *owner == id("one")).unwrap();
    assert_eq!((of_one.1.attempt, found.calls.len()), (Attempt::new(2), 2));
    append(store, "one", &one, 4, &[]).await;
    assert_eq!(depths(store, "default", Some("mail")).await, ["mail send 1 10"]);
    store.delete(&id("two"), &two, None, Vec::new()).await.unwrap();
    assert_eq!(depths(store, "default", None).await, [""; 0]);
}

pub(in super::super) async fn the_heads_of_a_long_queue_are_bounded(store: Arc<dyn Store>) {
    let store = &*store;
    let held = claim_conversation(store, "one").await;
    let queued: Vec<_> = (0..40).map(|n| entry("mail", "send", &format!("c{n}"), n)).collect();
    append(store, "one", &held, 1, &queued).await;
    let (own, mail) = (tenant("default"), QueueName::new("mail"));
    let heads = store.queue_heads(&own, &mail, "send", 4).await.unwrap();
    let calls: Vec<_> = heads.calls.iter().map(|(_, entry)| entry.call.as_str()).collect();
    assert_eq!((calls, heads.has_more), (vec!["c0", "c1", "c2", "c3"], true));
}
