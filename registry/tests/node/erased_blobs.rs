//! The blobs of an erased person go, and the report counts them, whatever node dies.

use std::collections::BTreeSet;

use abide_actors::blobs::{Blob, BlobHold, BlobHolder};
use abide_conversation::{BlobId, ConversationId, Scoped};
use abide_registry::erasure::{ErasureStep, NotedBlobs};
use abide_registry::index_rebuilder::IndexRebuilder;

use crate::erasing::{AGENT, create, erase, erase_from, own};
use crate::sub_agents::{BOSS, KID, child};
use crate::test_node::{TestNode, clock};

async fn store_blob(node: &TestNode, text: &str, holder: BlobHolder) -> BlobId {
    let blob = Blob::new("text/plain", text.to_owned());
    let hold = BlobHold::new(holder, clock().now());
    node.store.store_blob(&Scoped::new(&own(), &blob.id()), &blob, Some(&hold)).await.unwrap();
    blob.id()
}

/// Has all names of blobs known.
async fn know_blob_names(node: &TestNode) {
    let (store, agents) = (node.store.clone(), node.catalog.clone());
    let rebuilder = IndexRebuilder { store, agents, clock: clock() };
    while !rebuilder.step().await.unwrap() {}
}

#[tokio::test(start_paused = true)]
async fn the_report_counts_the_blobs_that_a_node_had_deleted_which_died() {
    let node = TestNode::new(AGENT).await;
    know_blob_names(&node).await;
    create(&node, "mine", "ada").await;
    let of_other = store_blob(&node, "of another", BlobHolder::uploader("bob")).await;
    let gone = BlobId::new("blob_gone");
    let report = erase_from(&node, "ada", |running| {
        running.step = ErasureStep::Conversations;
        running.deleting = ["gone", "mine"].map(ConversationId::new).into();
        let blobs = vec![gone, of_other];
        running.noted = Some(NotedBlobs { conversations: 1, blobs });
    })
    .await;
    assert_eq!(report.report.deleted.blobs, 1);
    assert_eq!(report.report.conversation_ids, ["gone", "mine"]);
}

#[tokio::test(start_paused = true)]
async fn the_report_counts_the_unnamed_blobs_that_a_node_had_deleted_which_died() {
    let node = TestNode::new(AGENT).await;
    know_blob_names(&node).await;
    let left = store_blob(&node, "left", BlobHolder::uploader("ada")).await;
    let report = erase_from(&node, "ada", |running| {
        running.step = ErasureStep::Last;
        running.passes = 2;
        let blobs = vec![BlobId::new("blob_gone"), left];
        running.noted = Some(NotedBlobs { conversations: 0, blobs });
    })
    .await;
    assert_eq!(report.report.deleted.blobs, 2);
}

#[tokio::test(start_paused = true)]
async fn the_report_counts_thousands_of_blobs_of_a_person_and_none_of_others() {
    let node = TestNode::new(AGENT).await;
    know_blob_names(&node).await;
    for id in ["a", "b", "c"] {
        create(&node, id, "ada").await;
        let id = Scoped::parse(id).unwrap();
        let mut blobs = BTreeSet::new();
        for number in 0..600 {
            let holder = BlobHolder::Conversation(id.local());
            blobs.insert(store_blob(&node, &format!("{id} {number}"), holder).await);
        }
        node.store.name_blobs(&id, &blobs).await.unwrap();
    }
    for number in 0..1_100 {
        store_blob(&node, &format!("unnamed {number}"), BlobHolder::uploader("ada")).await;
    }
    let of_other = store_blob(&node, "of another", BlobHolder::uploader("bob")).await;
    store_blob(&node, "of another", BlobHolder::uploader("ada")).await;
    let report = erase(&node, "ada").await;
    assert_eq!(report.report.deleted.conversations, 3);
    assert_eq!(report.report.deleted.blobs, 3 * 600 + 1_100);
    let of_other = Scoped::new(&own(), &of_other);
    assert!(node.store.blob_info(&of_other).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn the_blobs_of_sub_agents_count_with_those_of_their_root() {
    let node = TestNode::new(BOSS).await;
    node.define(KID).await;
    know_blob_names(&node).await;
    create(&node, "x", "ada").await;
    node.send("x", "go").await.unwrap();
    node.turn_end("x", 1).await;
    let kid: Scoped<ConversationId> = Scoped::parse(&child(&node, "x").await).unwrap();
    let blob = store_blob(&node, "of a child", BlobHolder::Conversation(kid.local())).await;
    node.store.name_blobs(&kid, &[blob].into()).await.unwrap();
    let report = erase(&node, "ada").await;
    assert_eq!(report.report.deleted.conversations, 1);
    assert_eq!(report.report.deleted.blobs, 1);
}
