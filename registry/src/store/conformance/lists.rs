//! Promises about the lists of conversations and their index.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_actors::journal::{Commit, ListEntry, Relisting, StoreError, Viewer};
use abide_conversation::identity::Participants;
use abide_conversation::state::ConversationStatus;
use abide_conversation::{AgentName, ConversationId, Scoped};
use serde_json::{Map, Value, json};

use super::super::{Direction, IndexJobs, ListError, ListOrder, ListQuery, Period, Rebuild, Store};
use super::fixtures::*;

/// A first commit that the list shows with these times, in seconds.
fn listed(created: i64, active: i64, metadata: Value) -> Commit {
    let mut first = commit(1, 1);
    first.summary.created_at = at(created);
    first.summary.listing.active_at = Some(at(active));
    first.summary.metadata = serde_json::from_value(metadata).unwrap();
    first.relisting = Relisting::Whole { indexed: Arc::from(["customer".to_owned()]) };
    first
}

async fn create(store: &dyn Store, name: &str, first: Commit) {
    let held = claim_conversation(store, name).await;
    store.append(&id(name), &held, first).await.unwrap();
}

async fn append(store: &dyn Store, name: &str, next: Commit) {
    let held = claim_conversation(store, name).await;
    store.append(&id(name), &held, next).await.unwrap();
}

/// The ids of a list, read in pages of this size.
async fn ids_in_pages(store: &dyn Store, query: &ListQuery, limit: usize) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), None);
    for _ in 0..200 {
        let page = store.list(&own(), query, cursor.as_deref(), limit).await.unwrap();
        assert!(page.items.len() <= limit);
        assert!(page.items.iter().all(|listed| query.admits(&listed.summary)));
        ids.extend(page.items.into_iter().map(|listed| listed.id.to_string()));
        let Some(next) = page.cursor else { return ids };
        cursor = Some(next);
    }
    panic!("the pages have no end");
}

async fn ids(store: &dyn Store, query: &ListQuery) -> Vec<String> {
    let all = ids_in_pages(store, query, 2).await;
    assert_eq!(all, ids_in_pages(store, query, 100).await);
    all
}

fn by(order: ListOrder, direction: Direction) -> ListQuery {
    ListQuery { order, direction, ..ListQuery::default() }
}

pub(in super::super) async fn lists_are_sorted_by_creation_or_activity(store: Arc<dyn Store>) {
    for (name, created, active) in [("c", 1, 9), ("a", 2, 5), ("b", 2, 7), ("d", 3, 3)] {
        create(&*store, name, listed(created, active, json!({}))).await;
    }
    for (query, expected) in [
        (by(ListOrder::Created, Direction::Ascending), ["c", "a", "b", "d"]),
        (by(ListOrder::Created, Direction::Descending), ["d", "b", "a", "c"]),
        (by(ListOrder::Active, Direction::Ascending), ["d", "a", "b", "c"]),
        (by(ListOrder::Active, Direction::Descending), ["c", "b", "a", "d"]),
    ] {
        assert_eq!(ids(&*store, &query).await, expected, "{query:?}");
    }
    // What is between two times, neither included.
    let within = |after, before| Period { after: Some(at(after)), before: Some(at(before)) };
    for direction in [Direction::Ascending, Direction::Descending] {
        let created = ListQuery { created: within(1, 3), ..by(ListOrder::Created, direction) };
        let mut found = ids(&*store, &created).await;
        found.sort();
        assert_eq!(found, ["a", "b"]);
        let active = ListQuery { active: within(3, 9), ..by(ListOrder::Active, direction) };
        let mut found = ids(&*store, &active).await;
        found.sort();
        assert_eq!(found, ["a", "b"]);
        let both = ListQuery { created: within(1, 3), ..active };
        assert_eq!(ids(&*store, &both).await.len(), 2);
    }
    let none = ListQuery { created: within(3, 1), ..ListQuery::default() };
    assert_eq!(ids(&*store, &none).await, [""; 0]);
}

pub(in super::super) async fn an_activity_moves_a_conversation_in_its_lists(store: Arc<dyn Store>) {
    for (name, active) in [("a", 1), ("b", 2)] {
        create(&*store, name, listed(active, active, json!({"customer": "7"}))).await;
    }
    let mut next = commit(2, 2);
    next.summary = listed(1, 5, json!({"customer": "7"})).summary;
    next.summary.last_seq = commit(2, 2).summary.last_seq;
    next.summary.listing = ListEntry { turns: 3, ..next.summary.listing };
    next.relisting = Relisting::Touched;
    append(&*store, "a", next.clone()).await;
    let of_customer = ListQuery {
        metadata: metadata("customer", "7"),
        ..by(ListOrder::Active, Direction::Descending)
    };
    for query in [by(ListOrder::Active, Direction::Descending), of_customer] {
        assert_eq!(ids(&*store, &query).await, ["a", "b"]);
    }
    assert_eq!(ids(&*store, &by(ListOrder::Created, Direction::Ascending)).await, ["a", "b"]);
    let page = store.list(&own(), &ListQuery::default(), None, 9).await.unwrap();
    assert_eq!(page.items[1].summary.listing, next.summary.listing);
    // A commit that leaves the list alone changes no order.
    let mut third = Commit { relisting: Relisting::Unchanged, ..next };
    third.events = commit(3, 3).events;
    third.summary.last_seq = commit(3, 3).summary.last_seq;
    append(&*store, "a", third).await;
    assert_eq!(ids(&*store, &by(ListOrder::Active, Direction::Descending)).await, ["a", "b"]);
}

fn metadata(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

/// Creates four conversations, no two of which are alike in what a list is filtered by.
async fn create_four(store: &dyn Store) {
    let with = |agent: &str, owner: Option<&str>, members: &[&str], parent: Option<&str>| {
        let mut first = listed(1, 1, json!({"customer": "7", "plan": "gold"}));
        first.summary.agent = AgentName::new(agent);
        let members = members.iter().map(|it| (*it).to_owned()).collect();
        first.summary.participants = Participants { owner: owner.map(str::to_owned), members };
        first.summary.listing.parent = parent.map(ConversationId::new);
        first
    };
    create(store, "a", with("demo", Some("ann"), &["bob"], None)).await;
    create(store, "b", with("other", Some("bob"), &[], None)).await;
    create(store, "c", with("demo", Some("ann"), &[], Some("a"))).await;
    let mut waiting = with("demo", None, &[], None);
    waiting.summary.status = ConversationStatus::AwaitingInput;
    waiting.summary.metadata = Map::from_iter([("customer".to_owned(), json!(7))]);
    waiting.opened = vec![pending_call("call_1", 1, 60), pending_call("call_2", 1, 60)];
    create(store, "d", waiting).await;
}

pub(in super::super) async fn lists_are_filtered(store: Arc<dyn Store>) {
    create_four(&*store).await;
    let all = ListQuery { direction: Direction::Ascending, ..ListQuery::default() };
    let roots = ListQuery { root_only: true, ..all.clone() };
    let agent = Some(AgentName::new("demo"));
    let participant = |sub: &str| Viewer::Participant(sub.to_owned());
    for (query, expected) in [
        (all.clone(), vec!["a", "b", "c", "d"]),
        (roots.clone(), vec!["a", "b", "d"]),
        (ListQuery { agent: agent.clone(), ..all.clone() }, vec!["a", "c", "d"]),
        (ListQuery { agent: agent.clone(), ..roots.clone() }, vec!["a", "d"]),
        (ListQuery { owner: Some("ann".to_owned()), ..all.clone() }, vec!["a", "c"]),
        (ListQuery { owner: Some("bob".to_owned()), ..all.clone() }, vec!["b"]),
        (ListQuery { visible_to: participant("bob"), ..all.clone() }, vec!["a", "b"]),
        (ListQuery { visible_to: participant("eve"), ..all.clone() }, vec![]),
        (ListQuery { parent: Some(ConversationId::new("a")), ..roots.clone() }, vec!["c"]),
        (ListQuery { metadata: metadata("customer", "7"), ..all.clone() }, vec!["a", "b", "c"]),
        // Only what the agent indexes, and only texts.
        (ListQuery { metadata: metadata("plan", "gold"), ..all.clone() }, vec![]),
        (ListQuery { metadata: metadata("customer", "8"), ..all.clone() }, vec![]),
        (ListQuery { status: Some(ConversationStatus::AwaitingInput), ..all.clone() }, vec!["d"]),
        (ListQuery { status: Some(ConversationStatus::Idle), ..all.clone() }, vec!["a", "b", "c"]),
        (ListQuery { owner: Some("ann".to_owned()), agent, ..roots.clone() }, vec!["a"]),
        // Any of the indexes that are asked for may be the one that is read.
        (
            ListQuery {
                owner: Some("bob".to_owned()),
                metadata: metadata("customer", "7"),
                visible_to: participant("bob"),
                ..all.clone()
            },
            vec!["b"],
        ),
        (
            ListQuery {
                agent: Some(AgentName::new("demo")),
                status: Some(ConversationStatus::AwaitingInput),
                ..all.clone()
            },
            vec!["d"],
        ),
        (
            ListQuery {
                parent: Some(ConversationId::new("a")),
                owner: Some("bob".to_owned()),
                ..all.clone()
            },
            vec![],
        ),
    ] {
        assert_eq!(ids(&*store, &query).await, expected, "{query:?}");
    }
    let page = store.list(&own(), &all, None, 9).await.unwrap();
    let pending: Vec<usize> = page.items.iter().map(|listed| listed.pending).collect();
    assert_eq!(pending, [0, 0, 0, 2]);
}

pub(in super::super) async fn changed_metadata_moves_a_conversation_in_the_index(
    store: Arc<dyn Store>,
) {
    create(&*store, "a", listed(1, 1, json!({"customer": "7"}))).await;
    let found = |value: &'static str| {
        let store = Arc::clone(&store);
        async move {
            let query = ListQuery { metadata: metadata("customer", value), ..Default::default() };
            ids(&*store, &query).await.len()
        }
    };
    assert_eq!((found("7").await, found("8").await), (1, 0));
    let mut next = listed(1, 1, json!({"customer": "8"}));
    next.events = commit(2, 2).events;
    next.summary.last_seq = commit(2, 2).summary.last_seq;
    next.summary.participants.members = vec!["bob".to_owned()];
    append(&*store, "a", next.clone()).await;
    assert_eq!((found("7").await, found("8").await), (0, 1));
    let summary = store.summary(&id("a")).await.unwrap().unwrap();
    assert_eq!(summary, next.summary, "everybody reads what was changed");
    next.events = commit(3, 3).events;
    next.summary.last_seq = commit(3, 3).summary.last_seq;
    next.summary.metadata.clear();
    append(&*store, "a", next).await;
    assert_eq!((found("7").await, found("8").await), (0, 0));
    assert!(store.summary(&id("a")).await.unwrap().unwrap().metadata.is_empty());
}

pub(in super::super) async fn a_deleted_conversation_leaves_all_lists(store: Arc<dyn Store>) {
    let queries = || {
        let orders = [ListOrder::Created, ListOrder::Active];
        let all = orders.map(|order| by(order, Direction::Ascending));
        let of_customer = |it: ListQuery| ListQuery { metadata: metadata("customer", "7"), ..it };
        all.clone().into_iter().chain(all.map(of_customer))
    };
    create(&*store, "a", listed(1, 1, json!({"customer": "7"}))).await;
    create(&*store, "b", listed(2, 2, json!({"customer": "7"}))).await;
    let held = claim_conversation(&*store, "a").await;
    store.delete(&id("a"), &held, None, Vec::new()).await.unwrap();
    for query in queries() {
        assert_eq!(ids(&*store, &query).await, ["b"], "{query:?}");
    }
    // Another one of the same id has its own place only.
    create(&*store, "a", listed(3, 3, json!({}))).await;
    for query in queries() {
        let expected = if query.metadata.is_empty() { vec!["b", "a"] } else { vec!["b"] };
        assert_eq!(ids(&*store, &query).await, expected, "{query:?}");
    }
}

pub(in super::super) async fn a_cursor_of_another_list_is_refused(store: Arc<dyn Store>) {
    for name in ["a", "b", "acme/a"] {
        create(&*store, name, listed(1, 1, json!({}))).await;
    }
    let query = ListQuery::default();
    let page = store.list(&own(), &query, None, 1).await.unwrap();
    let cursor = page.cursor.unwrap();
    assert!(store.list(&own(), &query, Some(&cursor), 1).await.is_ok());
    let others = [
        by(ListOrder::Active, Direction::Descending),
        by(ListOrder::Created, Direction::Ascending),
        ListQuery { root_only: true, ..ListQuery::default() },
        ListQuery { owner: Some("ann".to_owned()), ..ListQuery::default() },
        ListQuery { visible_to: Viewer::Participant("ann".to_owned()), ..ListQuery::default() },
        ListQuery { metadata: metadata("customer", "7"), ..ListQuery::default() },
    ];
    for other in others {
        let refused = store.list(&own(), &other, Some(&cursor), 1).await;
        assert_eq!(refused, Err(ListError::Cursor), "{other:?}");
    }
    let refused = store.list(&tenant("acme"), &query, Some(&cursor), 1).await;
    assert_eq!(refused, Err(ListError::Cursor));
    let by_id = store.conversations(&own(), &Default::default(), None, 1).await.unwrap();
    let refused = store.list(&own(), &query, by_id.cursor.as_deref(), 1).await;
    assert_eq!(refused, Err(ListError::Cursor));
    for cursor in ["x", "zz", "é", "00", "7b7d", "2261", ""] {
        let refused = store.list(&own(), &query, Some(cursor), 1).await;
        assert_eq!(refused, Err(ListError::Cursor), "{cursor}");
    }
}

pub(in super::super) async fn long_lists_are_read_page_by_page(store: Arc<dyn Store>) {
    let mut names: Vec<String> = (0..300).map(|n| format!("c{:03}", n * 7 % 300)).collect();
    for name in &names {
        let created = name[1..].parse().unwrap();
        create(&*store, name, listed(created, 300 - created, json!({}))).await;
    }
    names.sort();
    for (order, direction) in
        [(ListOrder::Created, Direction::Ascending), (ListOrder::Active, Direction::Descending)]
    {
        assert_eq!(ids_in_pages(&*store, &by(order, direction), 7).await, names);
    }
    names.reverse();
    let latest = by(ListOrder::Created, Direction::Descending);
    assert_eq!(ids_in_pages(&*store, &latest, 299).await, names);
}

pub(in super::super) async fn an_entry_is_written_anew_if_the_journal_is_as_it_was_read(
    store: Arc<dyn Store>,
) {
    let mut first = listed(1, 1, json!({"customer": "7"}));
    first.relisting = Relisting::whole();
    create(&*store, "a", first.clone()).await;
    let of_customer = ListQuery { metadata: metadata("customer", "7"), ..ListQuery::default() };
    assert_eq!(ids(&*store, &of_customer).await, [""; 0]);
    let keys = ["customer".to_owned()];
    let mut later = first.summary.clone();
    later.last_seq = later.last_seq.next();
    assert_eq!(store.relist(&id("a"), &later, &keys).await, Ok(false));
    assert_eq!(store.relist(&id("b"), &first.summary, &keys).await, Ok(false));
    assert_eq!(ids(&*store, &of_customer).await, [""; 0]);
    for _ in 0..2 {
        assert_eq!(store.relist(&id("a"), &first.summary, &keys).await, Ok(true));
        assert_eq!(ids(&*store, &of_customer).await, ["a"]);
        assert_eq!(ids(&*store, &ListQuery::default()).await, ["a"]);
    }
    // The holder of the conversation has not heard of that, and moves it all the same.
    create(&*store, "b", listed(2, 2, json!({"customer": "7"}))).await;
    let mut next = Commit { relisting: Relisting::Touched, ..commit(2, 2) };
    next.summary.metadata = first.summary.metadata.clone();
    next.summary.listing.active_at = Some(at(5));
    append(&*store, "a", next).await;
    let latest = ListQuery {
        metadata: of_customer.metadata.clone(),
        ..by(ListOrder::Active, Direction::Descending)
    };
    assert_eq!(ids(&*store, &latest).await, ["a", "b"]);
    let held = claim_conversation(&*store, "a").await;
    store.delete(&id("a"), &held, None, Vec::new()).await.unwrap();
    assert_eq!(ids(&*store, &of_customer).await, ["b"]);
}

pub(in super::super) async fn a_commit_that_is_late_after_its_entry_was_written_anew_says_why(
    store: Arc<dyn Store>,
) {
    let keys = ["customer".to_owned()];
    let mut first = listed(1, 1, json!({"customer": "7"}));
    first.relisting = Relisting::whole();
    // What a holder commits that knows the entry as it wrote it itself.
    let mut late = Commit { relisting: Relisting::Touched, ..commit(2, 2) };
    late.summary.metadata = first.summary.metadata.clone();
    late.summary.listing.active_at = Some(at(5));
    for name in ["a", "b"] {
        create(&*store, name, first.clone()).await;
        assert_eq!(store.relist(&id(name), &first.summary, &keys).await, Ok(true));
    }
    let stale = claim_conversation(&*store, "a").await;
    let held = store.claim(&id("a"), &holder("m"), Some(&stale.holder)).await.unwrap();
    let fenced = store.append(&id("a"), &stale, late.clone()).await;
    assert_eq!(fenced, Err(StoreError::Fenced));
    assert_eq!(store.append(&id("a"), &held, late.clone()).await, Ok(()));
    let fenced = store.append(&id("a"), &stale, late.clone()).await;
    assert_eq!(fenced, Err(StoreError::Fenced));
    // A commit of the present holder that repeats the numbers of its last one.
    let held = claim_conversation(&*store, "b").await;
    assert_eq!(store.append(&id("b"), &held, late.clone()).await, Ok(()));
    assert_eq!(store.append(&id("b"), &held, late).await, Err(StoreError::Conflict));
    let active = ListQuery {
        metadata: metadata("customer", "7"),
        ..by(ListOrder::Active, Direction::Ascending)
    };
    let page = store.list(&own(), &active, None, 9).await.unwrap();
    let found = page.items.iter().map(|it| (it.id.as_str(), it.summary.listing.active_at));
    assert_eq!(found.collect::<Vec<_>>(), [("a", Some(at(5))), ("b", Some(at(5)))]);
}

pub(in super::super) async fn the_progress_of_a_rebuild_is_replaced_only_if_it_is_known(
    store: Arc<dyn Store>,
) {
    assert_eq!(store.rebuild().await, Ok(None));
    let first = Rebuild::after(None, at(0));
    assert_eq!(store.replace_rebuild(Some(&first), &first).await, Ok(false));
    assert_eq!(store.replace_rebuild(None, &first).await, Ok(true));
    let further = Rebuild { conversations: 7, tenant: Some(own()), ..first.clone() };
    assert_eq!(store.replace_rebuild(None, &further).await, Ok(false));
    assert_eq!(store.rebuild().await, Ok(Some(first.clone())));
    assert_eq!(store.replace_rebuild(Some(&first), &further).await, Ok(true));
    assert_eq!(store.rebuild().await, Ok(Some(further.clone())));
    let second = Rebuild::after(Some(&further), at(9));
    assert_eq!((second.number, second.conversations), (2, 0));
    assert_eq!(store.replace_rebuild(Some(&first), &second).await, Ok(false));
}

pub(in super::super) async fn the_agents_to_index_are_replaced_only_if_they_are_known(
    store: Arc<dyn Store>,
) {
    let none = IndexJobs::default();
    assert_eq!(store.index_jobs().await, Ok(none.clone()));
    let agent = |name: &str| Scoped::parse(name).unwrap();
    let one = none.with(&agent("a"), at(1)).unwrap();
    assert_eq!(store.replace_index_jobs(&one, &one).await, Ok(false));
    assert_eq!(store.replace_index_jobs(&none, &one).await, Ok(true));
    let two = one.with(&agent("acme/b"), at(2)).unwrap();
    assert_eq!(store.replace_index_jobs(&none, &two).await, Ok(false));
    assert_eq!(store.replace_index_jobs(&one, &two).await, Ok(true));
    assert_eq!(store.index_jobs().await, Ok(two.clone()));
    let left = two.after_step(&two.jobs[0], None).unwrap();
    assert_eq!(store.replace_index_jobs(&two, &left).await, Ok(true));
    let empty = left.after_step(&left.jobs[0], None).unwrap();
    assert_eq!(store.replace_index_jobs(&left, &empty).await, Ok(true));
    assert_eq!(store.replace_index_jobs(&none, &one).await, Ok(false), "it is no new store");
    assert_eq!(store.replace_index_jobs(&empty, &one).await, Ok(true));
    assert_eq!(store.rebuild().await, Ok(None), "the rebuild is stored apart");
}
