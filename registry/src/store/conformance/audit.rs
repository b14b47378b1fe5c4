//! Promises about the audit.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use abide_actors::audit::{AuditEntry, Excerpt, MAX_ENTRIES, Omitted, Received};
use abide_actors::model::Purpose;
use abide_conversation::message::StopReason;
use abide_conversation::{Seq, Step, TurnId};
use serde_json::json;

use super::super::Store;
use super::fixtures::*;

pub(super) fn entry(name: &str, seconds: i64) -> AuditEntry {
    AuditEntry {
        id: format!("audit_{name}"),
        at: at(seconds),
        purpose: Purpose::Step,
        turn_id: Some(TurnId::new("turn_1")),
        step: Some(Step::FIRST),
        attempts: 2,
        sent: Excerpt::of(&json!({"messages": ["hello"]})),
        received: Received {
            thinking: Excerpt::of(&json!("")),
            text: Excerpt::of(&json!("hi")),
            calls: Excerpt::of(&json!([])),
            stop: Some(StopReason::End),
            failure: None,
        },
        usage: None,
        first_part_ms: Some(3),
        whole_ms: 9,
        summary: Some(Seq::new(7)),
        omitted: Omitted { messages: 4, ..Omitted::default() },
    }
}

async fn entry_ids(store: &dyn Store, of: &str, now: i64) -> Vec<String> {
    let entries = store.entries(&id(of), None, 2_000, at(now)).await.unwrap();
    entries.into_iter().map(|entry| entry.id).collect()
}

pub(in super::super) async fn the_audit_is_read_newest_first_and_in_pages(store: Arc<dyn Store>) {
    for name in ["a", "a:b"] {
        create_conversation(&*store, name).await;
    }
    // The entries are written in a different order from their times.
    for (name, seconds) in [("2", 2), ("1", 1), ("4", 3), ("3", 3)] {
        store.put_entry(&id("a"), &entry(name, seconds), at(60)).await.unwrap();
    }
    store.put_entry(&id("a:b"), &entry("other", 2), at(60)).await.unwrap();
    let first = store.entries(&id("a"), None, 3, at(4)).await.unwrap();
    assert_eq!(first, [entry("4", 3), entry("3", 3), entry("2", 2)]);
    let last = first.last().unwrap().key();
    let rest = store.entries(&id("a"), Some(&last), 3, at(4)).await.unwrap();
    assert_eq!(rest, [entry("1", 1)]);
    assert_eq!(store.entries(&id("b"), None, 3, at(4)).await, Ok(vec![]));
}

pub(in super::super) async fn an_entry_of_the_audit_expires(store: Arc<dyn Store>) {
    create_conversation(&*store, "a").await;
    for (name, expires_at) in [("long", 60), ("short", 10)] {
        store.put_entry(&id("a"), &entry(name, 0), at(expires_at)).await.unwrap();
    }
    assert_eq!(entry_ids(&*store, "a", 9).await, ["audit_short", "audit_long"]);
    assert_eq!(entry_ids(&*store, "a", 10).await, ["audit_long"]);
    store.put_entry(&id("a"), &entry("late", 30), at(90)).await.unwrap();
    assert_eq!(
        entry_ids(&*store, "a", 0).await,
        ["audit_late", "audit_long"],
        "it is not even there"
    );
    assert_eq!(entry_ids(&*store, "a", 60).await, ["audit_late"]);
    assert!(entry_ids(&*store, "a", 90).await.is_empty());
}

pub(in super::super) async fn the_audit_keeps_the_newest_of_many(store: Arc<dyn Store>) {
    create_conversation(&*store, "a").await;
    let many = i64::try_from(MAX_ENTRIES).unwrap() + 5;
    for n in 0..many {
        let entry = entry(&n.to_string(), n);
        store.put_entry(&id("a"), &entry, at(n + 10_000)).await.unwrap();
    }
    let kept = entry_ids(&*store, "a", many).await;
    assert_eq!(kept.len(), MAX_ENTRIES);
    assert_eq!(kept.last().unwrap(), "audit_5");
    assert_eq!(kept.first().unwrap(), &format!("audit_{}", many - 1));
}

pub(in super::super) async fn the_audit_is_deleted_with_its_conversation(store: Arc<dyn Store>) {
    let held = create_conversation(&*store, "a").await;
    create_conversation(&*store, "a:b").await;
    for name in ["a", "a:b"] {
        for n in 0..20 {
            let entry = entry(&n.to_string(), n);
            store.put_entry(&id(name), &entry, at(10_000)).await.unwrap();
        }
    }
    store.delete(&id("a"), &held, None, Vec::new()).await.unwrap();
    assert!(entry_ids(&*store, "a", 0).await.is_empty());
    store.put_entry(&id("a"), &entry("late", 1), at(60)).await.unwrap();
    assert!(entry_ids(&*store, "a", 0).await.is_empty());
    create_conversation(&*store, "a").await;
    assert!(entry_ids(&*store, "a", 0).await.is_empty());
    store.put_entry(&id("a"), &entry("new", 1), at(60)).await.unwrap();
    assert_eq!(entry_ids(&*store, "a", 0).await, ["audit_new"]);
    assert_eq!(entry_ids(&*store, "a:b", 0).await.len(), 20);
}
