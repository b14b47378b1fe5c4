//! Promises about the history of agents.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use abide_conversation::{AgentName, Revision};
use serde_json::json;

use super::super::{HistoryEntry, Store, StoredAgent};
use super::fixtures::*;

async fn put(store: &dyn Store, revision: &str, seconds: i64) {
    let agent = StoredAgent {
        name: AgentName::new("demo"),
        revision: Revision::new(revision),
        definition: json!({"name": "demo", "description": revision}),
        put_at: Some(at(seconds)),
    };
    store.put_agent(&own(), agent, None).await.unwrap();
}

async fn history(store: &dyn Store) -> Vec<String> {
    let entries = store.history(&scoped("demo")).await.unwrap();
    entries.into_iter().map(|entry| entry.revision.to_string()).collect()
}

pub(in super::super) async fn a_history_has_each_revision_once_in_the_order_in_which_they_were_put(
    store: Arc<dyn Store>,
) {
    assert_eq!(history(&*store).await, [""; 0]);
    for (revision, seconds) in [("r1", 10), ("r2", 20), ("r3", 30), ("r1", 40)] {
        put(&*store, revision, seconds).await;
    }
    assert_eq!(history(&*store).await, ["r1", "r3", "r2"]);
    let entries = store.history(&scoped("demo")).await.unwrap();
    assert_eq!(entries[0], HistoryEntry { revision: Revision::new("r1"), put_at: Some(at(40)) });
    // A clock that is wrong changes no order.
    put(&*store, "r4", 5).await;
    assert_eq!(history(&*store).await, ["r4", "r1", "r3", "r2"]);
    store.delete_agent(&scoped("demo"), None).await.unwrap();
    assert_eq!(history(&*store).await, ["r4", "r1", "r3", "r2"]);
    assert_eq!(store.history(&scoped("demo2")).await, Ok(vec![]));
}

pub(in super::super) async fn a_revision_that_is_added_is_the_oldest(store: Arc<dyn Store>) {
    put(&*store, "r1", 10).await;
    for revision in ["r0", "r1", "r0"] {
        let agent = StoredAgent {
            name: AgentName::new("demo"),
            revision: Revision::new(revision),
            definition: json!({"name": "demo"}),
            put_at: None,
        };
        store.add_revision(&own(), agent).await.unwrap();
    }
    assert_eq!(history(&*store).await, ["r1", "r0"]);
    assert_eq!(store.newest(&scoped("demo")).await, Ok(Some(Revision::new("r1"))));
    let kept = store.revision(&scoped("r1")).await.unwrap().unwrap();
    assert_eq!(kept.definition["description"], "r1");
    assert!(store.revision(&scoped("r0")).await.unwrap().is_some());
}

pub(in super::super) async fn only_old_revisions_are_dropped(store: Arc<dyn Store>) {
    for (revision, seconds) in [("r1", 10), ("r2", 20), ("r3", 30), ("r4", 40)] {
        put(&*store, revision, seconds).await;
    }
    let drop = async |revisions: &[&str], spared: usize| {
        let revisions: Vec<_> = revisions.iter().map(|revision| Revision::new(*revision)).collect();
        store.drop_revisions(&scoped("demo"), &revisions, spared).await.unwrap();
        history(&*store).await
    };
    assert_eq!(drop(&["r1", "r2", "r4", "r9"], 3).await, ["r4", "r3", "r2"]);
    assert_eq!(store.revision(&scoped("r1")).await, Ok(None));
    assert!(store.revision(&scoped("r2")).await.unwrap().is_some());
    // The newest one stays, whatever is asked.
    assert_eq!(drop(&["r2", "r3", "r4"], 0).await, ["r4"]);
    assert!(store.agent(&scoped("demo")).await.unwrap().is_some());
    assert_eq!(drop(&[], 0).await, ["r4"]);
}
