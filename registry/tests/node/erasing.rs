//! An erasure takes a person out of everything that a tenant has, also where that is on a later page,
//! and goes on from whatever progress was stored.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::request::{Request, SendRequest};
use abide_conversation::command::{Create, IfBusy};
use abide_conversation::event::{Event, EventData};
use abide_conversation::identity::Participants;
use abide_conversation::{
    AgentName, ConversationId, ErasureId, Principal, Scoped, Tenant, Timestamp,
};
use abide_registry::erasure::{Erasure, ErasureState, ErasureStep, Running};
use abide_registry::erasures::Eraser;
use tokio_util::task::AbortOnDropHandle;

use crate::flaky_store::FlakyStore;
use crate::test_node::{TestNode, clock, user_message};

pub const AGENT: &str = r#"
name: a
model: {provider: scripted, script: [{text: "Yes, {{ user }}."}]}
"#;
/// How often the conversations of a person are gone through.
const MAX_PASSES: u32 = 16;
/// How many conversations of others are gone through in one step.
const CONVERSATIONS_OF_A_STEP: usize = 200;
const DEADLINE: Duration = Duration::from_secs(3_600);

pub fn own() -> Tenant {
    Tenant::default()
}

pub fn agent() -> Scoped<AgentName> {
    Scoped::new(&own(), &AgentName::new("a"))
}

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// Erases a person, beginning with this progress. Returns the report.
pub async fn erase_from(
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

pub async fn erase(node: &TestNode, subject: &str) -> Erasure {
    erase_from(node, subject, |_| ()).await
}

pub async fn create(node: &TestNode, id: &str, owner: &str) {
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
async fn what_others_have_made_of_a_persons_words_meanwhile_has_the_alias() {
    let node = TestNode::new(AGENT).await;
    create(&node, "x", "bob").await;
    say(&node, "x", "ada", 1).await;
    let report = erase_from(&node, "ada", |running| {
        running.step = ErasureStep::Last;
        running.passes = 2;
    })
    .await;
    assert_eq!(senders(&node.journal("x").await), [report.alias.as_str()]);
    assert_eq!(report.report.rewritten.conversations, 1);
}

#[tokio::test(start_paused = true)]
async fn the_report_counts_what_was_rewritten_by_a_node_that_died() {
    let node = TestNode::new(AGENT).await;
    let alias = Erasure::new(ErasureId::new("er_1"), "ada".to_owned(), b"salt", at(0)).alias;
    for (id, by) in [("x", "ada"), ("y", alias.as_str()), ("z", "bob")] {
        create(&node, id, "bob").await;
        say(&node, id, by, 1).await;
    }
    let report = erase_from(&node, "ada", |running| {
        running.step = ErasureStep::Others;
    })
    .await;
    assert_eq!(senders(&node.journal("x").await), [alias.as_str()]);
    let rewritten = &report.report.rewritten;
    assert_eq!((rewritten.conversations, rewritten.events), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn one_overwriting_is_for_all_erasures_that_stand_at_it() {
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_store(store.clone(), AGENT).await;
    let mut reports = Vec::new();
    for subject in ["ada", "bob", "cy"] {
        let id = ErasureId::new(format!("er_{subject}"));
        let mut erasure = Erasure::new(id.clone(), subject.to_owned(), b"salt", clock().now());
        if let ErasureState::Running(running) = &mut erasure.state {
            running.step = ErasureStep::Disk;
            running.subject.clear();
        }
        let name = Erasure::running_name(&own(), subject);
        assert!(node.store.replace_erasure(&name, None, Some(&erasure)).await.unwrap());
        reports.push(name.sibling(&id));
    }
    let conversations = node.conversations.clone();
    let eraser = Eraser { store: store.clone(), conversations, clock: clock() };
    let _running = AbortOnDropHandle::new(tokio::spawn(eraser.run()));
    let done = async {
        for report in reports {
            while node.store.erasure(&report).await.unwrap().is_none() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    };
    tokio::time::timeout(DEADLINE, done).await.expect("an erasure never ends");
    assert_eq!(store.overwritings.load(Ordering::SeqCst), 1);
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
