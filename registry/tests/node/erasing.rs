//! An erasure takes a person out of everything that a tenant has, also where that is on a later page,
//! and goes on from whatever progress was stored.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::notices::Webhook;
use abide_actors::request::{Request, SendRequest};
use abide_conversation::approval::{Approver, SubjectId};
use abide_conversation::command::{Create, IfBusy};
use abide_conversation::event::{Event, EventData};
use abide_conversation::identity::{Participants, Role};
use abide_conversation::remembered_decision::{Match, RememberedDecision};
use abide_conversation::{
    AgentName, ConversationId, DecisionId, ErasureId, Principal, ScheduleName, Scoped, Tenant,
    Timestamp,
};
use abide_registry::erasure::{Erasure, ErasureState, ErasureStep, Running};
use abide_registry::erasures::Eraser;
use abide_registry::schedules::Schedule;
use abide_registry::store::{
    AuditLevel, Effect, KeyChange, Operation, Store, StoredKey, WebhookChange, WebhookEdit,
};
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use crate::flaky_store::FlakyStore;
use crate::test_node::{TestNode, clock, user_message};

const AGENT: &str = r#"
name: a
model: {provider: scripted, script: [{text: "Yes, {{ user }}."}]}
"#;
/// How often the conversations of a person are gone through.
const MAX_PASSES: u32 = 16;
/// How many conversations of others are gone through in one step.
const CONVERSATIONS_OF_A_STEP: usize = 200;
const DEADLINE: Duration = Duration::from_secs(3_600);

fn own() -> Tenant {
    Tenant::default()
}

fn agent() -> Scoped<AgentName> {
    Scoped::new(&own(), &AgentName::new("a"))
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// Erases a person, beginning with this progress. Returns the report.
async fn erase_from(
    node: &TestNode,
    subject: &str,
    progress: impl FnOnce(&mut Running),
) -> Erasure {
    let clock = clock();
    let id = ErasureId::new("er_1");
    let mut erasure = Erasure::new(id.clone(), subject.to_owned(), b"salt", clock.now());
    if let ErasureState::Running(running) = &mut erasure.state {
        progress(running);
    }
    let name = Erasure::running_name(&own(), subject);
    assert!(node.store.replace_erasure(&name, None, Some(&erasure)).await.unwrap());
    let (store, conversations) = (node.store.clone(), node.conversations.clone());
    let eraser = Eraser { store, conversations, clock };
    let _running = AbortOnDropHandle::new(tokio::spawn(eraser.run()));
    let report = name.sibling(&id);
    let done = async {
        loop {
            match node.store.erasure(&report).await.unwrap() {
                Some(report) => return report,
                None => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    };
    tokio::time::timeout(DEADLINE, done).await.expect("the erasure never ends")
}

async fn erase(node: &TestNode, subject: &str) -> Erasure {
    erase_from(node, subject, |_| ()).await
}

async fn create(node: &TestNode, id: &str, owner: &str) {
    let create = Create {
        agent: AgentName::new("a"),
        assigns: Default::default(),
        metadata: Default::default(),
        tools: Vec::new(),
        parent: None,
        fork: None,
        participants: Participants { owner: Some(owner.to_owned()), members: Vec::new() },
        title: None,
        expires_at: None,
    };
    node.deliver(id, Request::Create(create)).await.unwrap();
}

/// Sends a message as this person, and waits for its turn.
async fn say(node: &TestNode, id: &str, by: &str, turn: usize) {
    let Request::Send(message) = user_message("hi", IfBusy::Reject) else { unreachable!() };
    let message = SendRequest { principal: Principal::new(by), ..message };
    node.deliver(id, Request::Send(message)).await.unwrap();
    node.turn_end(id, turn).await;
}

fn senders(events: &[Event]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|event| match &event.data {
            EventData::UserMsg(message) => Some(message.principal.as_str()),
            _ => None,
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_person_who_is_named_late_in_a_long_journal_is_found() {
    let node = TestNode::new(AGENT).await;
    create(&node, "unconcerned", "bob").await;
    create(&node, "x", "bob").await;
    for turn in 1..=20 {
        say(&node, "x", "bob", turn).await;
    }
    say(&node, "x", "ada", 21).await;
    assert!(node.journal("x").await.len() > 70, "it has a second page");
    let report = erase(&node, "ada").await;
    let journal = node.journal("x").await;
    assert_eq!(senders(&journal).last(), Some(&report.alias.as_str()));
    assert_eq!(report.report.rewritten.conversations, 1);
    assert_eq!(report.report.rewritten.events, 1);
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_no_list_shows_is_deleted_as_well() {
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_store(store.clone(), AGENT).await;
    create(&node, "mine", "ada").await;
    create(&node, "other", "bob").await;
    store.lists_nothing.store(true, Ordering::SeqCst);
    erase(&node, "ada").await;
    assert_eq!(node.journal("mine").await, []);
    assert_ne!(node.journal("other").await, []);
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_cannot_be_rewritten_is_tried_again() {
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_store(store.clone(), AGENT).await;
    create(&node, "x", "bob").await;
    say(&node, "x", "ada", 1).await;
    store.refuse_rewrites.store(true, Ordering::SeqCst);
    let lifted = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        store.refuse_rewrites.store(false, Ordering::SeqCst);
    };
    let (report, ()) = tokio::join!(erase(&node, "ada"), lifted);
    assert_eq!(senders(&node.journal("x").await), [report.alias.as_str()]);
}

#[tokio::test(start_paused = true)]
async fn an_erasure_that_is_held_up_rests_before_it_reads_all_journals_again() {
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_store(store.clone(), AGENT).await;
    create(&node, "x", "bob").await;
    say(&node, "x", "ada", 1).await;
    store.refuse_rewrites.store(true, Ordering::SeqCst);
    store.whole_reads.store(0, Ordering::SeqCst);
    let lifted = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        store.refuse_rewrites.store(false, Ordering::SeqCst);
        store.whole_reads.load(Ordering::SeqCst)
    };
    let (_, reads) = tokio::join!(erase(&node, "ada"), lifted);
    assert!((6..=13).contains(&reads), "{reads} reads in a minute");
}

#[tokio::test(start_paused = true)]
async fn what_a_person_has_is_deleted_even_if_it_cannot_be_read() {
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_store(store.clone(), AGENT).await;
    create(&node, "mine", "ada").await;
    node.wait_until_passivated("mine").await;
    store.damaged.lock().unwrap().insert(Scoped::parse("mine").unwrap());
    let report = erase(&node, "ada").await;
    store.damaged.lock().unwrap().clear();
    assert_eq!(node.journal("mine").await, []);
    assert_eq!(report.report.conversation_ids, ["mine"]);
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_cannot_be_read_is_named_and_holds_up_no_other() {
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_store(store.clone(), AGENT).await;
    for number in 0..=CONVERSATIONS_OF_A_STEP {
        create(&node, &format!("c{number:03}"), "bob").await;
    }
    say(&node, "c000", "ada", 1).await;
    create(&node, "last", "bob").await;
    say(&node, "last", "ada", 1).await;
    let damaged = Scoped::parse("c000").unwrap();
    store.damaged.lock().unwrap().insert(damaged.clone());
    let running = Erasure::running_name(&own(), "ada");
    let others = async {
        node.poll_for_event("last", |data| {
            matches!(data, EventData::UserMsg(message) if message.principal.as_str() != "ada")
        })
        .await;
        loop {
            let erasure = node.store.erasure(&running).await.unwrap().unwrap();
            if let Some(problem) = erasure.running().and_then(|it| it.problem.as_ref()) {
                assert!(problem.starts_with("c000: "), "{problem}");
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        store.damaged.lock().unwrap().clear();
    };
    let (report, ()) = tokio::join!(erase(&node, "ada"), others);
    assert_eq!(senders(&node.journal("c000").await), [report.alias.as_str()]);
    assert_eq!(report.report.rewritten.conversations, 2);
}

#[tokio::test(start_paused = true)]
async fn a_cursor_of_another_program_begins_its_step_anew() {
    let node = TestNode::new(AGENT).await;
    create(&node, "x", "bob").await;
    say(&node, "x", "ada", 1).await;
    let report = erase_from(&node, "ada", |running| {
        running.step = ErasureStep::Others;
        running.cursor = Some("of another program".to_owned());
    })
    .await;
    assert_eq!(senders(&node.journal("x").await), [report.alias.as_str()]);
}

#[tokio::test(start_paused = true)]
async fn the_report_names_what_was_deleted_by_a_node_that_died() {
    let node = TestNode::new(AGENT).await;
    create(&node, "mine", "ada").await;
    create(&node, "other", "ada").await;
    let report = erase_from(&node, "ada", |running| {
        running.step = ErasureStep::Conversations;
        running.deleting = ["gone", "mine"].map(ConversationId::new).into();
    })
    .await;
    assert_eq!(report.report.conversation_ids, ["gone", "mine", "other"]);
    assert_eq!(report.report.deleted.conversations, 3);
}

#[tokio::test(start_paused = true)]
async fn what_a_person_has_made_meanwhile_goes_before_the_end() {
    let node = TestNode::new(AGENT).await;
    create(&node, "x", "ada").await;
    let report = erase_from(&node, "ada", |running| {
        running.step = ErasureStep::Last;
        running.passes = 2;
    })
    .await;
    assert_eq!((report.report.deleted.conversations, report.report.made_since), (1, 0));
    assert_eq!(node.journal("x").await, []);
}

#[tokio::test(start_paused = true)]
async fn the_report_counts_what_a_person_has_made_who_does_not_stop() {
    let node = TestNode::new(AGENT).await;
    create(&node, "x", "ada").await;
    let report = erase_from(&node, "ada", |running| {
        running.step = ErasureStep::Last;
        running.passes = MAX_PASSES;
    })
    .await;
    assert_eq!(report.report.made_since, 1);
    assert_ne!(node.journal("x").await, [], "it waits for another erasure");
}

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
