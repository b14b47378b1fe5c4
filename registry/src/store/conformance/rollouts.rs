//! Promises about rollouts of revisions.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use abide_actors::journal::StoredResponse;
use abide_conversation::{AgentName, Revision};
use serde_json::json;

use super::super::{CurrentRevisions, Effect, Rollout, RolloutChange, Store, StoredAgent};
use super::fixtures::*;
use super::operations::operation;

async fn put(store: &dyn Store, name: &str, revision: &str, seconds: i64) {
    let agent = StoredAgent {
        name: AgentName::new(name),
        revision: Revision::new(revision),
        definition: json!({"name": name, "description": revision}),
        put_at: Some(at(seconds)),
    };
    store.put_agent(&own(), agent, None).await.unwrap();
}

async fn change(
    store: &dyn Store,
    name: &str,
    rollout: Option<(&str, u8)>,
    response: Option<StoredResponse>,
) -> bool {
    let rollout =
        rollout.map(|(revision, percent)| Rollout { revision: Revision::new(revision), percent });
    let change = RolloutChange { name: scoped(name), rollout, response };
    let effect = Effect::ChangeRollout(change);
    let outcome = store.operate(&operation(Some("default"), name), effect).await.unwrap();
    assert_eq!(outcome.answer, outcome.entry.is_some(), "what is done has an entry");
    outcome.answer
}

/// The newest revision of a name, and its rollout.
async fn current(store: &dyn Store, name: &str) -> Option<(String, Option<(String, u8)>)> {
    let current = store.current_revisions(&scoped(name)).await.unwrap();
    current.map(|CurrentRevisions { newest, rollout }| {
        let rollout = rollout.map(|rollout| (rollout.revision.to_string(), rollout.percent));
        (newest.to_string(), rollout)
    })
}

fn found(newest: &str, rollout: Option<(&str, u8)>) -> Option<(String, Option<(String, u8)>)> {
    let rollout = rollout.map(|(revision, percent)| (revision.to_owned(), percent));
    Some((newest.to_owned(), rollout))
}

pub(in super::super) async fn a_rollout_is_read_with_the_newest_revision(store: Arc<dyn Store>) {
    let store = &*store;
    assert_eq!(current(store, "demo").await, None);
    put(store, "demo", "r1", 10).await;
    put(store, "other", "x1", 10).await;
    assert_eq!(current(store, "demo").await, found("r1", None));
    put(store, "demo", "r2", 20).await;
    assert!(change(store, "demo", Some(("r1", 10)), Some(response("key:1", "ten", 60))).await);
    assert_eq!(current(store, "demo").await, found("r2", Some(("r1", 10))));
    let kept = store.stored_response(&scope_of_agent("demo"), "key:1", at(0)).await;
    assert_eq!(kept, Ok(Some(response("key:1", "ten", 60))));
    assert!(change(store, "demo", Some(("r1", 100)), None).await);
    assert_eq!(current(store, "demo").await, found("r2", Some(("r1", 100))));
    assert_eq!(current(store, "other").await, found("x1", None));
    // Neither the newest revision nor the list of agents is another one because of it.
    assert_eq!(store.newest(&scoped("demo")).await, Ok(Some(Revision::new("r2"))));
    let agents = store.agents(&own()).await.unwrap().into_iter();
    let agents: Vec<_> = agents.map(|agent| agent.revision.to_string()).collect();
    assert_eq!(agents, ["r2", "x1"]);
    assert!(change(store, "demo", None, None).await);
    assert_eq!(current(store, "demo").await, found("r2", None));
    assert!(!change(store, "demo", None, None).await, "there is none to end");
}

pub(in super::super) async fn a_rollout_of_what_is_not_there_or_is_the_newest_changes_nothing(
    store: Arc<dyn Store>,
) {
    let store = &*store;
    assert!(!change(store, "demo", Some(("r1", 10)), None).await);
    assert_eq!(current(store, "demo").await, None);
    put(store, "demo", "r1", 10).await;
    put(store, "demo", "r2", 20).await;
    for revision in ["r2", "r3"] {
        let refused = Some(response("key:1", "never", 60));
        assert!(!change(store, "demo", Some((revision, 10)), refused).await, "{revision}");
    }
    assert!(!change(store, "demo", None, Some(response("key:1", "never", 60))).await);
    assert_eq!(current(store, "demo").await, found("r2", None));
    let kept = store.stored_response(&scope_of_agent("demo"), "key:1", at(0)).await;
    assert_eq!(kept, Ok(None));
}

pub(in super::super) async fn a_rollout_ends_with_its_agent_and_when_its_revision_is_the_newest(
    store: Arc<dyn Store>,
) {
    let store = &*store;
    put(store, "demo", "r1", 10).await;
    put(store, "demo", "r2", 20).await;
    assert!(change(store, "demo", Some(("r1", 10)), None).await);
    put(store, "demo", "r3", 30).await;
    assert_eq!(current(store, "demo").await, found("r3", Some(("r1", 10))), "another was put");
    put(store, "demo", "r1", 40).await;
    assert_eq!(current(store, "demo").await, found("r1", None));
    assert!(change(store, "demo", Some(("r3", 20)), None).await);
    store.delete_agent(&scoped("demo"), None).await.unwrap();
    assert_eq!(current(store, "demo").await, None);
    assert!(!change(store, "demo", None, None).await, "it went with the agent");
    put(store, "demo", "r2", 50).await;
    assert_eq!(current(store, "demo").await, found("r2", None));
}

pub(in super::super) async fn a_revision_of_a_rollout_is_not_dropped(store: Arc<dyn Store>) {
    let store = &*store;
    for (revision, seconds) in [("r1", 10), ("r2", 20), ("r3", 30)] {
        put(store, "demo", revision, seconds).await;
    }
    assert!(change(store, "demo", Some(("r1", 10)), None).await);
    let drop = async || {
        let revisions = ["r1", "r2", "r3"].map(Revision::new);
        store.drop_revisions(&scoped("demo"), &revisions, 0).await.unwrap();
        let left = store.history(&scoped("demo")).await.unwrap().into_iter();
        left.map(|entry| entry.revision.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(drop().await, ["r3", "r1"]);
    assert!(store.revision(&scoped("r1")).await.unwrap().is_some());
    assert!(change(store, "demo", None, None).await);
    assert_eq!(drop().await, ["r3"]);
}
