//! Blobs end with the last thing that names them, or a day after their upload: once, not early, and
//! whatever dies.

use std::sync::Arc;
use std::time::Duration;

use abide_actors::blobs::{Blob, BlobHold, BlobHolder};
use abide_actors::clock::Clock;
use abide_actors::request::{DeletionReason, Request};
use abide_actors::tools::Extensions;
use abide_conversation::event::TurnOutcome;
use abide_conversation::{BlobId, ConversationId, ScheduleName, Scoped};
use abide_registry::blob_sweeper::BlobSweeper;
use abide_registry::index_rebuilder::IndexRebuilder;
use abide_registry::schedules::{Missed, Rhythm, Schedule};
use abide_registry::store::Rebuild;
use abide_registry::store::memory::Memory;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use crate::flaky_store::{Checkpoint, FlakyStore};
use crate::fork::fork_of;
use crate::keeping::Rule;
use crate::media::{PHOTO_AGENT, Photo};
use crate::test_clock::clock;
use crate::test_node::{TestNode, results};

const REPEATING_AGENT: &str =
    "{name: a, model: {provider: scripted, script: [{text: 'You: {{ user }}'}]}}";
const HOUR: Duration = Duration::from_secs(3_600);
const MINUTE: Duration = Duration::from_secs(60);

/// Has all names of blobs known, and sweeps on a node until it is dropped.
async fn sweep(node: &TestNode, clock: Arc<dyn Clock>) -> AbortOnDropHandle<()> {
    let rebuilder = IndexRebuilder {
        store: node.store.clone(),
        agents: node.catalog.clone(),
        clock: clock.clone(),
    };
    while !rebuilder.step().await.unwrap() {}
    let sweeper = BlobSweeper {
        conversations: node.conversations.clone(),
        store: node.store.clone(),
        clock,
        rules: Arc::new(Rule(None)),
    };
    AbortOnDropHandle::new(tokio::spawn(sweeper.run()))
}

async fn is_there(node: &TestNode, id: &Scoped<BlobId>) -> bool {
    node.store.blob_info(id).await.unwrap().is_some()
}

/// Stores a text for somebody who may name it.
async fn upload(node: &TestNode, clock: &dyn Clock, text: &str) -> Scoped<BlobId> {
    let blob = Blob::new("text/plain", text.to_owned());
    let id = Scoped::<ConversationId>::parse("x").unwrap().sibling(&blob.id());
    let hold = BlobHold::new(BlobHolder::uploader("ada"), clock.now());
    node.store.store_blob(&id, &blob, Some(&hold)).await.unwrap();
    id
}

/// The blob in the result of the call `c` of the conversation `x`.
async fn result_blob(node: &TestNode) -> Scoped<BlobId> {
    let result = results(&node.journal("x").await, "c")[0].clone();
    let source = &result["result"][0]["source"];
    Scoped::parse(source["blobId"].as_str().unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_nothing_names_ends_after_a_day_and_a_repeat_renews_it() {
    let clock = clock();
    let node = TestNode::new(REPEATING_AGENT).await;
    let _sweeper = sweep(&node, clock.clone()).await;
    let once = upload(&node, &*clock, "once").await;
    let twice = upload(&node, &*clock, "twice").await;
    tokio::time::sleep(23 * HOUR).await;
    assert!(is_there(&node, &once).await);
    upload(&node, &*clock, "twice").await;
    tokio::time::sleep(HOUR + MINUTE).await;
    assert!(!is_there(&node, &once).await);
    assert!(is_there(&node, &twice).await);
    tokio::time::sleep(23 * HOUR).await;
    assert!(!is_there(&node, &twice).await);
    assert_eq!(node.store.blob_bytes(&Default::default()).await, Ok(0));
}

#[tokio::test(start_paused = true)]
async fn what_a_tool_returned_stays_as_long_as_its_conversation() {
    let clock = clock();
    let extensions = Extensions::new().with_tool("photo", Photo::new(1));
    let node =
        TestNode::with_extensions(extensions, Arc::new(Memory::default()), PHOTO_AGENT).await;
    let _sweeper = sweep(&node, clock).await;
    node.send("x", "go").await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let blob = result_blob(&node).await;
    tokio::time::sleep(100 * HOUR).await;
    assert!(is_there(&node, &blob).await);
    node.deliver("x", Request::delete(DeletionReason::Request)).await.unwrap();
    assert!(!is_there(&node, &blob).await);
}

#[tokio::test(start_paused = true)]
async fn a_fork_keeps_the_blobs_of_a_conversation_that_is_deleted_while_it_is_copied() {
    let extensions = Extensions::new().with_tool("photo", Photo::new(1));
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_extensions(extensions, store.clone(), PHOTO_AGENT).await;
    let _sweeper = sweep(&node, clock()).await;
    node.send("x", "go").await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let blob = result_blob(&node).await;
    // The second write is that of what was read.
    let copied = Checkpoint::new(1, true);
    *store.checkpoint.lock().unwrap() = Some(copied.clone());
    let deleted = async {
        copied.wait_until_reached().await;
        node.deliver("x", Request::delete(DeletionReason::Request)).await.unwrap();
        copied.resume.add_permits(1);
    };
    let (forked, ()) = tokio::join!(node.deliver("y", fork_of("x", None)), deleted);
    forked.unwrap();
    assert!(is_there(&node, &blob).await);
    node.deliver("y", Request::delete(DeletionReason::Request)).await.unwrap();
    assert!(!is_there(&node, &blob).await);
}

#[tokio::test(start_paused = true)]
async fn a_fork_keeps_the_blobs_of_a_deleted_conversation() {
    let extensions = Extensions::new().with_tool("photo", Photo::new(1));
    let node =
        TestNode::with_extensions(extensions, Arc::new(Memory::default()), PHOTO_AGENT).await;
    let _sweeper = sweep(&node, clock()).await;
    node.send("x", "go").await.unwrap();
    node.turn_end("x", 1).await;
    let blob = result_blob(&node).await;
    node.deliver("y", fork_of("x", None)).await.unwrap();
    node.deliver("x", Request::delete(DeletionReason::Request)).await.unwrap();
    assert!(is_there(&node, &blob).await);
    node.deliver("y", Request::delete(DeletionReason::Request)).await.unwrap();
    assert!(!is_there(&node, &blob).await);
}

fn schedule(name: &str, content: Vec<Value>) -> Schedule {
    Schedule {
        name: ScheduleName::new(name),
        version: 1,
        agent: "a".into(),
        conversation: None,
        rhythm: Rhythm::EveryMs(3_600_000),
        content,
        if_busy: abide_conversation::command::IfBusy::Queue,
        missed: Missed::Last,
        start: None,
        until: None,
        paused: true,
        assigns: Default::default(),
        principal: "ada".into(),
        identity: None,
        created_at: Default::default(),
        put_at: Default::default(),
        next_at: None,
        last: None,
        triggers: 0,
        put_id: Some("put_1".to_owned()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_schedule_keeps_the_blobs_that_its_messages_name() {
    let clock = clock();
    let node = TestNode::new(REPEATING_AGENT).await;
    let _sweeper = sweep(&node, clock.clone()).await;
    let (named, other) = (upload(&node, &*clock, "1").await, upload(&node, &*clock, "2").await);
    let name: Scoped<ScheduleName> = named.sibling(&ScheduleName::new("s"));
    let image = json!({"type": "image", "source": {"type": "blob", "blobId": named.local()}});
    let put = schedule("s", vec![image]);
    for blob in [&named, &other] {
        let hold = BlobHold::new(put.blob_holder(), clock.now());
        node.store.hold_blob(blob, &hold).await.unwrap();
    }
    // What holds it for an earlier put, nobody needs any more.
    let earlier = Schedule { put_id: Some("put_0".to_owned()), ..put.clone() }.blob_holder();
    node.store.hold_blob(&named, &BlobHold::new(earlier, clock.now())).await.unwrap();
    assert!(node.store.replace_schedule(&name, None, Some(&put)).await.unwrap());
    tokio::time::sleep(100 * HOUR).await;
    assert!(is_there(&node, &named).await);
    assert!(!is_there(&node, &other).await);
    let holds = node.store.blob_holds(&named).await.unwrap();
    assert_eq!(holds.iter().map(|hold| &hold.holder).collect::<Vec<_>>(), [&put.blob_holder()]);
    assert!(node.store.replace_schedule(&name, Some(1), None).await.unwrap());
    tokio::time::sleep(24 * HOUR + MINUTE).await;
    assert!(!is_there(&node, &named).await);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_removed_before_a_rebuild_has_read_the_journals_of_an_earlier_version() {
    let clock = clock();
    let node = TestNode::new(REPEATING_AGENT).await;
    // An earlier version has rebuilt the lists alone.
    let earlier = Rebuild { names_blobs: false, ..Rebuild::after(None, clock.now()) };
    let earlier = earlier.ended(clock.now());
    assert!(node.store.replace_rebuild(None, &earlier).await.unwrap());
    let _sweeper = sweep(&node, clock.clone()).await;
    // The blob is stored after the message that names it, and so does not know of its name.
    let named = Blob::new("text/plain", "named").id();
    node.send("x", &format!("see {named}")).await.unwrap();
    node.turn_end("x", 1).await;
    let (named, unnamed) =
        (upload(&node, &*clock, "named").await, upload(&node, &*clock, "unnamed").await);
    tokio::time::sleep(48 * HOUR).await;
    assert!(is_there(&node, &named).await && is_there(&node, &unnamed).await);
    let last = node.store.rebuild().await.unwrap();
    let next = Rebuild::after(last.as_ref(), clock.now());
    assert!(node.store.replace_rebuild(last.as_ref(), &next).await.unwrap());
    let rebuilder = IndexRebuilder {
        store: node.store.clone(),
        agents: node.catalog.clone(),
        clock: clock.clone(),
    };
    while !rebuilder.step().await.unwrap() {}
    tokio::time::sleep(MINUTE).await;
    assert!(is_there(&node, &named).await);
    assert!(!is_there(&node, &unnamed).await);
}

#[tokio::test(start_paused = true)]
async fn lost_names_are_looked_for_bit_by_bit_and_again_from_the_beginning() {
    let store = Arc::new(FlakyStore::default());
    let extensions = Extensions::new();
    let node = TestNode::with_extensions(extensions, store.clone(), REPEATING_AGENT).await;
    let named = Blob::new("text/plain", "named").id();
    for name in ["x", "y"] {
        node.send(name, &format!("see {named}")).await.unwrap();
        node.turn_end(name, 1).await;
    }
    let _sweeper = sweep(&node, clock()).await;
    tokio::time::sleep(2 * MINUTE).await;
    let looks = store.name_looks.lock().unwrap();
    let from = |id: &str| Some(id.to_owned());
    assert_eq!(looks[..4], [None, from("x"), from("y"), None]);
}
