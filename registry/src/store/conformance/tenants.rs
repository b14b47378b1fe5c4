//! Promises about tenants: what one has and does, another neither sees nor changes.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use abide_actors::blobs::Blob;
use abide_actors::journal::{InboxFilter, ResponseScope};
use abide_actors::notices::Webhook;
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{AgentName, DecisionId, Revision, ScheduleName, Scoped, Seq, Tenant};
use serde_json::json;

use super::super::operations::Effect;
use super::super::{
    KeyChange, ListError, Store, StoredAgent, StoredKey, SummaryFilter, WebhookChange, WebhookEdit,
};
use super::access::key;
use super::audit::entry;
use super::fixtures::*;
use super::notices::webhook;
use super::operations::operation;
use super::schedules::schedule;
use crate::partition::PartitionSet;

/// A text that is the same in all tenants, and so are all ids that the suite gives.
const BLOB: &str = "one";

fn of<N: AsRef<str> + for<'a> From<&'a str>>(tenant: &Tenant, name: &str) -> Scoped<N> {
    Scoped::new(tenant, &N::from(name))
}

fn blob_of(tenant: &Tenant) -> Scoped<abide_conversation::BlobId> {
    Scoped::new(tenant, &Blob::new("text/plain", BLOB).id())
}

fn decision(tool: &str) -> RememberedDecision {
    serde_json::from_value(json!({
        "id": "d", "tool": tool, "does": "", "approved": true, "match": "tool", "fingerprint": "",
        "by": "ann", "expires_at": at(60),
    }))
    .unwrap()
}

/// Gives a tenant one of everything, under ids that each tenant uses, marked by its name and `round`.
async fn write_all(store: &dyn Store, tenant: &Tenant, round: i64) {
    let mark = format!("{tenant} {round}");
    let id = of(tenant, "a");
    let held = store.claim(&id, &holder("n"), None).await.unwrap();
    let before = store.summary(&id).await.unwrap().map_or(0, |summary| summary.last_seq.get());
    let mut next = commit(before + 1, before + 2);
    next.summary.metadata.insert("mark".to_owned(), mark.clone().into());
    next.summary.alarm = Some(at(round));
    next.summary.active = true;
    next.opened = vec![pending_call(&format!("call_{round}"), 1, 60 + round)];
    next.responses = vec![
        response(&format!("key:{round}"), &mark, 60),
        response(&format!("message:{round}"), &mark, 60),
    ];
    store.append(&id, &held, next).await.unwrap();
    let agent = StoredAgent {
        name: AgentName::new("demo"),
        revision: Revision::new("r1"),
        definition: json!({"mark": mark}),
        put_at: None,
    };
    store.put_agent(tenant, agent, Some(response("key:1", &mark, 60))).await.unwrap();
    let decision = decision(&mark);
    store.set_decision(&of(tenant, "demo"), &decision.id, Some(&decision)).await.unwrap();
    store.put_blob(&blob_of(tenant), &Blob::new("text/plain", BLOB)).await.unwrap();
    store.put_entry(&id, &entry(&mark, round), at(60)).await.unwrap();
    let key = StoredKey { tenant: tenant.clone(), ..key("k", &mark) };
    store.change_key(KeyChange::Add(key)).await.unwrap();
    store.mark_keys_used(&[(of(tenant, "k"), at(round))]).await.unwrap();
    let creations = ResponseScope::Creations(tenant.clone());
    store.reserve(&creations, response("key:1", &mark, 60), at(0)).await.unwrap();
}

/// Removes what [`write_all`] wrote, as far as anything of a tenant is ever removed.
async fn delete_all(store: &dyn Store, tenant: &Tenant) {
    let id = of(tenant, "a");
    let held = store.claim(&id, &holder("n"), None).await.unwrap();
    store.delete(&id, &held, None, Vec::new()).await.unwrap();
    let id = DecisionId::new("d");
    assert_eq!(store.set_decision(&of(tenant, "demo"), &id, None).await, Ok(true));
    assert_eq!(store.delete_agent(&of(tenant, "demo"), None).await, Ok(true));
    assert_eq!(store.delete_blob(&blob_of(tenant)).await, Ok(true));
    assert_eq!(store.change_key(KeyChange::Remove(of(tenant, "k"))).await, Ok(true));
}

/// All that a tenant can read.
async fn view(store: &dyn Store, tenant: &Tenant) -> Vec<String> {
    let (id, demo) = (of(tenant, "a"), of(tenant, "demo"));
    let of_a = InboxFilter { conversation: Some(id.local()), ..Default::default() };
    let responses = async |scope| {
        let mut found = Vec::new();
        for key in ["key:1", "key:2", "key:3", "message:1", "message:2", "message:3"] {
            found.push(store.stored_response(&scope, key, at(0)).await);
        }
        found
    };
    vec![
        format!("{:?}", store.conversations(tenant, &Default::default(), None, 9).await),
        format!("{:?}", store.inbox(tenant, &Default::default(), None, 9).await),
        format!("{:?}", store.inbox(tenant, &of_a, None, 9).await),
        format!("{:?}", store.open_suspensions(tenant, None, 9).await),
        format!("{:?}", store.summary(&id).await),
        format!("{:?}", store.load(&id).await),
        format!("{:?}", store.events(&id, Seq::ZERO, 9).await),
        format!("{:?}", store.events_before(&id, Seq::MAX, 9).await),
        format!("{:?}", store.last_seqs(std::slice::from_ref(&id)).await),
        format!("{:?}", store.current_claim(&id).await.unwrap().is_some()),
        format!("{:?}", store.entries(&id, None, 9, at(0)).await),
        format!("{:?}", responses(ResponseScope::Conversation(id)).await),
        format!("{:?}", responses(ResponseScope::Agent(of(tenant, "demo"))).await),
        format!("{:?}", responses(ResponseScope::Creations(tenant.clone())).await),
        format!("{:?}", store.agents(tenant).await),
        format!("{:?}", store.agent(&demo).await),
        format!("{:?}", store.newest(&demo).await),
        format!("{:?}", store.revision(&of(tenant, "r1")).await),
        format!("{:?}", store.decisions(&demo).await),
        format!("{:?}", store.blob(&blob_of(tenant)).await),
        format!("{:?}", store.blob_info(&blob_of(tenant)).await),
        format!("{:?}", store.tenants_keys(tenant).await),
        format!("{:?}", store.keys_used(tenant).await),
    ]
}

pub(in super::super) async fn a_tenant_sees_what_it_would_see_alone(store: Arc<dyn Store>) {
    for (mine, other) in [("default", "acme"), ("globex", "default"), ("acme2", "globex")] {
        let (mine, other) = (tenant(mine), tenant(other));
        let nothing = view(&*store, &mine).await;
        write_all(&*store, &other, 1).await;
        assert_eq!(view(&*store, &mine).await, nothing, "{mine} sees of {other}");
        write_all(&*store, &mine, 2).await;
        let alone = view(&*store, &mine).await;
        assert!(alone.iter().all(|seen| !seen.contains(&format!("{other} 1"))), "{alone:#?}");
        write_all(&*store, &other, 3).await;
        assert_eq!(view(&*store, &mine).await, alone, "{mine} after a write of {other}");
        delete_all(&*store, &other).await;
        assert_eq!(view(&*store, &mine).await, alone, "{mine} after a deletion of {other}");
        delete_all(&*store, &mine).await;
    }
}

pub(in super::super) async fn alarms_and_active_marks_name_the_tenant(store: Arc<dyn Store>) {
    for (name, round) in [("default", 1), ("acme", 2)] {
        write_all(&*store, &tenant(name), round).await;
    }
    assert_eq!(store.alarms(9).await.unwrap(), [(id("a"), at(1)), (id("acme/a"), at(2))]);
    let active = store.active(&PartitionSet::all(), None, 9).await.unwrap().items;
    let mut active: Vec<_> = active.into_iter().map(|(id, _)| id).collect();
    active.sort();
    assert_eq!(active, [id("a"), id("acme/a")]);
    let tenants = store.tenants().await.unwrap();
    assert!(tenants.contains(&tenant("default")) && tenants.contains(&tenant("acme")));
    assert!(!tenants.contains(&tenant("globex")), "{tenants:?}");
}

/// A tenant that has nothing else is found by each of these.
pub(in super::super) async fn a_tenant_is_found_by_whatever_it_has(store: Arc<dyn Store>) {
    let agent = |revision: &str| StoredAgent {
        name: AgentName::new("demo"),
        revision: Revision::new(revision),
        definition: json!({}),
        put_at: None,
    };
    store.put_agent(&tenant("put"), agent("r1"), None).await.unwrap();
    assert!(store.put_agent_if(&tenant("new"), agent("r1"), None, None).await.unwrap());
    store.add_revision(&tenant("kept"), agent("r1")).await.unwrap();
    let put = Effect::PutAgent {
        tenant: tenant("operated"),
        agent: agent("r1"),
        response: None,
        newest: None,
    };
    store.operate(&operation(None, "put"), put).await.unwrap();
    let webhook = Webhook { tenant: tenant("hooked"), ..webhook("hook") };
    let changes = vec![WebhookEdit::Put(Box::new(webhook))];
    assert!(store.change_webhooks(&WebhookChange { version: 0, changes }).await.unwrap());
    let name: Scoped<ScheduleName> = of(&tenant("timed"), "s");
    let timed = schedule(&name, 1, Some(at(9)));
    assert!(store.replace_schedule(&name, None, Some(&timed)).await.unwrap());
    let key = StoredKey { tenant: tenant("keyed"), ..key("k", "key") };
    store.change_key(KeyChange::Add(key)).await.unwrap();
    claim_conversation(&*store, "claimed/a").await;
    create_conversation(&*store, "talking/a").await;
    let found = store.all_tenants().await.unwrap();
    for name in ["put", "new", "kept", "operated", "hooked", "timed", "keyed", "talking"] {
        assert!(found.contains(&tenant(name)), "{name}: {found:?}");
    }
    assert!(!found.contains(&tenant("claimed")), "a claim is nothing: {found:?}");
}

pub(in super::super) async fn a_page_of_one_tenant_has_nothing_of_others(store: Arc<dyn Store>) {
    // In the order of their texts, the conversations of the tenants alternate.
    for name in ["a", "acme/b", "b", "b/a", "c", "acme/a", "b/b", "acme/c"] {
        let held = claim_conversation(&*store, name).await;
        let mut first = commit(1, 1);
        first.opened = vec![pending_call("call_1", 1, 60)];
        store.append(&id(name), &held, first).await.unwrap();
    }
    for (name, expected) in [("default", "a b c"), ("acme", "a b c"), ("b", "a b"), ("x", "")] {
        let tenant = tenant(name);
        let (mut listed, mut waiting) = (Vec::new(), Vec::new());
        let mut cursor = None;
        for _ in 0..4 {
            let filter = SummaryFilter::default();
            let page = store.conversations(&tenant, &filter, cursor.as_deref(), 1).await.unwrap();
            assert!(page.items.iter().all(|(id, _)| id.is_of(&tenant)));
            listed.extend(page.items.into_iter().map(|(id, _)| id.local().to_string()));
            cursor = page.cursor;
            if cursor.is_none() {
                break;
            }
        }
        let mut cursor = None;
        for _ in 0..4 {
            let filter = InboxFilter::default();
            let page = store.inbox(&tenant, &filter, cursor.as_deref(), 1).await.unwrap();
            waiting.extend(page.items.into_iter().map(|entry| entry.conversation_id.to_string()));
            cursor = page.cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!((listed.join(" "), waiting.join(" ")), (expected.into(), expected.into()));
    }
}

pub(in super::super) async fn a_cursor_of_another_tenant_is_refused(store: Arc<dyn Store>) {
    for name in ["a", "b", "acme/a", "acme/b"] {
        let held = claim_conversation(&*store, name).await;
        let mut first = commit(1, 1);
        first.opened = vec![pending_call("call_1", 1, 60)];
        store.append(&id(name), &held, first).await.unwrap();
    }
    for (mine, other) in [("default", "acme"), ("acme", "default"), ("globex", "acme")] {
        let (mine, other) = (tenant(mine), tenant(other));
        let page = store.conversations(&other, &Default::default(), None, 1).await.unwrap();
        let cursor = page.cursor.as_deref();
        let refused = store.conversations(&mine, &Default::default(), cursor, 1).await;
        assert_eq!(refused, Err(ListError::Cursor));
        let page = store.inbox(&other, &Default::default(), None, 1).await.unwrap();
        let cursor = page.cursor.as_deref();
        let refused = store.inbox(&mine, &Default::default(), cursor, 1).await;
        assert_eq!(refused, Err(ListError::Cursor));
    }
}

pub(in super::super) async fn a_tenant_may_have_any_name(store: Arc<dyn Store>) {
    // The names of scopes and of conversations of other tenants.
    let scopes = [
        scope_of("demo"),
        scope_of_agent("demo"),
        scope_of("agents/demo"),
        scope_of_agent("agents/demo"),
        scope_of("conversations/demo"),
        ResponseScope::Creations(tenant("default")),
        ResponseScope::Creations(tenant("demo")),
        ResponseScope::Creations(tenant("conversations")),
    ];
    for (number, scope) in scopes.iter().enumerate() {
        let mine = response("key:1", &number.to_string(), 60);
        match scope {
            ResponseScope::Conversation(id) => {
                let held = store.claim(id, &holder("n"), None).await.unwrap();
                let mut first = commit(1, 1);
                first.responses.push(mine);
                store.append(id, &held, first).await.unwrap();
            }
            ResponseScope::Agent(_) | ResponseScope::Creations(_) => {
                assert_eq!(store.reserve(scope, mine, at(0)).await, Ok(true), "{scope:?}");
            }
        }
    }
    for (number, scope) in scopes.iter().enumerate() {
        let kept = store.stored_response(scope, "key:1", at(0)).await;
        assert_eq!(kept, Ok(Some(response("key:1", &number.to_string(), 60))), "{scope:?}");
    }
}
