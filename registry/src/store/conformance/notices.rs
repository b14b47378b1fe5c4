//! Webhooks, and what is owed to them.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use abide_actors::journal::Commit;
use abide_actors::notices::{NoticeKind, OwedNotice, Webhook, WebhookKey};
use abide_conversation::Seq;
use serde_json::json;

use super::super::{
    Attempts, Delivery, DeliveryState, MAX_DEAD_PER_PARTITION, NoticeCounts, NoticeQueue,
    Settlement, Store, WebhookChange, WebhookEdit,
};
use super::fixtures::*;
use crate::partition::{Partition, PartitionSet};

pub(super) fn webhook(name: &str) -> Webhook {
    serde_json::from_value(json!({
        "tenant": "default", "name": name, "generation": "g", "url": "http://127.0.0.1:1/",
        "created_at": at(0), "updated_at": at(0), "by": "ann",
    }))
    .unwrap()
}

fn key(name: &str) -> WebhookKey {
    webhook(name).key()
}

fn queue(webhook: &str, conversation: &str) -> NoticeQueue {
    NoticeQueue { webhook: key(webhook), conversation: id(conversation) }
}

fn owed(webhook: &str, seq: u64) -> OwedNotice {
    let kind = NoticeKind::TurnCompleted;
    let body = Arc::from(format!("{{\"seq\": {seq}}}"));
    OwedNotice { webhook: key(webhook), seq: Seq::new(seq), kind, at: at(0), body }
}

/// A commit of one event that is owed to these webhooks.
fn owing(seq: u64, webhooks: &[&str]) -> Commit {
    let owed = webhooks.iter().map(|webhook| owed(webhook, seq)).collect();
    Commit { owed, ..commit(seq, seq) }
}

/// Writes a conversation whose events from the first to the last are owed to a webhook.
async fn owe(store: &dyn Store, conversation: &str, webhook: &str, last: u64) {
    let held = claim_conversation(store, conversation).await;
    for seq in 1..=last {
        store.append(&id(conversation), &held, owing(seq, &[webhook])).await.unwrap();
    }
}

async fn head_seq(store: &dyn Store, queue: &NoticeQueue) -> Option<u64> {
    let head = store.notice_head(queue).await.unwrap();
    head.map(|head| head.notice.seq.get())
}

/// Settles the head of a queue.
async fn settle(store: &dyn Store, queue: &NoticeQueue, settlement: Settlement) -> Option<u64> {
    let head = store.notice_head(queue).await.unwrap().unwrap();
    let next = store.settle_notice(queue, &head, &settlement).await.unwrap();
    next.map(|next| next.notice.seq.get())
}

fn dead(seconds: i64) -> Settlement {
    let last_error = Some("the receiver answered 500".to_owned());
    let attempts = Attempts { count: 9, last_at: Some(at(seconds)), last_error };
    Settlement::Dead { at: at(seconds), attempts }
}

async fn due(store: &dyn Store, seconds: i64) -> Vec<(Partition, WebhookKey)> {
    store.due_webhooks(&PartitionSet::all(), at(seconds)).await.unwrap()
}

/// All pages of what is owed, or dead.
async fn all(store: &dyn Store, webhook: &str, state: DeliveryState) -> Vec<Delivery> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.deliveries(&key(webhook), state, cursor.as_deref(), 2).await.unwrap();
        found.extend(page.items);
        cursor = page.cursor;
        if cursor.is_none() {
            return found;
        }
    }
}

fn ids(deliveries: &[Delivery]) -> Vec<(String, u64)> {
    let id = |it: &Delivery| (it.conversation.to_string(), it.notice.seq.get());
    let mut ids: Vec<_> = deliveries.iter().map(id).collect();
    ids.sort();
    ids
}

pub(in super::super) async fn every_change_of_a_webhook_applies_to_the_version_it_was_made_for(
    store: Arc<dyn Store>,
) {
    let none = store.webhooks(None).await.unwrap().unwrap();
    assert_eq!((none.version, none.webhooks.len()), (0, 0));
    assert_eq!(store.webhooks(Some(0)).await, Ok(None));
    let put = |name: &str| WebhookEdit::Put(Box::new(webhook(name)));
    let change = WebhookChange { version: 0, changes: vec![put("a"), put("b")] };
    assert_eq!(store.change_webhooks(&change).await, Ok(true));
    assert_eq!(store.change_webhooks(&change).await, Ok(false), "of an old version");
    let list = store.webhooks(Some(0)).await.unwrap().unwrap();
    assert_eq!(list.webhooks.len(), 2);
    let changes = vec![WebhookEdit::Remove(key("a"))];
    let change = WebhookChange { version: list.version, changes };
    assert_eq!(store.change_webhooks(&change).await, Ok(true));
    let list = store.webhooks(Some(list.version)).await.unwrap().unwrap();
    assert_eq!(list.webhooks, [webhook("b")]);
}

pub(in super::super) async fn what_is_owed_is_a_queue_of_which_only_the_head_is_due(
    store: Arc<dyn Store>,
) {
    let store = &*store;
    let held = claim_conversation(store, "c").await;
    for seq in 1..=3 {
        store.append(&id("c"), &held, owing(seq, &["a", "b"])).await.unwrap();
    }
    let (a, b) = (queue("a", "c"), queue("b", "c"));
    assert_eq!(due(store, -1).await, []);
    assert_eq!(due(store, 0).await.len(), 2);
    let here = [Partition::from(&id("c"))];
    let found = store.due_queues(&key("a"), &here, at(0), 10).await.unwrap();
    assert_eq!(found, [(at(0), id("c"))]);
    let elsewhere = [Partition::all().find(|it| *it != here[0]).unwrap()];
    assert_eq!(store.due_queues(&key("a"), &elsewhere, at(0), 10).await.unwrap(), []);
    let head = store.notice_head(&a).await.unwrap().unwrap();
    assert_eq!((head.notice.body.as_str(), head.due), ("{\"seq\": 1}", at(0)));
    assert_eq!(settle(store, &a, Settlement::Delivered { at: at(1) }).await, Some(2));
    let again = store.settle_notice(&a, &head, &Settlement::Delivered { at: at(2) }).await;
    assert_eq!(again, Ok(None), "it is not the head any more");
    let head = store.notice_head(&a).await.unwrap().unwrap();
    assert_eq!((head.notice.seq.get(), head.due, head.attempts.count), (2, at(1), 0));
    assert_eq!(settle(store, &a, Settlement::Delivered { at: at(1) }).await, Some(3));
    assert_eq!(settle(store, &a, Settlement::Delivered { at: at(1) }).await, None);
    assert_eq!(head_seq(store, &a).await, None);
    assert_eq!(head_seq(store, &b).await, Some(1), "another webhook has its own queue");
    assert_eq!(due(store, 9).await, [(here[0], key("b"))]);
}

pub(in super::super) async fn a_notice_that_failed_stays_the_head_until_its_time(
    store: Arc<dyn Store>,
) {
    let store = &*store;
    owe(store, "c", "a", 2).await;
    let queue = queue("a", "c");
    let attempts = Attempts { count: 1, last_at: Some(at(1)), last_error: Some("500".to_owned()) };
    let retry = Settlement::Retry { due: at(5), attempts: attempts.clone() };
    assert_eq!(settle(store, &queue, retry).await, None);
    assert_eq!(due(store, 4).await, []);
    let held = claim_conversation(store, "c").await;
    store.append(&id("c"), &held, owing(3, &["a"])).await.unwrap();
    assert_eq!(due(store, 4).await, [], "what comes later does not hurry the head");
    assert_eq!(due(store, 5).await.len(), 1);
    let head = store.notice_head(&queue).await.unwrap().unwrap();
    assert_eq!((head.notice.seq.get(), head.due, &head.attempts), (1, at(5), &attempts));
    let all_partitions = PartitionSet::all();
    let old = |since| store.old_queues(&queue.webhook, &all_partitions, since, 10);
    assert_eq!(old(at(0)).await.unwrap(), []);
    assert_eq!(old(at(1)).await.unwrap(), [id("c")]);
}

pub(in super::super) async fn dead_notices_are_kept_up_to_a_bound_and_can_be_sent_once_more(
    store: Arc<dyn Store>,
) {
    let store = &*store;
    let last = MAX_DEAD_PER_PARTITION as u64 + 3;
    owe(store, "c", "a", last).await;
    let queue = queue("a", "c");
    for seq in 1..last {
        let seconds = i64::try_from(seq).unwrap();
        assert_eq!(settle(store, &queue, dead(seconds)).await, Some(seq + 1));
    }
    let counts = store.notice_counts(&key("a")).await.unwrap();
    let most = MAX_DEAD_PER_PARTITION as u64;
    assert_eq!(counts, NoticeCounts { owed: 1, dead: most, oldest: Some(at(0)) });
    let found = all(store, "a", DeliveryState::Dead).await;
    assert_eq!(found.len(), MAX_DEAD_PER_PARTITION);
    assert!(found.iter().all(|it| it.attempts.count == 9 && it.dead_at.is_some()));
    assert_eq!(found[0].notice.seq.get(), 3, "the oldest are dropped");
    let again = async |seq| store.redeliver(&queue, Seq::new(seq), at(1_000)).await.unwrap();
    assert!(!again(2).await, "it is dropped");
    assert!(again(50).await);
    assert!(!again(50).await, "it is owed already");
    let head = store.notice_head(&queue).await.unwrap().unwrap();
    assert_eq!((head.notice.seq.get(), head.notice.since), (50, at(1_000)));
    assert_eq!((head.due, head.attempts.count), (at(1_000), 0));
    assert_eq!(settle(store, &queue, Settlement::Delivered { at: at(1) }).await, Some(last));
}

pub(in super::super) async fn what_is_owed_is_counted_and_listed(store: Arc<dyn Store>) {
    let store = &*store;
    for (conversation, last) in [("c1", 2), ("c2", 1), ("acme/c3", 1), ("c4", 3), ("c5", 1)] {
        owe(store, conversation, "a", last).await;
    }
    owe(store, "c6", "b", 1).await;
    let counts = store.notice_counts(&key("a")).await.unwrap();
    assert_eq!(counts, NoticeCounts { owed: 8, dead: 0, oldest: Some(at(0)) });
    assert_eq!(store.owed_in(&PartitionSet::all()).await.unwrap().owed, 9);
    let found = all(store, "a", DeliveryState::Owed).await;
    let expected = [
        ("acme/c3", 1),
        ("c1", 1),
        ("c1", 2),
        ("c2", 1),
        ("c4", 1),
        ("c4", 2),
        ("c4", 3),
        ("c5", 1),
    ];
    assert_eq!(ids(&found), expected.map(|(id, seq)| (id.to_owned(), seq)));
    let heads = found.iter().filter(|it| it.due.is_some());
    assert!(heads.clone().all(|it| it.notice.seq.get() == 1));
    assert_eq!(heads.count(), 5);
    assert_eq!(all(store, "none", DeliveryState::Owed).await, []);
}

pub(in super::super) async fn what_is_owed_outlives_its_conversation(store: Arc<dyn Store>) {
    let store = &*store;
    owe(store, "c", "a", 1).await;
    let held = claim_conversation(store, "c").await;
    let deleted = owed("a", 2);
    store
        .delete(&id("c"), &held, Some(response("key:1", "gone", 60)), vec![deleted])
        .await
        .unwrap();
    let queue = queue("a", "c");
    assert_eq!(head_seq(store, &queue).await, Some(1));
    assert_eq!(settle(store, &queue, Settlement::Delivered { at: at(1) }).await, Some(2));
}

pub(in super::super) async fn a_webhooks_notices_can_be_dropped(store: Arc<dyn Store>) {
    let store = &*store;
    for conversation in ["c1", "c2", "c3"] {
        owe(store, conversation, "a", 2).await;
    }
    owe(store, "c1b", "b", 1).await;
    settle(store, &queue("a", "c3"), dead(1)).await;
    for partition in Partition::all() {
        while store.drop_notices(&key("a"), partition).await.unwrap() {}
    }
    assert_eq!(store.notice_counts(&key("a")).await.unwrap(), NoticeCounts::default());
    assert_eq!(head_seq(store, &queue("a", "c1")).await, None);
    assert_eq!(due(store, 9).await, [(Partition::from(&id("c1b")), key("b"))]);
    owe(store, "c9", "a", 1).await;
    assert_eq!(head_seq(store, &queue("a", "c9")).await, Some(1));
}

pub(in super::super) async fn a_refused_commit_owes_nothing(store: Arc<dyn Store>) {
    let store = &*store;
    owe(store, "c", "a", 1).await;
    let held = claim_conversation(store, "c").await;
    assert!(store.append(&id("c"), &held, owing(1, &["a"])).await.is_err());
    assert_eq!(store.notice_counts(&key("a")).await.unwrap().owed, 1);
}
