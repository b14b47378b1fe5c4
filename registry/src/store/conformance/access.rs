//! Promises about API keys, and about who sees what is listed.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use abide_actors::journal::{InboxFilter, Viewer};
use abide_conversation::ConversationId;
use abide_conversation::approval::ApprovalPolicy;
use abide_conversation::event::SuspensionKind;
use abide_conversation::identity::{Participants, Role, Subject, Tenant};
use abide_conversation::state::{PendingCall, PendingVote};

use super::super::{KeyChange, KeyList, Store, StoredKey, SummaryFilter};
use super::fixtures::*;

pub(in super::super) fn key(id: &str, name: &str) -> StoredKey {
    StoredKey {
        id: id.to_owned(),
        sha256: "0".repeat(64),
        tenant: Tenant::default(),
        roles: BTreeSet::from([Role::User]),
        queues: Default::default(),
        name: name.to_owned(),
        owner: "key:admin".to_owned(),
        created_at: at(0),
        expires_at: at(60),
    }
}

async fn sorted_keys(store: &dyn Store, known: Option<u64>) -> Option<KeyList> {
    let mut list = store.keys(known).await.unwrap()?;
    list.keys.sort_by(|one, other| one.id.cmp(&other.id));
    Some(list)
}

pub(in super::super) async fn every_change_of_a_key_is_seen_by_its_version(store: Arc<dyn Store>) {
    let mut version = sorted_keys(&*store, None).await.unwrap().version;
    assert_eq!(sorted_keys(&*store, Some(version)).await, None);
    for (change, was_there, keys) in [
        (KeyChange::Add(key("a", "one")), false, vec![key("a", "one")]),
        (KeyChange::Add(key("b", "two")), false, vec![key("a", "one"), key("b", "two")]),
        (KeyChange::Update(key("a", "new")), true, vec![key("a", "new"), key("b", "two")]),
        (KeyChange::Remove(scoped("b")), true, vec![key("a", "new")]),
    ] {
        assert_eq!(store.change_key(change).await, Ok(was_there));
        let list = sorted_keys(&*store, Some(version)).await.unwrap();
        assert_eq!(list.keys, keys);
        version = list.version;
        assert_eq!(sorted_keys(&*store, Some(version)).await, None);
    }
}

pub(in super::super) async fn a_removed_key_is_not_updated_nor_marked(store: Arc<dyn Store>) {
    store.change_key(KeyChange::Add(key("a", "one"))).await.unwrap();
    store.mark_keys_used(&[(scoped("a"), at(5)), (scoped("b"), at(5))]).await.unwrap();
    store.mark_keys_used(&[(scoped("a"), at(3))]).await.unwrap();
    assert_eq!(store.keys_used(&own()).await, Ok(BTreeMap::from([("a".to_owned(), at(5))])));
    assert_eq!(store.change_key(KeyChange::Remove(scoped("a"))).await, Ok(true));
    assert_eq!(store.change_key(KeyChange::Remove(scoped("a"))).await, Ok(false));
    assert_eq!(store.change_key(KeyChange::Update(key("a", "two"))).await, Ok(false));
    store.mark_keys_used(&[(scoped("a"), at(9))]).await.unwrap();
    assert_eq!(sorted_keys(&*store, None).await.unwrap().keys, []);
    assert_eq!(store.keys_used(&own()).await, Ok(BTreeMap::new()));
}

fn approver(sub: &str, groups: &[&str]) -> Subject {
    Subject {
        iss: "https://login.example.com/".to_owned(),
        sub: sub.to_owned(),
        name: None,
        roles: BTreeSet::from([Role::Approver]),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
    }
}

pub(in super::super) async fn a_vote_replaces_the_entry_of_its_suspension(store: Arc<dyn Store>) {
    let held = claim_conversation(&*store, "a").await;
    let mut first = commit(1, 1);
    first.opened = vec![pending_call("call_1", 1, 60), pending_call("call_2", 1, 90)];
    store.append(&id("a"), &held, first.clone()).await.unwrap();
    let vote =
        PendingVote { by: "ada".to_owned(), iss: "abide".to_owned(), approved: true, at: at(5) };
    let voted = PendingCall { votes: Some(vec![vote]), ..first.opened[0].clone() };
    let mut second = commit(2, 2);
    second.opened = vec![voted.clone()];
    store.append(&id("a"), &held, second).await.unwrap();
    for conversation in [None, Some(ConversationId::new("a"))] {
        let filter = InboxFilter { conversation, ..Default::default() };
        let page = store.inbox(&own(), &filter, None, 9).await.unwrap();
        let pending: Vec<_> = page.items.into_iter().map(|entry| entry.pending).collect();
        assert_eq!(pending, [voted.clone(), first.opened[1].clone()]);
    }
    let mut third = commit(3, 3);
    third.closed = vec![closed_suspension(&voted), closed_suspension(&first.opened[1])];
    store.append(&id("a"), &held, third).await.unwrap();
    assert_eq!(store.inbox(&own(), &Default::default(), None, 9).await.unwrap().items, []);
}

pub(in super::super) async fn lists_show_what_their_viewer_may_see(store: Arc<dyn Store>) {
    let participants = |owner: &str, members: &[&str]| Participants {
        owner: Some(owner.to_owned()),
        members: members.iter().map(|&member| member.to_owned()).collect(),
    };
    let question =
        || PendingCall { kind: SuspensionKind::Elicitation, ..pending_call("call_2", 1, 90) };
    for (name, participants) in [
        ("a", participants("ada", &["bob"])),
        ("b", participants("bob", &[])),
        ("c", Participants::default()),
    ] {
        let held = claim_conversation(&*store, name).await;
        let mut first = commit(1, 1);
        first.summary.participants = participants.clone();
        let policy = (name == "c").then(|| ApprovalPolicy {
            groups: BTreeSet::from(["finance".to_owned()]),
            ..ApprovalPolicy::default()
        });
        let approval = PendingCall { policy, ..pending_call("call_1", 1, 60) };
        first.opened = vec![approval, question()];
        store.append(&id(name), &held, first).await.unwrap();
        let stored = store.summary(&id(name)).await.unwrap().unwrap();
        assert_eq!(stored.participants, participants);
        // A later commit does not write them again.
        let mut second = commit(2, 2);
        second.summary.participants = participants.clone();
        store.append(&id(name), &held, second).await.unwrap();
        let stored = store.summary(&id(name)).await.unwrap().unwrap();
        assert_eq!(stored.participants, participants);
    }
    let of = |sub: &str| Viewer::Participant(sub.to_owned());
    for (viewer, conversations, pending) in [
        (Viewer::Everything, &["a", "b", "c"][..], 6),
        (of("ada"), &["a"], 2),
        (of("bob"), &["a", "b"], 4),
        (of("eve"), &[], 0),
        (Viewer::Approver(approver("eve", &[])), &[], 2),
        (Viewer::Approver(approver("eve", &["finance"])), &[], 3),
        (Viewer::ApprovingParticipant(approver("ada", &["finance"])), &["a"], 4),
    ] {
        let filter = SummaryFilter { visible_to: viewer.clone(), ..Default::default() };
        let page = store.conversations(&own(), &filter, None, 9).await.unwrap();
        let ids: Vec<&str> = page.items.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, conversations, "{viewer:?}");
        let filter = InboxFilter { visible_to: viewer.clone(), ..Default::default() };
        let page = store.inbox(&own(), &filter, None, 9).await.unwrap();
        assert_eq!(page.items.len(), pending, "{viewer:?}");
    }
}
