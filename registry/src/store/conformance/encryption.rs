//! A secret in everything that an encrypted store seals: not a promise of all stores, and so no part of
//! the suite.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use abide_actors::audit::AuditEntry;
use abide_actors::blobs::Blob;
use abide_actors::journal::{Commit, Relisting, StoredResponse};
use abide_actors::notices::{NoticeKind, OwedNotice, Webhook, WebhookKey, WebhookSecret};
use abide_conversation::event::{EventData, RepairRequested};
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::state::PendingCall;
use abide_conversation::{AgentName, Revision, Scoped, Seq, State};
use serde_json::json;

use super::super::operations::{AuditLevel, Effect, Operation, verify_chain};
use super::super::{
    DeliveryState, ListQuery, NoticeQueue, Settlement, Store, StoredAgent, WebhookChange,
    WebhookEdit,
};
use super::audit::entry;
use super::fixtures::*;
use super::operations::operation;
use super::schedules::schedule;
use crate::schedules::Schedule;

/// No text of the program, and nothing that compression could hide.
pub(in super::super) const SECRET: &str = "Zq8-planted-7Vw";

fn webhook() -> WebhookKey {
    Scoped::parse("hook").unwrap()
}

fn queue(conversation: &str) -> NoticeQueue {
    NoticeQueue { webhook: webhook(), conversation: id(conversation) }
}

fn secret_response(key: &str) -> StoredResponse {
    StoredResponse { fingerprint: SECRET.to_owned(), ..response(key, SECRET, 60) }
}

fn secret_call() -> PendingCall {
    let (args, message) = (json!({ "to": SECRET }), SECRET.to_owned());
    PendingCall { args: args.into(), message, ..pending_call("call_1", 1, 60) }
}

fn secret_decision() -> RememberedDecision {
    serde_json::from_value(json!({
        "id": "d", "tool": "send", "does": "", "approved": true, "match": "tool",
        "fingerprint": SECRET, "by": "ann", "expires_at": at(60),
    }))
    .unwrap()
}

fn secret_schedule() -> Schedule {
    let mut secret = schedule(&scoped("s"), 1, Some(at(9)));
    secret.content = vec![json!({"type": "text", "text": SECRET})];
    secret.assigns.insert("a".to_owned(), json!(SECRET));
    secret
}

fn secret_entry() -> AuditEntry {
    let mut secret = entry("1", 1);
    secret.received.text = abide_actors::audit::Excerpt::of(&json!(SECRET));
    secret
}

fn secret_blob() -> Blob {
    Blob::new("text/plain", SECRET.repeat(3))
}

/// The credential of a tool is in the definition of its agent.
fn secret_agent(revision: &str) -> StoredAgent {
    let headers = json!({"authorization": SECRET});
    let run = json!({"http": {"url": "http://127.0.0.1:1/", "headers": headers}});
    let definition = json!({"name": "demo", "tools": [{"name": "pay", "run": run}]});
    let (name, revision) = (AgentName::new("demo"), Revision::new(revision));
    StoredAgent { name, revision, definition, put_at: None }
}

fn secret_webhook() -> Webhook {
    let mut secret = super::notices::webhook("signed");
    secret.secrets = vec![WebhookSecret { secret: SECRET.to_owned(), until: None, made_by: None }];
    secret
}

fn secret_operation(of: Option<&str>) -> Operation {
    let request = Some(json!({ "text": SECRET }).to_string());
    Operation { level: AuditLevel::Request, request, ..operation(of, SECRET) }
}

/// Writes two definitions of a tenant that has nothing else.
pub(in super::super) async fn plant_agents_alone(store: &dyn Store) {
    store.add_revision(&tenant("alone"), secret_agent("r1")).await.unwrap();
    store.put_agent(&tenant("alone"), secret_agent("r2"), None).await.unwrap();
}

/// Writes what `rewrap` seals if it was plain. Returns how many values that are.
pub(in super::super) async fn plant_plain_or_sealed(store: &dyn Store) -> u64 {
    store.put_agent(&own(), secret_agent("r2"), None).await.unwrap();
    store.add_revision(&own(), secret_agent("r1")).await.unwrap();
    // A tenant that only the operators' audit names.
    let (tenant, agent) = (tenant("acme"), secret_agent("r1"));
    let put = Effect::PutAgent { tenant, agent, response: None, newest: None };
    store.operate(&secret_operation(Some("acme")), put).await.unwrap();
    let edit = WebhookEdit::Put(Box::new(secret_webhook()));
    let change = WebhookChange { version: 0, changes: vec![edit] };
    assert_eq!(store.change_webhooks(&change).await, Ok(true));
    store.operate(&secret_operation(None), Effect::Follows).await.unwrap();
    store.operate(&secret_operation(Some("default")), Effect::Follows).await.unwrap();
    // Three definitions, a webhook, three entries of the cluster and one of each tenant.
    3 + 1 + 3 + 2
}

/// Finds what [`plant_plain_or_sealed`] wrote.
pub(in super::super) async fn assert_plain_or_sealed(store: &dyn Store) {
    assert_eq!(store.agent(&scoped("demo")).await, Ok(Some(secret_agent("r2"))));
    assert_eq!(store.agents(&own()).await, Ok(vec![secret_agent("r2")]));
    for revision in ["r1", "acme/r1"] {
        let found = store.revision(&scoped(revision)).await;
        assert_eq!(found, Ok(Some(secret_agent("r1"))), "{revision}");
    }
    assert_eq!(store.agents(&tenant("acme")).await, Ok(vec![secret_agent("r1")]));
    let list = store.webhooks(None).await.unwrap().unwrap();
    assert_eq!((list.version, list.webhooks), (1, vec![secret_webhook()]));
    for (of, count) in [(None, 3), (Some(own()), 1), (Some(tenant("acme")), 1)] {
        let entries = store.operations(of.as_ref(), 0, 9).await.unwrap();
        assert_eq!((entries.len(), verify_chain(&entries)), (count, Ok(())));
        assert!(serde_json::to_string(&entries).unwrap().contains(SECRET));
    }
}

/// A commit of event 2, with a secret wherever content can be.
fn secret_commit() -> Commit {
    let mut next = commit(2, 2);
    let reason = SECRET.to_owned();
    Arc::make_mut(&mut next.events)[0].data =
        EventData::RepairRequested(RepairRequested { reason });
    next.summary.metadata.insert("plan".to_owned(), json!(SECRET));
    next.summary.listing.title = Some(SECRET.to_owned());
    next.relisting = Relisting::Whole { indexed: Arc::from(["plan".to_owned()]) };
    let title = Some(SECRET.to_owned());
    next.state = Some(Arc::new(State { seq: Seq::new(2), title, ..State::default() }));
    next.opened.push(secret_call());
    next.responses.push(secret_response("key:1"));
    let body = Arc::from(format!("{{\"text\":\"{SECRET}\"}}"));
    let (seq, kind) = (Seq::new(2), NoticeKind::TurnCompleted);
    next.owed.push(OwedNotice { webhook: webhook(), seq, kind, at: at(0), body });
    next
}

/// Writes a conversation of two events, and everything else that is sealed.
pub(in super::super) async fn plant(store: &dyn Store, name: &str) {
    let held = create_conversation(store, name).await;
    store.append(&id(name), &held, secret_commit()).await.unwrap();
    store.put_entry(&id(name), &secret_entry(), at(600)).await.unwrap();
}

/// Writes what belongs to no conversation.
pub(in super::super) async fn plant_shared(store: &dyn Store) {
    store.reserve(&scope_of_agent("demo"), secret_response("key:2"), at(0)).await.unwrap();
    store.put_blob(&blob_id(&secret_blob()), &secret_blob()).await.unwrap();
    let decision = secret_decision();
    store.set_decision(&scoped("demo"), &decision.id, Some(&decision)).await.unwrap();
    store.replace_schedule(&scoped("s"), None, Some(&secret_schedule())).await.unwrap();
    plant_plain_or_sealed(store).await;
}

/// Finds what [`plant`] wrote.
pub(in super::super) async fn assert_planted(store: &dyn Store, name: &str) {
    let commit = secret_commit();
    let loaded = store.load(&id(name)).await.unwrap().unwrap();
    assert_eq!(loaded.state.title.as_deref(), Some(SECRET));
    let events = store.events(&id(name), Seq::ZERO, 9).await.unwrap();
    assert_eq!((events.len(), &events[1]), (2, &commit.events[0]));
    let last = store.events_before(&id(name), Seq::new(9), 1).await.unwrap();
    assert_eq!(last[..], commit.events[..]);
    assert_eq!(store.summary(&id(name)).await, Ok(Some(commit.summary.clone())));
    let stored = store.stored_response(&scope_of(name), "key:1", at(0)).await;
    assert_eq!(stored, Ok(Some(secret_response("key:1"))));
    let head = store.notice_head(&queue(name)).await.unwrap().unwrap();
    assert_eq!(head.notice.body, commit.owed[0].body.to_string());
    assert_eq!(store.entries(&id(name), None, 9, at(2)).await, Ok(vec![secret_entry()]));
    let listed = store.conversations(&own(), &Default::default(), None, 99).await.unwrap();
    assert!(listed.items.contains(&(id(name), commit.summary.clone())));
    let inbox = store.inbox(&own(), &Default::default(), None, 99).await.unwrap().items;
    let of = |it: &&abide_actors::journal::InboxEntry| it.conversation_id == id(name).local();
    assert_eq!(inbox.iter().find(of).unwrap().pending, secret_call());
    let query = ListQuery {
        metadata: [("plan".to_owned(), SECRET.to_owned())].into(),
        ..ListQuery::default()
    };
    let listed = store.list(&own(), &query, None, 99).await.unwrap().items;
    assert!(listed.iter().any(|it| it.id == id(name) && it.summary == commit.summary));
}

/// Finds what [`plant_shared`] wrote.
pub(in super::super) async fn assert_planted_shared(store: &dyn Store) {
    let stored = store.stored_response(&scope_of_agent("demo"), "key:2", at(0)).await;
    assert_eq!(stored, Ok(Some(secret_response("key:2"))));
    assert!(store.blob(&blob_id(&secret_blob())).await == Ok(Some(secret_blob())));
    assert_eq!(store.decisions(&scoped("demo")).await, Ok(vec![secret_decision()]));
    assert_eq!(store.schedule(&scoped("s")).await, Ok(Some(secret_schedule())));
    let page = store.schedules(&own(), None, 9).await.unwrap();
    assert_eq!(page.items, [secret_schedule()]);
    assert_plain_or_sealed(store).await;
}

/// Makes the notice of [`plant`] a dead one, and finds it.
pub(in super::super) async fn bury_planted(store: &dyn Store, name: &str) {
    let head = store.notice_head(&queue(name)).await.unwrap().unwrap();
    let dead = Settlement::Dead { at: at(3), attempts: Default::default() };
    store.settle_notice(&queue(name), &head, &dead).await.unwrap();
    let dead = store.deliveries(&webhook(), DeliveryState::Dead, None, 9).await.unwrap();
    assert_eq!(dead.items[0].notice, head.notice);
}
