//! Promises about the operators' audit.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;

use abide_actors::blobs::Blob;
use abide_actors::journal::StoredResponse;
use abide_conversation::identity::Tenant;
use abide_conversation::remembered_decision::{Match, RememberedDecision};
use abide_conversation::{AgentName, DecisionId, Principal, Revision};
use futures::future::join_all;
use serde_json::{Value, json};

use super::super::operations::{AuditLevel, ChainEnd, ChainEntry, Effect, Operation, verify_chain};
use super::super::{KeyChange, MAX_OPERATIONS, Store, StoredAgent};
use super::access::key;
use super::fixtures::*;

pub(in super::super) fn operation(of: Option<&str>, target: &str) -> Operation {
    Operation {
        at: at(0),
        tenant: of.map(tenant),
        by: Principal::new("key:ops"),
        identity: None,
        operation: "node.drain".to_owned(),
        target: target.to_owned(),
        level: AuditLevel::Metadata,
        request: None,
    }
}

/// A whole chain, which is checked, as the targets of its entries.
pub(in super::super) async fn targets(store: &dyn Store, of: Option<&Tenant>) -> Vec<String> {
    let entries = store.operations(of, 0, 1_000).await.unwrap();
    assert_eq!(verify_chain(&entries), Ok(()));
    entries.iter().map(target).collect()
}

fn target(entry: &ChainEntry) -> String {
    let members: Value = serde_json::to_value(entry).unwrap();
    members["target"].as_str().unwrap().to_owned()
}

pub(in super::super) async fn an_operation_is_in_the_chain_of_its_tenant_and_of_the_cluster(
    store: Arc<dyn Store>,
) {
    assert_eq!(store.operations(None, 0, 9).await, Ok(vec![]));
    for (of, target) in [(None, "n1"), (Some("acme"), "a"), (Some("default"), "d"), (None, "n2")] {
        let outcome = store.operate(&operation(of, target), Effect::Follows).await.unwrap();
        assert!(outcome.answer && outcome.entry.is_some());
    }
    assert_eq!(targets(&*store, None).await, ["n1", "a", "d", "n2"]);
    assert_eq!(targets(&*store, Some(&tenant("acme"))).await, ["a"]);
    assert_eq!(targets(&*store, Some(&own())).await, ["d"]);
    assert_eq!(store.operations(Some(&tenant("other")), 0, 9).await, Ok(vec![]));
    let page = store.operations(None, 1, 2).await.unwrap();
    assert_eq!(page.iter().map(target).collect::<Vec<_>>(), ["a", "d"]);
    assert_eq!(page.iter().map(ChainEntry::seq).collect::<Vec<_>>(), [2, 3]);
    let first = &store.operations(Some(&own()), 0, 1).await.unwrap()[0];
    assert_eq!(first.previous(), ChainEnd::default().hash);
    assert_eq!(store.operations(None, u64::MAX >> 12, 9).await, Ok(vec![]));
}

fn agent() -> StoredAgent {
    let (name, revision) = (AgentName::new("demo"), Revision::new("r1"));
    StoredAgent { name, revision, definition: json!({"name": "demo"}), put_at: None }
}

/// Puts the agent if this is its newest revision.
fn put_after(newest: Option<&str>, response: Option<StoredResponse>) -> Effect {
    let newest = newest.map(Revision::new);
    Effect::PutAgent { tenant: own(), agent: agent(), response, newest }
}

pub(in super::super) fn decision(by: &str) -> RememberedDecision {
    RememberedDecision {
        id: DecisionId::new("d"),
        tool: "send".to_owned(),
        tool_digest: String::new(),
        approved: true,
        matching: Match::Tool,
        fingerprint: String::new(),
        by: Principal::new(by),
        voters: Vec::new(),
        expires_at: at(60),
    }
}

pub(in super::super) async fn an_operation_has_its_effect_and_one_entry(store: Arc<dyn Store>) {
    let blob = Blob::new("text/plain", "one");
    store.put_blob(&blob_id(&blob), &blob).await.unwrap();
    let demo = scoped("demo");
    store.set_decision(&demo, &DecisionId::new("d"), Some(&decision("ann"))).await.unwrap();
    let decide = Effect::ReplaceDecision { agent: demo.clone(), decision: decision("ops") };
    let effects = [
        (put_after(None, Some(response("key:1", "new", 60))), true),
        (put_after(Some("r1"), None), true),
        (decide, true),
        (Effect::ChangeKey(KeyChange::Add(key("k", "one"))), false),
        (Effect::ChangeKey(KeyChange::Update(key("k", "two"))), true),
        (Effect::DeleteBlob(blob_id(&blob)), true),
    ];
    for (number, (effect, answer)) in effects.into_iter().enumerate() {
        let operation = operation(Some("default"), &number.to_string());
        let outcome = store.operate(&operation, effect).await.unwrap();
        assert_eq!(outcome.answer, answer, "effect {number}");
        assert_eq!(outcome.entry.unwrap().seq(), number as u64 + 1);
    }
    assert_eq!(store.agent(&demo).await, Ok(Some(agent())));
    let kept = store.stored_response(&scope_of_agent("demo"), "key:1", at(0)).await;
    assert_eq!(kept, Ok(Some(response("key:1", "new", 60))));
    assert_eq!(store.decisions(&demo).await, Ok(vec![decision("ops")]));
    assert_eq!(store.tenants_keys(&own()).await, Ok(vec![key("k", "two")]));
    assert_eq!(store.blob_info(&blob_id(&blob)).await, Ok(None));
    let gone = Some(response("key:2", "gone", 60));
    for (target, effect) in [
        ("6", Effect::ChangeKey(KeyChange::Remove(scoped("k")))),
        ("7", Effect::DeleteAgent { name: demo.clone(), response: gone.clone() }),
    ] {
        let outcome = store.operate(&operation(Some("default"), target), effect).await.unwrap();
        assert!(outcome.answer && outcome.entry.is_some(), "{target}");
    }
    assert_eq!(store.tenants_keys(&own()).await, Ok(vec![]));
    assert_eq!(store.agents(&own()).await, Ok(vec![]));
    assert_eq!(store.decisions(&demo).await, Ok(vec![]));
    assert_eq!(store.stored_response(&scope_of_agent("demo"), "key:2", at(0)).await, Ok(gone));
    assert_eq!(targets(&*store, None).await, ["0", "1", "2", "3", "4", "5", "6", "7"]);
    assert_eq!(targets(&*store, Some(&own())).await.len(), 8);
}

pub(in super::super) async fn an_operation_on_nothing_has_no_effect_and_no_entry(
    store: Arc<dyn Store>,
) {
    let demo = scoped("demo");
    for effect in [
        put_after(Some("gone"), Some(response("key:1", "new", 60))),
        Effect::DeleteAgent { name: demo.clone(), response: None },
        Effect::ReplaceDecision { agent: demo.clone(), decision: decision("ops") },
        Effect::ChangeKey(KeyChange::Update(key("k", "two"))),
        Effect::ChangeKey(KeyChange::Remove(scoped("k"))),
        Effect::DeleteBlob(blob_id(&Blob::new("text/plain", "one"))),
    ] {
        let outcome = store.operate(&operation(None, "x"), effect.clone()).await.unwrap();
        assert_eq!((outcome.answer, outcome.entry), (false, None), "{effect:?}");
    }
    assert_eq!(store.operations(None, 0, 9).await, Ok(vec![]));
    assert_eq!(store.agents(&own()).await, Ok(vec![]));
    let kept = store.stored_response(&scope_of_agent("demo"), "key:1", at(0)).await;
    assert_eq!(kept, Ok(None));
    assert_eq!(store.decisions(&demo).await, Ok(vec![]));
    assert_eq!(store.tenants_keys(&own()).await, Ok(vec![]));
}

pub(in super::super) async fn operations_at_once_do_not_fork_a_chain(store: Arc<dyn Store>) {
    let operate = |number: usize| {
        let store = store.clone();
        async move {
            let of = ["acme", "default"][number % 2];
            store.operate(&operation(Some(of), &number.to_string()), Effect::Follows).await
        }
    };
    for outcome in join_all((0..20).map(operate)).await {
        assert!(outcome.unwrap().entry.is_some());
    }
    let all = targets(&*store, None).await;
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 20);
    assert_eq!(targets(&*store, Some(&own())).await.len(), 10);
    assert_eq!(targets(&*store, Some(&tenant("acme"))).await.len(), 10);
}

pub(in super::super) async fn a_chain_keeps_the_newest_of_many_operations(store: Arc<dyn Store>) {
    for number in 1..=MAX_OPERATIONS + 3 {
        let operation = operation(Some("acme"), &number.to_string());
        store.operate(&operation, Effect::Follows).await.unwrap();
    }
    for of in [None, Some(tenant("acme"))] {
        let kept = targets(&*store, of.as_ref()).await;
        assert_eq!(kept.len() as u64, MAX_OPERATIONS);
        assert_eq!(kept.first().unwrap(), "4");
    }
}
