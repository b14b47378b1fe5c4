//! Names of blobs when a step of a deletion or of a commit fails or never comes, and what they cost.

use std::collections::BTreeSet;

use abide_actors::blobs::{Blob, BlobHold, BlobHolder, Blobs};
use abide_actors::journal::{Commit, Journal, StoreError};
use abide_conversation::ConversationId;

use super::super::super::blob_names::{Naming, partition_of};
use super::super::super::conformance::*;
use super::super::super::{BlobNames, DroppedNames, Lists, Rebuild, TenantCounts};
use super::super::blobs::key_of;
use super::super::blobs::names::PARTITIONS_PER_LOOK;
use super::super::command::keys::Tag;
use super::super::{Durability, Redis};
use super::servers::Server;
use crate::partition::PartitionSet;

async fn open() -> (Server, Redis) {
    let server = Server::start(&["--appendfsync", "no"]).await;
    let mut redis = Redis::open(&server.url(), Durability::Os).await.unwrap();
    // Its checks are commands, too.
    redis._watching.abort_all();
    let rebuild = Rebuild::after(None, at(0)).ended(at(0));
    assert!(redis.replace_rebuild(None, &rebuild).await.unwrap());
    (server, redis)
}

/// A commit of the event `seq` that names the blob.
fn naming(seq: u64, blob: &Blob) -> Commit {
    Commit { events: [event_of(seq, blob.id().as_str())].into(), ..commit(seq, seq) }
}

fn held_by(name: &str) -> BlobHold {
    BlobHold { holder: BlobHolder::Conversation(ConversationId::new(name)), until: at(60) }
}

async fn dropped(redis: &Redis) -> Vec<DroppedNames> {
    redis.dropped_names(&PartitionSet::all(), 9).await.unwrap()
}

/// The key of the names of a blob.
fn names_key(blob: &Blob) -> String {
    let id = blob_id(blob);
    key_of(&id).tag().key_of("names", id.as_str())
}

#[tokio::test]
async fn names_that_were_not_dropped_with_their_conversation_are_dropped_later() {
    let (server, redis) = open().await;
    let blob = Blob::new("text/plain", "one");
    redis.put_blob(&blob_id(&blob), &blob).await.unwrap();
    let held = create_conversation(&redis, "a").await;
    redis.append(&id("a"), &held, naming(2, &blob)).await.unwrap();
    // The step after the deletion fails, as if the node had died before it.
    let (names, aside) = (names_key(&blob), format!("{}-aside", names_key(&blob)));
    server.ask::<()>(&["RENAME", &names, &aside]).await;
    server.ask::<()>(&["SET", &names, "of another type"]).await;
    redis.delete(&id("a"), &held, None, Vec::new()).await.unwrap();
    server.ask::<()>(&["RENAME", &aside, &names]).await;
    assert!(redis.blob_info(&blob_id(&blob)).await.unwrap().is_some());
    let left = dropped(&redis).await;
    assert_eq!(left, [DroppedNames { id: id("a"), epoch: held.epoch }]);
    for _ in 0..2 {
        redis.drop_names(&left[0], false, at(0)).await.unwrap();
        assert_eq!(redis.blob_info(&blob_id(&blob)).await, Ok(None));
        assert_eq!(redis.blob_bytes(&own()).await, Ok(0), "it is counted once");
    }
    // A writer that did not know of the deletion adds its name late, and the blob is stored again.
    redis.put_blob(&blob_id(&blob), &blob).await.unwrap();
    server.ask::<()>(&["ZADD", &names, &held.epoch.to_string(), "a"]).await;
    redis.drop_names(&left[0], true, at(0)).await.unwrap();
    assert_eq!(redis.blob_info(&blob_id(&blob)).await, Ok(None));
    assert!(dropped(&redis).await.is_empty());
    let keys: Vec<String> = server.ask(&["KEYS", "*"]).await;
    let is_left = |key: &&String| {
        ["named:", "dropped:", "names:", "holds:", "blobs_due"]
            .iter()
            .any(|kind| key.contains(kind))
    };
    assert_eq!(keys.iter().find(is_left), None);
}

#[tokio::test]
async fn a_name_whose_first_commit_never_came_is_dropped_when_nobody_can_write_it() {
    let (_server, redis) = open().await;
    let blob = Blob::new("text/plain", "one");
    redis.store_blob(&blob_id(&blob), &blob, Some(&held_by("a"))).await.unwrap();
    let held = claim_conversation(&redis, "a").await;
    let named = Naming::unsent(&id("a"), &[blob.id()].into());
    redis.name_before_commit(&id("a"), &held, &named).await.unwrap();
    let left = dropped(&redis).await;
    assert_eq!(left.len(), 1);
    // Whoever holds it may still write the first commit.
    redis.drop_names(&left[0], true, at(0)).await.unwrap();
    assert_eq!(dropped(&redis).await, left);
    redis.release(&id("a"), &held).await.unwrap();
    let late = redis.name_before_commit(&id("a"), &held, &named).await;
    assert_eq!(late, Err(StoreError::Fenced));
    redis.drop_names(&left[0], false, at(0)).await.unwrap();
    assert!(redis.blob_info(&blob_id(&blob)).await.unwrap().is_some());
    redis.drop_names(&left[0], true, at(0)).await.unwrap();
    assert_eq!(redis.blob_info(&blob_id(&blob)).await, Ok(None));
    assert!(dropped(&redis).await.is_empty());
    assert_eq!(redis.named_blobs(&id("a")).await, Ok(BTreeSet::new()));
}

#[tokio::test]
async fn a_first_commit_that_came_keeps_its_names() {
    let (_server, redis) = open().await;
    let blob = Blob::new("text/plain", "one");
    redis.put_blob(&blob_id(&blob), &blob).await.unwrap();
    let held = claim_conversation(&redis, "a").await;
    let first = naming(1, &blob);
    let first = Commit { events: [event(1), event_of(2, blob.id().as_str())].into(), ..first };
    let summary = commit(1, 2).summary;
    redis.append(&id("a"), &held, Commit { summary, ..first }).await.unwrap();
    for left in dropped(&redis).await {
        redis.drop_names(&left, true, at(0)).await.unwrap();
    }
    assert_eq!(redis.named_blobs(&id("a")).await, Ok(BTreeSet::from([blob.id()])));
    assert_eq!(redis.end_holds(&blob_id(&blob), None, at(0)).await, Ok(false));
    redis.delete(&id("a"), &held, None, Vec::new()).await.unwrap();
    assert_eq!(redis.blob_info(&blob_id(&blob)).await, Ok(None));
}

/// Looks for lost names from the beginning to the end. Returns how often it asked.
async fn look_for_lost_names(redis: &Redis, limit: usize) -> usize {
    let (mut cursor, mut looks) = (None, 0);
    loop {
        let all = PartitionSet::all();
        cursor = redis.drop_lost_names(&all, cursor.as_deref(), limit).await.unwrap();
        looks += 1;
        if cursor.is_none() {
            return looks;
        }
    }
}

#[tokio::test]
async fn names_of_a_conversation_that_an_older_node_has_deleted_are_found_and_dropped() {
    let (server, redis) = open().await;
    let [own, shared] = ["own", "shared"].map(|text| Blob::new("text/plain", text));
    for blob in [&own, &shared] {
        redis.put_blob(&blob_id(blob), blob).await.unwrap();
    }
    let both = format!("{} {}", own.id(), shared.id());
    let names = ["a", "b", "c"];
    for (name, text) in names.iter().zip([both.as_str(), shared.id().as_str(), both.as_str()]) {
        let held = create_conversation(&redis, name).await;
        let events = [event_of(2, text)].into();
        redis.append(&id(name), &held, Commit { events, ..commit(2, 2) }).await.unwrap();
    }
    assert_eq!(look_for_lost_names(&redis, 9).await, 256 / PARTITIONS_PER_LOOK);
    assert!(dropped(&redis).await.is_empty());
    // An older node deletes two, and one of them is being created anew.
    for name in ["a", "c"] {
        let key = Tag::of(&id(name)).key_of("c", name);
        server.ask::<()>(&["DEL", &key]).await;
    }
    let again = claim_conversation(&redis, "c").await;
    look_for_lost_names(&redis, 1).await;
    let lost = dropped(&redis).await;
    assert_eq!(lost.iter().map(|lost| lost.id.clone()).collect::<Vec<_>>(), [id("a")]);
    redis.drop_names(&lost[0], false, at(0)).await.unwrap();
    redis.drop_names(&lost[0], true, at(0)).await.unwrap();
    assert_eq!(redis.named_blobs(&id("a")).await, Ok(BTreeSet::new()));
    assert!(redis.blob_info(&blob_id(&own)).await.unwrap().is_some(), "c may still name it");
    // It is given up, and looked at again.
    redis.release(&id("c"), &again).await.unwrap();
    look_for_lost_names(&redis, 1).await;
    for left in dropped(&redis).await {
        redis.drop_names(&left, true, at(0)).await.unwrap();
    }
    assert_eq!(redis.blob_info(&blob_id(&own)).await, Ok(None));
    assert!(redis.blob_info(&blob_id(&shared)).await.unwrap().is_some());
    assert_eq!(redis.named_blobs(&id("b")).await, Ok(BTreeSet::from([shared.id()])));
    let held = redis.claim(&id("b"), &holder("n"), None).await.unwrap();
    redis.delete(&id("b"), &held, None, Vec::new()).await.unwrap();
    for left in dropped(&redis).await {
        redis.drop_names(&left, true, at(0)).await.unwrap();
    }
    let keys: Vec<String> = server.ask(&["KEYS", "*"]).await;
    let kinds = ["named:", "dropped:", "drops", "namers", "names:", "}:b:"];
    assert_eq!(keys.iter().find(|key| kinds.iter().any(|kind| key.contains(kind))), None);
}

/// How many scripts the server has been given.
async fn scripts(server: &Server) -> u64 {
    let info: String = server.ask(&["INFO", "commandstats"]).await;
    let calls = |line: &str| {
        let rest = line.strip_prefix("cmdstat_eval").map(|rest| rest.trim_start_matches("sha"));
        let calls = rest?.strip_prefix(":calls=")?.split(',').next()?;
        calls.parse::<u64>().ok()
    };
    info.lines().filter_map(calls).sum()
}

/// A common commit is one round trip. Names take two before it: one to the conversation's slot, one to
/// those of the blobs, all at once.
#[tokio::test]
async fn only_a_commit_that_names_blobs_pays_for_names() {
    let (server, redis) = open().await;
    let blobs = ["one", "two"].map(|text| Blob::new("text/plain", text));
    for blob in &blobs {
        redis.put_blob(&blob_id(blob), blob).await.unwrap();
    }
    let held = create_conversation(&redis, "a").await;
    let both = format!("{} {}", blobs[0].id(), blobs[1].id());
    let texts = ["plain", "of no blob_", both.as_str(), "plain", both.as_str()];
    let mut costs = Vec::new();
    for (seq, text) in (2..).zip(texts) {
        let before = scripts(&server).await;
        let events = [event_of(seq, text)].into();
        redis.append(&id("a"), &held, Commit { events, ..commit(seq, seq) }).await.unwrap();
        costs.push(scripts(&server).await - before);
    }
    // The first call of a script is sent twice: by its hash, and by its text.
    assert_eq!((costs[0], costs[1], costs[3]), (1, 1, 1), "{costs:?}");
    assert!(costs[2] > costs[4], "{costs:?}");
    let parts: BTreeSet<_> = blobs.iter().map(|blob| partition_of(&blob_id(blob))).collect();
    assert_eq!(costs[4], 2 + parts.len() as u64);
    let held_before = scripts(&server).await;
    redis.delete(&id("a"), &held, None, Vec::new()).await.unwrap();
    assert_eq!(redis.blob_bytes(&own()).await, Ok(0));
    let with_names = scripts(&server).await - held_before;
    let plain = create_conversation(&redis, "b").await;
    let before = scripts(&server).await;
    redis.delete(&id("b"), &plain, None, Vec::new()).await.unwrap();
    assert_eq!(scripts(&server).await - before, 1);
    assert!(with_names > 1);
}
