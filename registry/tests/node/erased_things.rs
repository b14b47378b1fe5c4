//! What an erasure takes away besides conversations: schedules, blobs, keys, decisions, webhooks, and what
//! the operators' audit says.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use abide_actors::blobs::{Blob, BlobHold};
use abide_actors::notices::Webhook;
use abide_conversation::approval::{Approver, SubjectId};
use abide_conversation::identity::Role;
use abide_conversation::remembered_decision::{Match, RememberedDecision};
use abide_conversation::{DecisionId, Principal, ScheduleName, Scoped};
use abide_registry::schedules::Schedule;
use abide_registry::store::{
    AuditLevel, Effect, KeyChange, Operation, Rebuild, Store, StoredKey, WebhookChange, WebhookEdit,
};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::erasing::{AGENT, agent, at, erase, own};
use crate::flaky_store::FlakyStore;
use crate::test_node::{TestNode, clock};

async fn put_schedule(store: &dyn Store, name: &str, by: &str, more: Value) {
    let mut schedule = json!({
        "name": name, "version": 1, "agent": "a", "rhythm": {"every_ms": 3_600_000}, "content": [],
        "if_busy": "Queue", "missed": "last", "paused": false, "principal": by,
        "created_at": at(0), "put_at": at(0), "next_at": at(3_600),
    });
    schedule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let schedule: Schedule = serde_json::from_value(schedule).unwrap();
    let name = Scoped::new(&own(), &ScheduleName::new(name));
    assert!(store.replace_schedule(&name, None, Some(&schedule)).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn all_schedules_of_a_person_go_whoever_speaks_for_them() {
    let node = TestNode::new(AGENT).await;
    for number in 0..110 {
        put_schedule(&*node.store, &format!("s{number:03}"), "bob", json!({})).await;
    }
    let acts_for = json!({"iss": "https://issuer.example", "sub": "ada"});
    let gateway = json!({"identity": {"tenant": "default", "iss": "abide", "sub": "key:gateway",
        "auth": "key", "on_behalf_of": acts_for}});
    put_schedule(&*node.store, "x", "key:gateway", gateway).await;
    put_schedule(&*node.store, "y", "ada", json!({})).await;
    let report = erase(&node, "ada").await;
    assert_eq!(report.report.deleted.schedules, 2);
    assert_eq!(node.store.schedule_count(&own()).await.unwrap(), 110);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_ticks_while_it_is_removed_goes() {
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_store(store.clone(), AGENT).await;
    put_schedule(&*store, "x", "ada", json!({})).await;
    store.ticks_first.store(true, Ordering::SeqCst);
    assert_eq!(erase(&node, "ada").await.report.deleted.schedules, 1);
    assert!(!store.ticks_first.load(Ordering::SeqCst), "it has ticked");
    assert_eq!(node.store.schedule_count(&own()).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_an_import_has_stored_stays_as_long_as_it_may_go_on() {
    let node = TestNode::new(AGENT).await;
    let now = clock().now();
    let (present, known) = (node.store.rebuild().await.unwrap(), Rebuild::after(None, now));
    assert!(node.store.replace_rebuild(present.as_ref(), &known.ended(now)).await.unwrap());
    let mut blobs = Vec::new();
    for minutes in [50, 150] {
        let blob = Blob::new("text/plain", format!("read {minutes} minutes ago"));
        let id = Scoped::new(&own(), &blob.id());
        let read_at = now.checked_sub(SignedDuration::from_mins(minutes)).unwrap();
        let hold = BlobHold::of_conversation(&Scoped::parse("new").unwrap(), read_at);
        node.store.store_blob(&id, &blob, Some(&hold)).await.unwrap();
        blobs.push(id);
    }
    assert_eq!(erase(&node, "ada").await.report.deleted.blobs, 1);
    assert!(node.store.blob_info(&blobs[0]).await.unwrap().is_some());
    assert_eq!(node.store.blob_info(&blobs[1]).await.unwrap(), None);
}

fn stored_key(id: &str, owner: &str) -> StoredKey {
    StoredKey {
        id: id.to_owned(),
        sha256: id.repeat(32),
        tenant: own(),
        roles: [Role::User].into(),
        queues: Default::default(),
        name: id.to_owned(),
        owner: owner.to_owned(),
        created_at: at(0),
        expires_at: at(90_000_000),
    }
}

#[tokio::test(start_paused = true)]
async fn the_keys_that_a_person_made_go_and_the_key_that_is_the_subject() {
    let node = TestNode::new(AGENT).await;
    for (id, owner) in [("k1", "ada"), ("k2", "bob"), ("k3", "bob")] {
        node.store.change_key(KeyChange::Add(stored_key(id, owner))).await.unwrap();
    }
    let left = async || {
        let keys = node.store.tenants_keys(&own()).await.unwrap();
        keys.into_iter().map(|key| key.id).collect::<Vec<_>>()
    };
    assert_eq!(erase(&node, "key:k2").await.report.deleted.api_keys, 1);
    assert_eq!(left().await, ["k1", "k3"]);
}

fn decision(id: &str, by: &str, voters: &[&str]) -> RememberedDecision {
    let voter = |sub: &&str| Approver {
        subject: SubjectId { iss: String::new(), sub: (*sub).to_owned() },
        at: at(0),
    };
    RememberedDecision {
        id: DecisionId::new(id),
        tool: "send".to_owned(),
        tool_digest: String::new(),
        approved: true,
        matching: Match::Tool,
        fingerprint: String::new(),
        by: Principal::new(by),
        voters: voters.iter().map(voter).collect(),
        expires_at: at(90_000_000),
    }
}

#[tokio::test(start_paused = true)]
async fn a_persons_decisions_go_and_their_votes_in_others_have_the_alias() {
    let node = TestNode::new(AGENT).await;
    for decision in [decision("d1", "ada", &["ada"]), decision("d2", "bob", &["ada", "bob"])] {
        node.store.set_decision(&agent(), &decision.id, Some(&decision)).await.unwrap();
    }
    let report = erase(&node, "ada").await;
    let left = node.store.decisions(&agent()).await.unwrap();
    assert_eq!(left, [decision("d2", "bob", &[&report.alias, "bob"])]);
    assert_eq!((report.report.deleted.decisions, report.report.rewritten.decisions), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_is_revoked_while_it_is_rewritten_stays_revoked() {
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_store(store.clone(), AGENT).await;
    let decision = decision("d1", "bob", &["ada", "bob"]);
    node.store.set_decision(&agent(), &decision.id, Some(&decision)).await.unwrap();
    store.revokes_first.store(true, Ordering::SeqCst);
    let report = erase(&node, "ada").await;
    assert!(!store.revokes_first.load(Ordering::SeqCst));
    assert_eq!(node.store.decisions(&agent()).await, Ok(vec![]));
    assert_eq!(report.report.rewritten.decisions, 0);
}

fn webhook(name: &str, by: &str, links: Option<&str>) -> Webhook {
    let mut webhook = json!({"tenant": "default", "name": name, "generation": "g",
        "url": "http://a.example/", "created_at": at(0), "updated_at": at(0), "by": by});
    if let Some(subject) = links {
        webhook["links"] = json!({"subject": subject});
    }
    serde_json::from_value(webhook).unwrap()
}

#[tokio::test(start_paused = true)]
async fn no_webhook_has_links_that_answer_as_the_person() {
    let node = TestNode::new(AGENT).await;
    let known = node.store.webhooks(None).await.unwrap().map_or(0, |list| list.version);
    let put = |webhook| WebhookEdit::Put(Box::new(webhook));
    let changes = vec![
        put(webhook("made", "ada", Some("bob"))),
        put(webhook("answers", "bob", Some("ada"))),
        put(webhook("others", "bob", Some("bob"))),
    ];
    let change = WebhookChange { version: known, changes };
    assert!(node.store.change_webhooks(&change).await.unwrap());
    let report = erase(&node, "ada").await;
    let mut list = node.store.webhooks(None).await.unwrap().unwrap().webhooks;
    list.sort_by(|one, other| one.name.cmp(&other.name));
    let expected = [
        webhook("answers", "bob", None),
        webhook("made", &report.alias, Some("bob")),
        webhook("others", "bob", Some("bob")),
    ];
    assert_eq!(list, expected);
    assert_eq!(report.report.rewritten.webhooks, 2);
}

#[tokio::test(start_paused = true)]
async fn the_audit_of_the_cluster_names_the_person_no_more_than_the_tenants() {
    let node = TestNode::new(AGENT).await;
    for by in ["ada", "bob"] {
        let operation = Operation {
            at: at(0),
            tenant: Some(own()),
            by: Principal::new(by),
            identity: None,
            operation: "agent.put".to_owned(),
            target: "a".to_owned(),
            level: AuditLevel::Metadata,
            request: None,
        };
        node.store.operate(&operation, Effect::Follows).await.unwrap();
    }
    let report = erase(&node, "ada").await;
    assert_eq!(report.report.rewritten.operations, 1, "it is one thing in two chains");
    for chain in [None, Some(own())] {
        let entries = node.store.operations(chain.as_ref(), 0, 9).await.unwrap();
        let text = serde_json::to_string(&entries).unwrap();
        assert_eq!(entries.len(), 2);
        assert!(!text.contains("\"ada\"") && text.contains("erasure:er_1"), "{text}");
    }
}
