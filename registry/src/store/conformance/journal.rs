//! Promises about journals: appending, refusing, reading back, and the responses kept next to them.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use abide_actors::identity::{Epoch, Incarnation};
use abide_actors::journal::{Claim, Holder, StoreError, StoredConversation, StoredResponse};
use abide_conversation::event::{EventData, Unknown};
use abide_conversation::{Seq, State, Timestamp};
use serde_json::json;

use super::super::Store;
use super::fixtures::*;
use crate::partition::PartitionSet;

pub(in super::super) async fn a_commit_is_read_back(store: Arc<dyn Store>) {
    let held = claim_conversation(&*store, "a").await;
    assert_eq!(store.load(&id("a")).await, Ok(None));
    assert_eq!(store.summary(&id("a")).await, Ok(None));
    let first = commit(1, 3);
    store.append(&id("a"), &held, first.clone()).await.unwrap();
    let loaded = store.load(&id("a")).await.unwrap().unwrap();
    assert_eq!(loaded, uncached(first.events.to_vec()));
    assert_eq!(store.summary(&id("a")).await, Ok(Some(first.summary)));
}

pub(in super::super) async fn a_commit_elsewhere_than_at_the_end_conflicts(store: Arc<dyn Store>) {
    let held = claim_conversation(&*store, "a").await;
    assert_eq!(store.append(&id("a"), &held, commit(2, 2)).await, Err(StoreError::Conflict));
    store.append(&id("a"), &held, commit(1, 2)).await.unwrap();
    for first in [1, 2, 4] {
        let refused = store.append(&id("a"), &held, commit(first, first)).await;
        assert_eq!(refused, Err(StoreError::Conflict), "at {first}");
    }
    assert_eq!(store.append(&id("a"), &held, commit(3, 3)).await, Ok(()));
}

pub(in super::super) async fn a_commit_with_a_gap_conflicts(store: Arc<dyn Store>) {
    let held = claim_conversation(&*store, "a").await;
    let mut gap = commit(1, 3);
    gap.events = [gap.events[0].clone(), gap.events[2].clone()].into();
    assert_eq!(store.append(&id("a"), &held, gap.clone()).await, Err(StoreError::Conflict));
    gap.summary.last_seq = Seq::new(2);
    assert_eq!(store.append(&id("a"), &held, gap).await, Err(StoreError::Conflict));
    assert_eq!(store.summary(&id("a")).await, Ok(None));
}

pub(in super::super) async fn a_commit_without_events_needs_a_conversation(store: Arc<dyn Store>) {
    let held = claim_conversation(&*store, "a").await;
    let mut bare = commit(1, 1);
    bare.events = Arc::default();
    bare.responses.push(response("key:1", "yes", 60));
    let mut nothing = bare.clone();
    nothing.summary.last_seq = Seq::ZERO;
    assert_eq!(store.append(&id("a"), &held, nothing).await, Err(StoreError::Conflict));
    store.append(&id("a"), &held, commit(1, 1)).await.unwrap();
    assert_eq!(store.append(&id("a"), &held, bare).await, Ok(()));
    assert!(store.stored_response(&scope_of("a"), "key:1", at(0)).await.unwrap().is_some());
}

pub(in super::super) async fn an_append_under_an_older_epoch_is_fenced(store: Arc<dyn Store>) {
    let old = create_conversation(&*store, "a").await;
    let new = store.claim(&id("a"), &holder("m"), Some(&old.holder)).await.unwrap();
    assert_eq!(store.append(&id("a"), &old, commit(2, 2)).await, Err(StoreError::Fenced));
    assert_eq!(store.append(&id("a"), &new, commit(2, 2)).await, Ok(()));
}

pub(in super::super) async fn an_append_of_another_incarnation_with_the_same_epoch_is_fenced(
    store: Arc<dyn Store>,
) {
    let held = create_conversation(&*store, "a").await;
    let incarnation = Incarnation::new("2");
    let other = Claim { holder: Holder { incarnation, ..held.holder.clone() }, ..held };
    assert_eq!(store.append(&id("a"), &other, commit(2, 2)).await, Err(StoreError::Fenced));
}

pub(in super::super) async fn an_append_after_a_release_is_fenced(store: Arc<dyn Store>) {
    let held = create_conversation(&*store, "a").await;
    store.release(&id("a"), &held).await.unwrap();
    assert_eq!(store.append(&id("a"), &held, commit(2, 2)).await, Err(StoreError::Fenced));
    let again = claim_conversation(&*store, "a").await;
    assert_eq!(store.append(&id("a"), &held, commit(2, 2)).await, Err(StoreError::Fenced));
    assert_eq!(store.append(&id("a"), &again, commit(2, 2)).await, Ok(()));
}

pub(in super::super) async fn an_append_without_a_claim_is_fenced(store: Arc<dyn Store>) {
    let held = Claim { holder: holder("n"), epoch: Epoch::new(1) };
    assert_eq!(store.append(&id("a"), &held, commit(1, 1)).await, Err(StoreError::Fenced));
}

pub(in super::super) async fn a_refused_commit_leaves_nothing(store: Arc<dyn Store>) {
    let held = create_conversation(&*store, "a").await;
    let mut whole = commit(2, 2);
    whole.summary.alarm = Some(at(60));
    whole.summary.active = true;
    whole.opened.push(pending_call("call_1", 1, 60));
    whole.responses.push(response("key:1", "yes", 60));
    let mut misplaced = whole.clone();
    Arc::make_mut(&mut misplaced.events)[0].seq = Seq::new(3);
    misplaced.summary.last_seq = Seq::new(3);
    assert_eq!(store.append(&id("a"), &held, misplaced).await, Err(StoreError::Conflict));
    let stale = Claim { epoch: held.epoch.next(), ..held };
    assert_eq!(store.append(&id("a"), &stale, whole).await, Err(StoreError::Fenced));

    assert_eq!(store.events(&id("a"), Seq::ZERO, 10).await.unwrap().len(), 1);
    assert_eq!(store.summary(&id("a")).await, Ok(Some(commit(1, 1).summary)));
    assert_eq!(store.inbox(&own(), &Default::default(), None, 10).await.unwrap().items, []);
    assert_eq!(store.alarms(10).await, Ok(vec![]));
    assert_eq!(store.active(&PartitionSet::all(), None, 10).await.unwrap().items, []);
    assert_eq!(store.stored_response(&scope_of("a"), "key:1", at(0)).await, Ok(None));
}

pub(in super::super) async fn of_two_commits_at_the_same_place_one_wins(store: Arc<dyn Store>) {
    let held = create_conversation(&*store, "a").await;
    let a = id("a");
    let both = futures::join!(
        store.append(&a, &held, commit(2, 2)),
        store.append(&a, &held, commit(2, 2)),
    );
    let conflict = Err(StoreError::Conflict);
    assert!(both == (Ok(()), conflict.clone()) || both == (conflict, Ok(())), "{both:?}");
    assert_eq!(store.events(&a, Seq::ZERO, 10).await.unwrap().len(), 2);
}

pub(in super::super) async fn a_load_begins_at_the_cached_state(store: Arc<dyn Store>) {
    let held = claim_conversation(&*store, "a").await;
    let mut cached = commit(1, 3);
    let state = State { seq: Seq::new(3), turns_started: 7, ..State::default() };
    cached.state = Some(Arc::new(state.clone()));
    store.append(&id("a"), &held, cached).await.unwrap();
    let loaded = store.load(&id("a")).await.unwrap().unwrap();
    assert_eq!(
        loaded,
        StoredConversation { state: state.clone(), events: vec![], cached_seq: Seq::new(3) }
    );
    store.append(&id("a"), &held, commit(4, 5)).await.unwrap();
    let loaded = store.load(&id("a")).await.unwrap().unwrap();
    assert_eq!(
        loaded,
        StoredConversation { state, events: vec![event(4), event(5)], cached_seq: Seq::new(3) }
    );
    assert_eq!(store.events(&id("a"), Seq::ZERO, 10).await.unwrap().len(), 5);
}

pub(in super::super) async fn events_are_read_in_pages_in_both_directions(store: Arc<dyn Store>) {
    let held = claim_conversation(&*store, "a").await;
    store.append(&id("a"), &held, commit(1, 5)).await.unwrap();
    let forward = async |after, limit| {
        let events = store.events(&id("a"), Seq::new(after), limit).await.unwrap();
        events.into_iter().map(|event| event.seq.get()).collect::<Vec<_>>()
    };
    let backward = async |before, limit| {
        let events = store.events_before(&id("a"), Seq::new(before), limit).await.unwrap();
        events.into_iter().map(|event| event.seq.get()).collect::<Vec<_>>()
    };
    assert_eq!(forward(0, 2).await, [1, 2]);
    assert_eq!(forward(2, 2).await, [3, 4]);
    assert_eq!(forward(4, 2).await, [5]);
    assert!(forward(5, 2).await.is_empty() && forward(u64::MAX, 2).await.is_empty());
    assert_eq!(backward(u64::MAX, 2).await, [5, 4]);
    assert_eq!(backward(4, 2).await, [3, 2]);
    assert_eq!(backward(2, 2).await, [1]);
    assert!(backward(1, 2).await.is_empty() && backward(0, 2).await.is_empty());
    assert_eq!(store.events(&id("b"), Seq::ZERO, 10).await, Ok(vec![]));
    assert_eq!(store.events_before(&id("b"), Seq::new(9), 10).await, Ok(vec![]));
}

pub(in super::super) async fn large_events_are_kept_whole(store: Arc<dyn Store>) {
    let held = create_conversation(&*store, "a").await;
    let mut large = commit(2, 4);
    large.events = (2..=4).map(|seq| event_of(seq, &"é".repeat(500_000))).collect();
    store.append(&id("a"), &held, large.clone()).await.unwrap();
    assert_eq!(store.events(&id("a"), Seq::FIRST, 10).await, Ok(large.events.to_vec()));
}

pub(in super::super) async fn an_event_of_an_unknown_type_is_kept_whole(store: Arc<dyn Store>) {
    let held = claim_conversation(&*store, "a").await;
    let mut newer = commit(1, 3);
    Arc::make_mut(&mut newer.events)[1].data = EventData::Unknown(Unknown {
        kind: "mused".to_owned(),
        data: json!({"by": ["a", null], "n": 1.5}),
    });
    store.append(&id("a"), &held, newer.clone()).await.unwrap();
    let loaded = store.load(&id("a")).await.unwrap().unwrap();
    assert_eq!(loaded, uncached(newer.events.to_vec()));
    assert_eq!(store.events(&id("a"), Seq::ZERO, 10).await, Ok(newer.events.to_vec()));
    Arc::make_mut(&mut newer.events).reverse();
    assert_eq!(store.events_before(&id("a"), Seq::new(4), 10).await, Ok(newer.events.to_vec()));
}

pub(in super::super) async fn conversations_whose_ids_share_a_prefix_are_separate(
    store: Arc<dyn Store>,
) {
    let names = ["a", "a:", "a:b", "a:1", "a.", "a-", "aa", "A", "_", ":", "..."];
    for (count, name) in names.iter().enumerate() {
        let held = claim_conversation(&*store, name).await;
        let mut own = commit(1, count as u64 + 1);
        own.opened.push(pending_call("call_1", 1, 60));
        own.responses.push(response("key:1", name, 60));
        store.append(&id(name), &held, own).await.unwrap();
    }
    let held = claim_conversation(&*store, "a").await;
    store.delete(&id("a"), &held, None, Vec::new()).await.unwrap();
    for (count, name) in names.iter().enumerate() {
        let kept = if *name == "a" { 0 } else { count + 1 };
        assert_eq!(store.events(&id(name), Seq::ZERO, 100).await.unwrap().len(), kept, "{name}");
        assert_eq!(
            store.events_before(&id(name), Seq::new(100), 100).await.unwrap().len(),
            kept,
            "{name}"
        );
        let stored = store.stored_response(&scope_of(name), "key:1", at(0)).await.unwrap();
        assert_eq!(stored.map(|stored| stored.body), (kept > 0).then(|| (*name).into()));
    }
    let inbox = store.inbox(&own(), &Default::default(), None, 100).await.unwrap().items;
    assert_eq!(inbox.len(), names.len() - 1);
}

pub(in super::super) async fn a_response_is_stored_until_it_expires(store: Arc<dyn Store>) {
    let held = claim_conversation(&*store, "a").await;
    let mut answered = commit(1, 1);
    answered.responses = vec![response("key:1", "one", 60), response("message:1", "two", 90)];
    store.append(&id("a"), &held, answered).await.unwrap();
    let body = async |scope: &str, key: &str, now| {
        let stored = store.stored_response(&scope_of(scope), key, at(now)).await.unwrap();
        stored.map(|stored| stored.body)
    };
    assert_eq!(body("a", "key:1", 59).await, Some("one".into()));
    assert_eq!(body("a", "key:1", 60).await, None);
    assert_eq!(body("a", "message:1", 60).await, Some("two".into()));
    assert_eq!(body("a", "key:2", 0).await, None);
    assert_eq!(body("b", "key:1", 0).await, None);
}

pub(in super::super) async fn a_response_under_the_same_key_replaces_one_that_has_expired(
    store: Arc<dyn Store>,
) {
    let held = claim_conversation(&*store, "a").await;
    for (seq, body, expires_in) in [(1, "one", 60), (2, "two", 90)] {
        let mut answered = commit(seq, seq);
        answered.responses.push(response("key:1", body, expires_in));
        Arc::make_mut(&mut answered.events)[0].at = at(60 * (seq as i64 - 1));
        store.append(&id("a"), &held, answered).await.unwrap();
    }
    let mut later = commit(3, 3);
    Arc::make_mut(&mut later.events)[0].at = at(70);
    store.append(&id("a"), &held, later).await.unwrap();
    let kept = store.stored_response(&scope_of("a"), "key:1", at(80)).await;
    assert_eq!(kept, Ok(Some(response("key:1", "two", 90))));
}

pub(in super::super) async fn a_response_that_never_expires_stays(store: Arc<dyn Store>) {
    let held = claim_conversation(&*store, "a").await;
    let endless = StoredResponse { expires_at: Timestamp::MAX, ..response("key:1", "one", 0) };
    for (seq, kept) in [(1, endless.clone()), (2, response("key:2", "two", 60))] {
        let mut answered = commit(seq, seq);
        answered.responses.push(kept);
        store.append(&id("a"), &held, answered).await.unwrap();
    }
    let kept = store.stored_response(&scope_of("a"), "key:1", at(1_000_000_000)).await;
    assert_eq!(kept, Ok(Some(endless)));
}
