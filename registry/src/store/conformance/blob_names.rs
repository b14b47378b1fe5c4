//! Promises about who names and who holds blobs.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;

use abide_actors::blobs::{Blob, BlobHold, BlobHolder, BlobInfo, MAX_BLOB_HOLDS};
use abide_actors::journal::{Claim, Commit, StoreError};
use abide_conversation::{BlobId, ConversationId, ScheduleName, Seq, Timestamp};

use super::super::{Rebuild, StagedJournal, Store};
use super::fixtures::*;
use crate::partition::PartitionSet;

/// Has the store know all names of blobs, as after a rebuild.
async fn know_names(store: &dyn Store) {
    let rebuild = Rebuild::after(None, at(0)).ended(at(0));
    assert!(store.replace_rebuild(None, &rebuild).await.unwrap());
}

fn text(content: &str) -> Blob {
    Blob::new("text/plain", content.to_owned())
}

/// A hold that ends N seconds after the suite's first moment.
fn hold(holder: BlobHolder, until: i64) -> BlobHold {
    BlobHold { holder, until: at(until) }
}

fn uploader(until: i64) -> BlobHold {
    hold(BlobHolder::uploader("ada"), until)
}

fn conversation(name: &str, until: i64) -> BlobHold {
    hold(BlobHolder::Conversation(ConversationId::new(name)), until)
}

/// A commit of the event `seq` in which `ada` names these blobs.
fn naming(seq: u64, blobs: &[&Blob]) -> Commit {
    naming_by("ada", seq, blobs)
}

fn naming_by(subject: &str, seq: u64, blobs: &[&Blob]) -> Commit {
    let ids: Vec<_> = blobs.iter().map(|blob| blob.id().to_string()).collect();
    let event = event_by(seq, subject, &format!("see {}", ids.join(", ")));
    Commit { events: Arc::from([event]), ..commit(seq, seq) }
}

/// Creates a conversation that names these blobs.
async fn create_naming(store: &dyn Store, name: &str, blobs: &[&Blob]) -> Claim {
    let held = create_conversation(store, name).await;
    store.append(&id(name), &held, naming(2, blobs)).await.unwrap();
    held
}

async fn delete(store: &dyn Store, name: &str, held: &Claim) {
    store.delete(&id(name), held, None, Vec::new()).await.unwrap();
}

async fn is_there(store: &dyn Store, blob: &Blob) -> bool {
    let info = store.blob_info(&blob_id(blob)).await.unwrap();
    assert_eq!(store.blob(&blob_id(blob)).await.unwrap().is_some(), info.is_some());
    info.is_some()
}

async fn due(store: &dyn Store, until: Timestamp) -> Vec<BlobId> {
    let due = store.due_blobs(&PartitionSet::all(), until, 9).await.unwrap();
    due.iter().map(abide_conversation::Scoped::local).collect()
}

pub(in super::super) async fn a_blob_goes_with_the_last_conversation_that_names_it(
    store: Arc<dyn Store>,
) {
    let store = &*store;
    know_names(store).await;
    let [one, both, other] = ["one", "of both", "other"].map(text);
    for blob in [&one, &both, &other] {
        store.store_blob(&blob_id(blob), blob, Some(&uploader(60))).await.unwrap();
    }
    let a = create_naming(store, "a", &[&one, &both]).await;
    let b = create_naming(store, "b", &[&both, &other]).await;
    let named = BTreeSet::from([one.id(), both.id()]);
    assert_eq!(store.named_blobs(&id("a")).await, Ok(named));
    assert!(due(store, Timestamp::MAX).await.is_empty(), "what is named has no end of its own");
    delete(store, "a", &a).await;
    assert_eq!(store.named_blobs(&id("a")).await, Ok(BTreeSet::new()));
    assert!(!is_there(store, &one).await);
    assert!(is_there(store, &both).await && is_there(store, &other).await);
    assert_eq!(store.blob_bytes(&own()).await, Ok(12));
    delete(store, "b", &b).await;
    assert!(!is_there(store, &both).await && !is_there(store, &other).await);
    assert_eq!(store.blob_bytes(&own()).await, Ok(0));
}

pub(in super::super) async fn a_hold_keeps_a_blob_that_nothing_names(store: Arc<dyn Store>) {
    let store = &*store;
    know_names(store).await;
    let blob = text("one");
    let id_of = blob_id(&blob);
    assert_eq!(store.hold_blob(&id_of, &uploader(60)).await, Ok(None));
    assert_eq!(store.store_blob(&id_of, &blob, Some(&uploader(60))).await, Ok(true));
    assert!(due(store, at(59)).await.is_empty());
    assert_eq!(due(store, at(60)).await, [blob.id()]);
    assert_eq!(store.end_holds(&id_of, None, at(59)).await, Ok(false));
    assert!(is_there(store, &blob).await);
    // A repeat renews the hold, which never becomes shorter, and another holder has one of its own.
    for until in [90, 70] {
        assert_eq!(store.store_blob(&id_of, &blob, Some(&uploader(until))).await, Ok(false));
    }
    let info = BlobInfo { media_type: "text/plain".to_owned(), size: 3 };
    assert_eq!(store.hold_blob(&id_of, &conversation("a", 120)).await, Ok(Some(info)));
    let mut holds = store.blob_holds(&id_of).await.unwrap();
    holds.sort_by_key(|hold| hold.until);
    assert_eq!(holds, [uploader(90), conversation("a", 120)]);
    assert_eq!(store.end_holds(&id_of, None, at(60)).await, Ok(false));
    assert!(due(store, at(89)).await.is_empty(), "it is looked at when the next hold ends");
    assert_eq!(store.end_holds(&id_of, None, at(90)).await, Ok(false));
    assert_eq!(due(store, at(120)).await, [blob.id()]);
    let holder = conversation("a", 120).holder;
    assert_eq!(store.end_holds(&id_of, Some(&holder), at(90)).await, Ok(true));
    assert_eq!(store.end_holds(&id_of, Some(&holder), at(90)).await, Ok(false));
    assert!(!is_there(store, &blob).await);
    assert!(due(store, Timestamp::MAX).await.is_empty());
    assert_eq!(store.blob_bytes(&own()).await, Ok(0));
}

pub(in super::super) async fn a_name_ends_the_holds_of_whoever_names_and_of_nobody_else(
    store: Arc<dyn Store>,
) {
    let store = &*store;
    know_names(store).await;
    let blob = text("one");
    let id_of = blob_id(&blob);
    let of = |subject: &str, until| hold(BlobHolder::uploader(subject), until);
    for hold in [of("ada", 60), of("bob", 90)] {
        store.store_blob(&id_of, &blob, Some(&hold)).await.unwrap();
    }
    let a = create_naming(store, "a", &[&blob]).await;
    assert_eq!(store.blob_holds(&id_of).await, Ok(vec![of("bob", 90)]));
    assert_eq!(due(store, at(90)).await, [blob.id()]);
    delete(store, "a", &a).await;
    assert!(is_there(store, &blob).await, "bob has yet to name it");
    let b = create_conversation(store, "b").await;
    store.append(&id("b"), &b, naming_by("bob", 2, &[&blob])).await.unwrap();
    assert_eq!(store.blob_holds(&id_of).await, Ok(vec![]));
    // What is uploaded after a message is for another one, also if the message is written again.
    let later = BlobHold::new(BlobHolder::uploader("bob"), at(3_600));
    store.store_blob(&id_of, &blob, Some(&later)).await.unwrap();
    store.append(&id("b"), &b, naming_by("bob", 3, &[&blob])).await.unwrap();
    store.name_blobs(&id("b"), &[blob.id()].into()).await.unwrap();
    delete(store, "b", &b).await;
    assert_eq!(store.blob_holds(&id_of).await, Ok(vec![later.clone()]));
    assert!(is_there(store, &blob).await);
    assert_eq!(store.end_holds(&id_of, None, later.until).await, Ok(true));
}

pub(in super::super) async fn what_a_conversation_names_itself_ends_the_holds_of_its_owner(
    store: Arc<dyn Store>,
) {
    let store = &*store;
    let blob = text("one");
    for subject in ["ada", "bob"] {
        let hold = hold(BlobHolder::uploader(subject), 60);
        store.store_blob(&blob_id(&blob), &blob, Some(&hold)).await.unwrap();
    }
    let held = create_conversation(store, "a").await;
    let mut own = commit(2, 2);
    own.events = Arc::from([event_of(2, blob.id().as_str())]);
    own.summary.participants.owner = Some("bob".to_owned());
    store.append(&id("a"), &held, own).await.unwrap();
    assert_eq!(store.blob_holds(&blob_id(&blob)).await, Ok(vec![uploader(60)]));
}

pub(in super::super) async fn the_holds_on_a_blob_are_bounded_and_nobodys_ends_early(
    store: Arc<dyn Store>,
) {
    let store = &*store;
    know_names(store).await;
    let blob = text("one");
    let id_of = blob_id(&blob);
    let of = |number: usize, until| hold(BlobHolder::uploader(&number.to_string()), until);
    let first = i64::try_from(MAX_BLOB_HOLDS).unwrap();
    for (number, until) in (0..3 * MAX_BLOB_HOLDS).zip(100..) {
        store.store_blob(&id_of, &blob, Some(&of(number, until))).await.unwrap();
    }
    store.hold_blob(&id_of, &conversation("a", 50)).await.unwrap();
    let others = hold(BlobHolder::Others, 99 + 3 * first);
    let mut holds = store.blob_holds(&id_of).await.unwrap();
    holds.sort_by_key(|hold| hold.until);
    assert_eq!(holds.len(), MAX_BLOB_HOLDS + 1);
    assert_eq!(holds.last(), Some(&others));
    // Who has a hold renews it, and schedules have their own in any case.
    store.store_blob(&id_of, &blob, Some(&of(0, 900))).await.unwrap();
    let schedule = hold(BlobHolder::Schedule { name: ScheduleName::new("s"), put: None }, 10);
    store.hold_blob(&id_of, &schedule).await.unwrap();
    assert_eq!(due(store, at(10)).await, [blob.id()]);
    let holds = store.blob_holds(&id_of).await.unwrap();
    assert_eq!(holds.len(), MAX_BLOB_HOLDS + 2);
    assert!(holds.contains(&of(0, 900)) && holds.contains(&schedule));
    // No name ends what is of all others.
    let held = create_conversation(store, "a").await;
    store.append(&id("a"), &held, naming_by("40", 2, &[&blob])).await.unwrap();
    delete(store, "a", &held).await;
    assert_eq!(store.end_holds(&id_of, None, at(98 + 3 * first)).await, Ok(false));
    let left = store.blob_holds(&id_of).await.unwrap();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.contains(&others) && left.contains(&of(0, 900)));
    assert_eq!(store.end_holds(&id_of, Some(&of(0, 0).holder), others.until).await, Ok(true));
}

pub(in super::super) async fn a_blob_that_is_about_to_be_named_outlives_the_last_deletion(
    store: Arc<dyn Store>,
) {
    let store = &*store;
    know_names(store).await;
    let blob = text("one");
    store.store_blob(&blob_id(&blob), &blob, Some(&uploader(60))).await.unwrap();
    let a = create_naming(store, "a", &[&blob]).await;
    let b = create_conversation(store, "b").await;
    store.hold_blob(&blob_id(&blob), &conversation("b", 60)).await.unwrap();
    delete(store, "a", &a).await;
    assert!(is_there(store, &blob).await);
    store.append(&id("b"), &b, naming(2, &[&blob])).await.unwrap();
    assert_eq!(store.blob_holds(&blob_id(&blob)).await, Ok(vec![]));
    assert_eq!(store.end_holds(&blob_id(&blob), None, at(3_600)).await, Ok(false));
    assert!(is_there(store, &blob).await);
    delete(store, "b", &b).await;
    assert!(!is_there(store, &blob).await);
}

pub(in super::super) async fn a_refused_commit_or_deletion_takes_no_name(store: Arc<dyn Store>) {
    let store = &*store;
    know_names(store).await;
    let blob = text("one");
    store.put_blob(&blob_id(&blob), &blob).await.unwrap();
    let stale = create_naming(store, "a", &[&blob]).await;
    let held = store.claim(&id("a"), &holder("m"), Some(&holder("n"))).await.unwrap();
    let fenced = store.delete(&id("a"), &stale, None, Vec::new()).await;
    assert_eq!(fenced, Err(StoreError::Fenced));
    assert!(is_there(store, &blob).await);
    // The conversation is created anew under its id, and names the blob again.
    delete(store, "a", &held).await;
    assert!(!is_there(store, &blob).await);
    store.put_blob(&blob_id(&blob), &blob).await.unwrap();
    let again = create_naming(store, "a", &[&blob]).await;
    let late = store.append(&id("a"), &held, naming(3, &[&blob])).await;
    assert_eq!(late, Err(StoreError::Fenced));
    for dropped in store.dropped_names(&PartitionSet::all(), 9).await.unwrap() {
        store.drop_names(&dropped, true, at(0)).await.unwrap();
    }
    assert!(is_there(store, &blob).await, "what was left of the deletion is of the old one");
    assert_eq!(store.dropped_names(&PartitionSet::all(), 9).await, Ok(vec![]));
    delete(store, "a", &again).await;
    assert!(!is_there(store, &blob).await);
}

pub(in super::super) async fn nothing_removes_a_blob_before_all_names_are_known(
    store: Arc<dyn Store>,
) {
    let store = &*store;
    let [named, unnamed, older] = ["one", "two", "three"].map(text);
    for blob in [&named, &unnamed] {
        store.store_blob(&blob_id(blob), blob, Some(&uploader(0))).await.unwrap();
    }
    // One that an earlier version has stored, which a journal names that it has written.
    store.put_blob(&blob_id(&older), &older).await.unwrap();
    let a = create_naming(store, "a", &[&named, &older]).await;
    create_conversation(store, "b").await;
    delete(store, "a", &a).await;
    assert_eq!(store.end_holds(&blob_id(&unnamed), None, at(60)).await, Ok(false));
    assert!(is_there(store, &named).await && is_there(store, &unnamed).await);
    for _ in 0..2 {
        store.name_blobs(&id("b"), &BTreeSet::from([older.id()])).await.unwrap();
        store.name_blobs(&id("gone"), &BTreeSet::from([named.id()])).await.unwrap();
    }
    know_names(store).await;
    for blob in due(store, at(60)).await {
        let blob = scoped(blob.as_str());
        assert_eq!(store.end_holds(&blob, None, at(60)).await, Ok(blob != blob_id(&older)));
    }
    assert!(!is_there(store, &named).await && !is_there(store, &unnamed).await);
    assert!(is_there(store, &older).await);
}

pub(in super::super) async fn an_operator_deletes_a_named_blob_and_its_names_stay(
    store: Arc<dyn Store>,
) {
    let store = &*store;
    know_names(store).await;
    let blob = text("one");
    store.store_blob(&blob_id(&blob), &blob, Some(&uploader(60))).await.unwrap();
    let a = create_naming(store, "a", &[&blob]).await;
    store.hold_blob(&blob_id(&blob), &conversation("b", 60)).await.unwrap();
    assert_eq!(store.delete_blob(&blob_id(&blob)).await, Ok(true));
    assert!(due(store, Timestamp::MAX).await.is_empty());
    store.store_blob(&blob_id(&blob), &blob, Some(&uploader(60))).await.unwrap();
    assert_eq!(store.end_holds(&blob_id(&blob), None, at(60)).await, Ok(false));
    assert!(is_there(store, &blob).await, "the conversation shows it again");
    delete(store, "a", &a).await;
    assert!(!is_there(store, &blob).await);
}

pub(in super::super) async fn an_import_names_what_its_events_aside_name(store: Arc<dyn Store>) {
    let store = &*store;
    know_names(store).await;
    let (first, last) = (text("one"), text("two"));
    for blob in [&first, &last] {
        let hold = conversation("a", 60);
        store.store_blob(&blob_id(blob), blob, Some(&hold)).await.unwrap();
    }
    let (import, blobs) = ("i".to_owned(), BTreeSet::from([first.id()]));
    let mut staged = StagedJournal { id: id("a"), import, last_seq: Seq::ZERO, blobs };
    let events = [event(1), naming(2, &[&first]).events[0].clone()];
    store.stage(&staged, Arc::from(events)).await.unwrap();
    staged.last_seq = Seq::new(2);
    let held = claim_conversation(store, "a").await;
    store.publish(&staged, &held, naming(3, &[&last])).await.unwrap();
    for blob in [&first, &last] {
        assert_eq!(store.end_holds(&blob_id(blob), None, at(60)).await, Ok(false));
        assert!(is_there(store, blob).await);
    }
    delete(store, "a", &held).await;
    assert!(!is_there(store, &first).await && !is_there(store, &last).await);
}

pub(in super::super) async fn the_names_of_tenants_are_apart(store: Arc<dyn Store>) {
    let store = &*store;
    know_names(store).await;
    let blob = text("one");
    let of_acme = id("acme/a").sibling(&blob.id());
    store.put_blob(&of_acme, &blob).await.unwrap();
    store.put_blob(&blob_id(&blob), &blob).await.unwrap();
    let a = create_naming(store, "a", &[&blob]).await;
    let b = create_naming(store, "acme/a", &[&blob]).await;
    delete(store, "a", &a).await;
    assert!(!is_there(store, &blob).await);
    assert_eq!(store.blob(&of_acme).await, Ok(Some(blob.clone())));
    delete(store, "acme/a", &b).await;
    assert_eq!(store.blob(&of_acme).await, Ok(None));
    assert_eq!(store.blob_bytes(&tenant("acme")).await, Ok(0));
}

pub(in super::super) async fn of_a_last_deletion_and_a_new_name_at_once_the_blob_stays_or_is_seen_gone(
    store: Arc<dyn Store>,
) {
    know_names(&*store).await;
    for number in 0..20 {
        let blob = text(&format!("blob {number}"));
        let id_of = blob_id(&blob);
        store.put_blob(&id_of, &blob).await.unwrap();
        let (old, new) = (format!("old-{number}"), format!("new-{number}"));
        let old_claim = create_naming(&*store, &old, &[&blob]).await;
        let new_claim = create_conversation(&*store, &new).await;
        let deletion = delete(&*store, &old, &old_claim);
        let naming = async {
            let found = store.hold_blob(&id_of, &conversation(&new, 60)).await.unwrap();
            if found.is_some() {
                store.append(&id(&new), &new_claim, naming(2, &[&blob])).await.unwrap();
            }
            found.is_some()
        };
        let ((), was_found) = tokio::join!(deletion, naming);
        assert_eq!(is_there(&*store, &blob).await, was_found, "{number}");
    }
}

pub(in super::super) async fn names_of_conversations_that_are_there_are_not_lost(
    store: Arc<dyn Store>,
) {
    let store = &*store;
    know_names(store).await;
    let blob = text("one");
    store.put_blob(&blob_id(&blob), &blob).await.unwrap();
    for name in ["a", "b", "acme/c"] {
        create_naming(store, name, &[&blob]).await;
    }
    for limit in [1, 2, 9] {
        let (mut cursor, mut looks) = (None, 0);
        loop {
            let all = PartitionSet::all();
            cursor = store.drop_lost_names(&all, cursor.as_deref(), limit).await.unwrap();
            looks += 1;
            if cursor.is_none() {
                break;
            }
            assert!(looks < 99, "it comes to an end");
        }
    }
    assert_eq!(store.dropped_names(&PartitionSet::all(), 9).await, Ok(vec![]));
    for name in ["a", "b", "acme/c"] {
        assert_eq!(store.named_blobs(&id(name)).await, Ok([blob.id()].into()));
    }
    assert!(is_there(store, &blob).await);
}
