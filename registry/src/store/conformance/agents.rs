//! Promises about agents' definitions and their revisions.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use abide_actors::journal::ResponseScope;
use abide_conversation::remembered_decision::{Match, RememberedDecision};
use abide_conversation::{AgentName, DecisionId, Principal, Revision, Scoped};
use serde_json::json;

use super::super::{Store, StoredAgent};
use super::fixtures::*;

fn agent(name: &str, revision: &str) -> StoredAgent {
    let definition = json!({"name": name, "description": revision});
    let (name, revision) = (AgentName::new(name), Revision::new(revision));
    StoredAgent { name, revision, definition, put_at: None }
}

pub(in super::super) async fn an_agent_is_reported_as_new_once(store: Arc<dyn Store>) {
    let name = scoped("demo");
    assert_eq!(store.agent(&name).await, Ok(None));
    assert_eq!(store.newest(&name).await, Ok(None));
    let first =
        store.put_agent(&own(), agent("demo", "r1"), Some(response("key:1", "new", 60))).await;
    assert_eq!(first, Ok(true));
    assert_eq!(store.put_agent(&own(), agent("demo", "r1"), None).await, Ok(false));
    assert_eq!(store.agent(&name).await, Ok(Some(agent("demo", "r1"))));
    let kept = store.stored_response(&scope_of_agent("demo"), "key:1", at(0)).await;
    assert_eq!(kept, Ok(Some(response("key:1", "new", 60))));
}

pub(in super::super) async fn a_replaced_revision_stays(store: Arc<dyn Store>) {
    store.put_agent(&own(), agent("demo", "r1"), None).await.unwrap();
    assert_eq!(store.put_agent(&own(), agent("demo", "r2"), None).await, Ok(false));
    assert_eq!(store.agent(&scoped("demo")).await, Ok(Some(agent("demo", "r2"))));
    assert_eq!(store.newest(&scoped("demo")).await, Ok(Some(Revision::new("r2"))));
    for revision in ["r1", "r2"] {
        let kept = store.revision(&scoped(revision)).await;
        assert_eq!(kept, Ok(Some(agent("demo", revision))));
    }
    assert_eq!(store.revision(&scoped("r3")).await, Ok(None));
}

pub(in super::super) async fn a_deleted_agent_leaves_its_revisions(store: Arc<dyn Store>) {
    let name = scoped("demo");
    store.put_agent(&own(), agent("demo", "r1"), None).await.unwrap();
    let gone = Some(response("key:2", "gone", 60));
    assert_eq!(store.delete_agent(&name, gone.clone()).await, Ok(true));
    assert_eq!(store.delete_agent(&name, None).await, Ok(false));
    assert_eq!(store.agent(&name).await, Ok(None));
    assert_eq!(store.newest(&name).await, Ok(None));
    assert_eq!(store.agents(&own()).await, Ok(vec![]));
    assert_eq!(store.stored_response(&scope_of_agent("demo"), "key:2", at(0)).await, Ok(gone));
    let kept = store.revision(&scoped("r1")).await;
    assert_eq!(kept, Ok(Some(agent("demo", "r1"))));
    assert_eq!(store.put_agent(&own(), agent("demo", "r1"), None).await, Ok(true));
}

pub(in super::super) async fn an_agent_is_put_only_over_the_revision_that_is_expected(
    store: Arc<dyn Store>,
) {
    let (name, r1) = (scoped("demo"), Revision::new("r1"));
    let mark = |text: &str| Some(response("key:1", text, 60));
    let put = async |revision: &str, newest: Option<&Revision>| {
        store.put_agent_if(&own(), agent("demo", revision), mark(revision), newest).await.unwrap()
    };
    let kept =
        async || store.stored_response(&scope_of_agent("demo"), "key:1", at(0)).await.unwrap();
    assert!(!put("r2", Some(&r1)).await, "there is none");
    assert_eq!((store.newest(&name).await, kept().await), (Ok(None), None));
    assert!(put("r1", None).await);
    assert!(!put("r2", None).await, "there is one");
    assert_eq!(store.newest(&name).await, Ok(Some(r1.clone())));
    assert_eq!(store.revision(&scoped("r2")).await, Ok(None));
    assert_eq!(kept().await, mark("r1"));
    assert!(put("r2", Some(&r1)).await);
    assert!(!put("r3", Some(&r1)).await, "it was replaced");
    assert_eq!(store.agent(&name).await, Ok(Some(agent("demo", "r2"))));
    assert_eq!(kept().await, mark("r2"));
}

pub(in super::super) async fn agents_are_listed_by_name(store: Arc<dyn Store>) {
    for (name, revision) in [("b", "r1"), ("a-b", "r2"), ("a", "r3"), ("b", "r4")] {
        store.put_agent(&own(), agent(name, revision), None).await.unwrap();
    }
    let listed = [agent("a", "r3"), agent("a-b", "r2"), agent("b", "r4")];
    assert_eq!(store.agents(&own()).await.unwrap(), listed);
}

pub(in super::super) async fn decisions_belong_to_one_agent_and_are_deleted_with_it(
    store: Arc<dyn Store>,
) {
    let (demo, other) = (scoped("demo"), scoped("demo2"));
    let decision = |id: &str, tool: &str| RememberedDecision {
        id: DecisionId::new(id),
        tool: tool.to_owned(),
        tool_digest: "d".to_owned(),
        approved: true,
        matching: Match::Tool,
        fingerprint: "f".to_owned(),
        by: Principal::new("ann"),
        voters: Vec::new(),
        expires_at: at(60),
    };
    for (agent, id) in [(&demo, "b"), (&demo, "a"), (&other, "c")] {
        store.put_agent(&own(), agent_of(agent), None).await.unwrap();
        let new = decision(id, "send");
        assert_eq!(store.set_decision(agent, &new.id, Some(&new)).await, Ok(false));
    }
    let again = decision("a", "read");
    assert_eq!(store.set_decision(&demo, &again.id, Some(&again)).await, Ok(true));
    assert_eq!(store.decisions(&demo).await, Ok(vec![again, decision("b", "send")]));
    assert_eq!(store.set_decision(&demo, &DecisionId::new("b"), None).await, Ok(true));
    assert_eq!(store.set_decision(&demo, &DecisionId::new("b"), None).await, Ok(false));
    store.delete_agent(&demo, None).await.unwrap();
    assert_eq!(store.decisions(&demo).await, Ok(vec![]));
    assert_eq!(store.decisions(&other).await, Ok(vec![decision("c", "send")]));
}

fn agent_of(name: &Scoped<AgentName>) -> StoredAgent {
    agent(name.as_str(), "r1")
}

pub(in super::super) async fn a_key_is_reserved_once_until_it_expires(store: Arc<dyn Store>) {
    let creations = ResponseScope::Creations(own());
    let mut rivals = tokio::task::JoinSet::new();
    for rival in 0..16 {
        let (store, creations) = (Arc::clone(&store), creations.clone());
        let mine = response("key:1", &rival.to_string(), 60);
        rivals.spawn(async move { (store.reserve(&creations, mine.clone(), at(0)).await, mine) });
    }
    let all = rivals.join_all().await;
    let winners: Vec<_> = all.iter().filter(|(kept, _)| *kept == Ok(true)).collect();
    assert_eq!(winners.len(), 1);
    assert_eq!(
        store.stored_response(&creations, "key:1", at(0)).await,
        Ok(Some(winners[0].1.clone()))
    );
    let next = response("key:1", "next", 600);
    assert_eq!(store.reserve(&creations, next.clone(), at(59)).await, Ok(false));
    assert_eq!(store.reserve(&creations, next.clone(), at(60)).await, Ok(true));
    assert_eq!(store.stored_response(&creations, "key:1", at(60)).await, Ok(Some(next)));
}
