//! Promises about the indexes next to the journals: inbox, alarms, active marks, listings.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use abide_actors::identity::NodeName;
use abide_actors::journal::{InboxFilter, StoreError};
use abide_conversation::event::SuspensionKind;
use abide_conversation::state::{ConversationStatus, PendingCall};
use abide_conversation::{AgentName, ConversationId, Seq, State};

use super::super::{ListError, Store, SummaryFilter, SuspensionCount, cursor_after};
use super::fixtures::*;
use crate::partition::{Partition, PartitionSet};

/// Conversation, call and suspension of all entries, read in pages of two, in order.
async fn list_inbox(store: &dyn Store, filter: &InboxFilter) -> Vec<(String, String, u32)> {
    let (mut entries, mut cursor) = (Vec::new(), None);
    for _ in 0..9 {
        let page = store.inbox(&own(), filter, cursor.as_deref(), 2).await.unwrap();
        assert!(page.items.len() <= 2);
        entries.extend(page.items.into_iter().map(|entry| {
            let (id, call) = (entry.conversation_id.to_string(), entry.pending.call_id);
            (id, call.to_string(), entry.pending.suspension)
        }));
        let Some(next) = page.cursor else { return entries };
        cursor = Some(next);
    }
    panic!("the pages have no end");
}

fn entries(entries: &[(&str, &str, u32)]) -> Vec<(String, String, u32)> {
    let own = |(id, call, suspension): &(&str, &str, u32)| {
        ((*id).to_owned(), (*call).to_owned(), *suspension)
    };
    entries.iter().map(own).collect()
}

async fn create_with_suspensions(store: &dyn Store, name: &str, pending: Vec<PendingCall>) {
    let held = claim_conversation(store, name).await;
    let mut first = commit(1, 1);
    first.opened = pending;
    store.append(&id(name), &held, first).await.unwrap();
}

pub(in super::super) async fn the_inbox_is_ordered_by_deadline_and_read_in_pages(
    store: Arc<dyn Store>,
) {
    create_with_suspensions(
        &*store,
        "b",
        vec![pending_call("call_2", 1, 60), pending_call("call_1", 1, 60)],
    )
    .await;
    let of_a = vec![
        pending_call("call_1", 2, 90),
        pending_call("call_3", 1, 30),
        pending_call("call_4", 1, 95),
    ];
    create_with_suspensions(&*store, "a", of_a).await;
    create_with_suspensions(&*store, "a:", vec![pending_call("call_1", 1, 60)]).await;
    let order = [
        ("a", "call_3", 1),
        ("a:", "call_1", 1),
        ("b", "call_1", 1),
        ("b", "call_2", 1),
        ("a", "call_1", 2),
        ("a", "call_4", 1),
    ];
    assert_eq!(list_inbox(&*store, &InboxFilter::default()).await, entries(&order));
    let of_a = InboxFilter { conversation: Some(id("a").local()), ..Default::default() };
    let order = [("a", "call_3", 1), ("a", "call_1", 2), ("a", "call_4", 1)];
    assert_eq!(list_inbox(&*store, &of_a).await, entries(&order));
    let all = store.inbox(&own(), &InboxFilter::default(), None, 6).await.unwrap();
    assert_eq!((all.items.len(), all.cursor), (6, None));
    assert_eq!(all.items[0].pending, pending_call("call_3", 1, 30));
}

pub(in super::super) async fn the_inbox_is_filtered(store: Arc<dyn Store>) {
    let question = PendingCall {
        kind: SuspensionKind::Elicitation,
        tool: "ask".to_owned(),
        ..pending_call("call_2", 1, 30)
    };
    create_with_suspensions(&*store, "a", vec![pending_call("call_1", 1, 60), question]).await;
    let held = claim_conversation(&*store, "b").await;
    let mut other = commit(1, 1);
    other.summary.agent = AgentName::new("other");
    other.opened.push(pending_call("call_1", 1, 90));
    store.append(&id("b"), &held, other).await.unwrap();

    let all = InboxFilter::default();
    let by = async |filter: InboxFilter| list_inbox(&*store, &filter).await;
    let of_kind = InboxFilter { kind: Some(SuspensionKind::Elicitation), ..all.clone() };
    assert_eq!(by(of_kind).await, entries(&[("a", "call_2", 1)]));
    let of_tool = InboxFilter { tool: Some("send_email".to_owned()), ..all.clone() };
    assert_eq!(by(of_tool.clone()).await, entries(&[("a", "call_1", 1), ("b", "call_1", 1)]));
    let of_agent = InboxFilter { agent: Some(AgentName::new("other")), ..all.clone() };
    assert_eq!(by(of_agent).await, entries(&[("b", "call_1", 1)]));
    let of_both = InboxFilter { conversation: Some(id("a").local()), ..of_tool };
    assert_eq!(by(of_both).await, entries(&[("a", "call_1", 1)]));
    let of_none = InboxFilter { conversation: Some(id("c").local()), ..all };
    assert_eq!(by(of_none).await, entries(&[]));
}

pub(in super::super) async fn a_closed_suspension_leaves_the_inbox(store: Arc<dyn Store>) {
    let (first, other) = (pending_call("call_1", 1, 60), pending_call("call_2", 1, 60));
    create_with_suspensions(&*store, "a", vec![first.clone(), other]).await;
    let held = claim_conversation(&*store, "a").await;
    let mut second = commit(2, 2);
    second.closed.push(closed_suspension(&first));
    second.opened.push(pending_call("call_1", 2, 90));
    store.append(&id("a"), &held, second).await.unwrap();
    let left = entries(&[("a", "call_2", 1), ("a", "call_1", 2)]);
    assert_eq!(list_inbox(&*store, &InboxFilter::default()).await, left);
    let of_a = InboxFilter { conversation: Some(id("a").local()), ..Default::default() };
    assert_eq!(list_inbox(&*store, &of_a).await, left);
}

pub(in super::super) async fn each_open_suspension_is_counted_once(store: Arc<dyn Store>) {
    let waiting_call = |call: usize, since: i64| {
        let kind =
            if since % 3 == 0 { SuspensionKind::ClientExec } else { SuspensionKind::Approval };
        let (soon, suspended_at) = (i64::try_from(call).unwrap() % 5, at(since));
        PendingCall { kind, suspended_at, ..pending_call(&format!("call_{call}"), 1, soon) }
    };
    // Many suspensions in one partition, and few in each of many partitions.
    create_with_suspensions(
        &*store,
        "many",
        (0..20).map(|n| waiting_call(n, i64::try_from(n).unwrap())).collect(),
    )
    .await;
    for since in 20..60 {
        create_with_suspensions(&*store, &format!("c{since}"), vec![waiting_call(0, since)]).await;
    }
    for limit in [1, 7, 20, 1_000] {
        let (mut counts, mut cursor) = (Vec::new(), None);
        for _ in 0..400 {
            let page = store.open_suspensions(&own(), cursor.as_deref(), limit).await.unwrap();
            counts.extend(page.items);
            cursor = page.cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(cursor, None, "pages of {limit} have no end");
        counts.sort_by_key(|waiting| waiting.since);
        let kind = |since| waiting_call(0, since).kind;
        let expected: Vec<_> =
            (0..60).map(|since| SuspensionCount { kind: kind(since), since: at(since) }).collect();
        assert_eq!(counts, expected, "in pages of {limit}");
    }
    assert_eq!(store.open_suspensions(&own(), Some("zz"), 9).await, Err(ListError::Cursor));
}

pub(in super::super) async fn an_alarm_can_be_moved_and_removed(store: Arc<dyn Store>) {
    for (name, due) in [("a", 60), ("b", 30), ("c", 30)] {
        let held = claim_conversation(&*store, name).await;
        let mut first = commit(1, 1);
        first.summary.alarm = Some(at(due));
        store.append(&id(name), &held, first).await.unwrap();
    }
    let due = [(id("b"), at(30)), (id("c"), at(30)), (id("a"), at(60))];
    assert_eq!(store.alarms(10).await.unwrap(), due);
    assert_eq!(store.alarms(2).await.unwrap(), due[..2]);
    for (seq, alarm, left) in [(2, Some(at(90)), 3), (3, Some(at(90)), 3), (4, None, 2)] {
        let held = claim_conversation(&*store, "b").await;
        let mut next = commit(seq, seq);
        next.summary.alarm = alarm;
        store.append(&id("b"), &held, next).await.unwrap();
        let alarms = store.alarms(10).await.unwrap();
        assert_eq!(alarms.len(), left, "at {seq}");
        assert_eq!(alarms.get(2), alarm.map(|at| (id("b"), at)).as_ref(), "at {seq}");
    }
}

pub(in super::super) async fn conversations_are_listed_as_active_while_they_have_work(
    store: Arc<dyn Store>,
) {
    for name in ["c", "a", "b"] {
        let held = claim_conversation(&*store, name).await;
        let mut first = commit(1, 1);
        first.summary.active = true;
        store.append(&id(name), &held, first).await.unwrap();
    }
    assert_eq!(active_names(&*store, &PartitionSet::all()).await, ["a", "b", "c"]);
    let held = claim_conversation(&*store, "b").await;
    store.append(&id("b"), &held, commit(2, 2)).await.unwrap();
    assert_eq!(active_names(&*store, &PartitionSet::all()).await, ["a", "c"]);
}

pub(in super::super) async fn active_conversations_are_listed_with_their_claims(
    store: Arc<dyn Store>,
) {
    let mut first = commit(1, 1);
    first.summary.active = true;
    for name in ["a", "b"] {
        let held = claim_conversation(&*store, name).await;
        store.append(&id(name), &held, first.clone()).await.unwrap();
    }
    let held = claim_conversation(&*store, "a").await;
    store.release(&id("a"), &held).await.unwrap();
    let mut page = store.active(&PartitionSet::all(), None, 9).await.unwrap().items;
    page.sort_by(|(a, _), (b, _)| a.cmp(b));
    let holding = store.current_claim(&id("b")).await.unwrap();
    assert!(holding.is_some());
    assert_eq!(page, [(id("a"), None), (id("b"), holding)]);
}

pub(in super::super) async fn active_conversations_and_due_alarms_are_read_by_partition(
    store: Arc<dyn Store>,
) {
    let names: Vec<String> = (0..24).map(|n| format!("c{n:02}")).collect();
    for (n, name) in (0..).zip(&names) {
        let held = claim_conversation(&*store, name).await;
        let mut first = commit(1, 1);
        first.summary.active = true;
        first.summary.alarm = Some(at(n));
        store.append(&id(name), &held, first).await.unwrap();
    }
    let members = ["node-1", "node-2"].map(NodeName::new);
    let (mut all_active, mut due_names) = (Vec::new(), Vec::new());
    for me in &members {
        let partitions = PartitionSet::of(me, &members.each_ref());
        let own = active_names(&*store, &partitions).await;
        assert!(own.iter().all(|name| partitions.contains(Partition::of(name))));
        all_active.extend(own);
        let due = store.due_alarms(&partitions, at(11), 100).await.unwrap();
        assert!(due.is_sorted_by_key(|(_, due)| *due), "{due:?}");
        due_names.extend(due.into_iter().map(|(id, _)| id.as_str().to_owned()));
    }
    all_active.sort();
    due_names.sort();
    assert_eq!(all_active, names);
    assert_eq!(due_names, names[..12], "the alarms due by then, and no others");
    let first = store.due_alarms(&PartitionSet::all(), at(30), 1).await.unwrap();
    assert_eq!(first.first(), Some(&(id("c00"), at(0))), "the earliest is never left out");
}

pub(in super::super) async fn the_last_seqs_of_many_conversations_are_read_at_once(
    store: Arc<dyn Store>,
) {
    let held = claim_conversation(&*store, "a").await;
    store.append(&id("a"), &held, commit(1, 3)).await.unwrap();
    let seqs = store.last_seqs(&[id("b"), id("a")]).await.unwrap();
    assert_eq!(seqs, [None, Some(Seq::new(3))]);
}

/// The names of all active conversations, read page by page.
async fn active_names(store: &dyn Store, partitions: &PartitionSet) -> Vec<String> {
    let (mut names, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.active(partitions, cursor.as_deref(), 2).await.unwrap();
        names.extend(page.items.into_iter().map(|(id, _)| id.as_str().to_owned()));
        cursor = page.cursor;
        if cursor.is_none() {
            names.sort();
            return names;
        }
    }
}

pub(in super::super) async fn conversations_are_listed_by_id_in_pages_and_filtered(
    store: Arc<dyn Store>,
) {
    for (count, name) in ["e", "a", "d", "a:b", "c"].into_iter().enumerate() {
        let held = claim_conversation(&*store, name).await;
        let mut first = commit(1, 1);
        first.summary.agent = AgentName::new(["even", "odd"][count % 2]);
        first.summary.status =
            [ConversationStatus::Idle, ConversationStatus::AwaitingInput][count / 3];
        store.append(&id(name), &held, first).await.unwrap();
    }
    let _claimed_only = claim_conversation(&*store, "b").await;
    let listed = |filter: SummaryFilter| {
        let store = Arc::clone(&store);
        async move {
            let (mut listed, mut cursor) = (Vec::new(), None);
            for _ in 0..9 {
                let page =
                    store.conversations(&own(), &filter, cursor.as_deref(), 2).await.unwrap();
                listed.extend(page.items.into_iter().map(|(id, summary)| {
                    assert!(filter.admits(&summary));
                    id.to_string()
                }));
                let Some(next) = page.cursor else { return listed };
                cursor = Some(next);
            }
            panic!("the pages have no end");
        }
    };
    let all = SummaryFilter::default();
    assert_eq!(listed(all.clone()).await, ["a", "a:b", "c", "d", "e"]);
    let even = SummaryFilter { agent: Some(AgentName::new("even")), ..all.clone() };
    assert_eq!(listed(even.clone()).await, ["c", "d", "e"]);
    let awaiting = SummaryFilter { status: Some(ConversationStatus::AwaitingInput), ..all };
    assert_eq!(listed(awaiting.clone()).await, ["a:b", "c"]);
    assert_eq!(listed(SummaryFilter { agent: even.agent, ..awaiting }).await, ["c"]);
    for (after, following) in [("a", vec!["a:b", "c", "d", "e"]), ("ab", vec!["c", "d", "e"])] {
        let after = cursor_after(&own(), &ConversationId::new(after));
        let page = store.conversations(&own(), &SummaryFilter::default(), Some(&after), 9).await;
        let ids: Vec<String> =
            page.unwrap().items.into_iter().map(|(id, _)| id.to_string()).collect();
        assert_eq!(ids, following);
    }
}

pub(in super::super) async fn long_listings_are_read_in_order_page_by_page(store: Arc<dyn Store>) {
    let mut names: Vec<String> = (0..300).map(|n| format!("c{:03}", n * 7 % 300)).collect();
    for name in &names {
        create_with_suspensions(&*store, name, vec![pending_call("call_1", 1, 60)]).await;
    }
    names.sort();
    let (mut listed, mut suspended) = (Vec::new(), Vec::new());
    let (mut conversations_cursor, mut inbox_cursor) = (None, None);
    for _ in 0..100 {
        let page = store
            .conversations(&own(), &Default::default(), conversations_cursor.as_deref(), 7)
            .await
            .unwrap();
        listed.extend(page.items.into_iter().map(|(id, _)| id.to_string()));
        conversations_cursor = page.cursor;
        let page =
            store.inbox(&own(), &Default::default(), inbox_cursor.as_deref(), 7).await.unwrap();
        suspended.extend(page.items.into_iter().map(|entry| entry.conversation_id.to_string()));
        inbox_cursor = page.cursor;
        if conversations_cursor.is_none() || inbox_cursor.is_none() {
            break;
        }
    }
    assert_eq!((conversations_cursor, inbox_cursor), (None, None));
    assert_eq!(listed, names);
    assert_eq!(suspended, names);
}

pub(in super::super) async fn an_invalid_cursor_is_refused(store: Arc<dyn Store>) {
    create_conversation(&*store, "a").await;
    for cursor in ["x", "zz", "é", "€uro", "00", "7b7d", "2261", ""] {
        let conversations = store.conversations(&own(), &Default::default(), Some(cursor), 9).await;
        assert_eq!(conversations, Err(ListError::Cursor), "{cursor}");
        assert_eq!(
            store.active(&PartitionSet::all(), Some(cursor), 9).await,
            Err(ListError::Cursor),
            "{cursor}"
        );
        let inbox = store.inbox(&own(), &Default::default(), Some(cursor), 9).await;
        assert_eq!(inbox, Err(ListError::Cursor), "{cursor}");
    }
}

pub(in super::super) async fn a_deletion_leaves_nothing_but_its_response(store: Arc<dyn Store>) {
    for name in ["a", "a:b"] {
        let held = claim_conversation(&*store, name).await;
        let mut whole = commit(1, 300);
        whole.summary.alarm = Some(at(60));
        whole.summary.active = true;
        whole.opened = vec![pending_call("call_1", 1, 60), pending_call("call_2", 1, 90)];
        whole.responses = vec![response("key:1", "one", 60), response("key:2", "two", 60)];
        whole.state = Some(Arc::new(State { seq: Seq::new(300), ..State::default() }));
        store.append(&id(name), &held, whole).await.unwrap();
    }
    let held = claim_conversation(&*store, "a").await;
    store.delete(&id("a"), &held, Some(response("key:2", "gone", 60)), Vec::new()).await.unwrap();

    assert_eq!(store.current_claim(&id("a")).await, Ok(None));
    assert_eq!(store.load(&id("a")).await, Ok(None));
    assert_eq!(store.summary(&id("a")).await, Ok(None));
    assert_eq!(store.events(&id("a"), Seq::ZERO, 9).await, Ok(vec![]));
    assert_eq!(store.events_before(&id("a"), Seq::new(u64::MAX), 9).await, Ok(vec![]));
    assert_eq!(store.stored_response(&scope_of("a"), "key:1", at(0)).await, Ok(None));
    let kept = store.stored_response(&scope_of("a"), "key:2", at(0)).await;
    assert_eq!(kept, Ok(Some(response("key:2", "gone", 60))));
    let left = entries(&[("a:b", "call_1", 1), ("a:b", "call_2", 1)]);
    assert_eq!(list_inbox(&*store, &InboxFilter::default()).await, left);
    assert_eq!(store.alarms(9).await.unwrap(), [(id("a:b"), at(60))]);
    assert_eq!(active_names(&*store, &PartitionSet::all()).await, ["a:b"]);
    let listed = store.conversations(&own(), &Default::default(), None, 9).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    assert_eq!(store.events(&id("a:b"), Seq::ZERO, 999).await.unwrap().len(), 300);
}

pub(in super::super) async fn a_deletion_by_another_is_fenced(store: Arc<dyn Store>) {
    let old = create_conversation(&*store, "a").await;
    let new = store.claim(&id("a"), &holder("m"), Some(&old.holder)).await.unwrap();
    let kept = Some(response("key:1", "gone", 60));
    assert_eq!(store.delete(&id("a"), &old, kept, Vec::new()).await, Err(StoreError::Fenced));
    assert!(store.load(&id("a")).await.unwrap().is_some());
    assert_eq!(store.stored_response(&scope_of("a"), "key:1", at(0)).await, Ok(None));
    assert_eq!(store.current_claim(&id("a")).await, Ok(Some(new)));
}

pub(in super::super) async fn a_deleted_conversation_may_be_created_again(store: Arc<dyn Store>) {
    let held = claim_conversation(&*store, "a").await;
    let mut cached = commit(1, 3);
    cached.state = Some(Arc::new(State { seq: Seq::new(3), ..State::default() }));
    store.append(&id("a"), &held, cached).await.unwrap();
    store.delete(&id("a"), &held, None, Vec::new()).await.unwrap();
    assert_eq!(store.append(&id("a"), &held, commit(1, 1)).await, Err(StoreError::Fenced));
    let held = claim_conversation(&*store, "a").await;
    store.append(&id("a"), &held, commit(1, 4)).await.unwrap();
    let loaded = store.load(&id("a")).await.unwrap().unwrap();
    assert_eq!((loaded.state, &loaded.events[..]), (State::default(), &commit(1, 4).events[..]));
}
