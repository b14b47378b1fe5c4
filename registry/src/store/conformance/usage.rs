//! Promises about what is counted of tenants.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use abide_actors::blobs::Blob;
use abide_actors::journal::{Claim, Commit, StoreError};
use abide_actors::usage_counts::{UsageCounts, day_of};
use abide_conversation::identity::Participants;
use abide_conversation::{AgentName, BlobId, Scoped};

use super::super::usage::MAX_ROWS;
use super::super::{Store, UsageBy, UsagePage, UsageQuery};
use super::fixtures::*;

const DAY_SECONDS: i64 = 86_400;

fn turns(turns: u64) -> UsageCounts {
    UsageCounts { turns, input_tokens: 10 * turns, output_tokens: turns, ..Default::default() }
}

/// A commit of the event `seq` that counts something on a day.
fn counting(seq: u64, day: i64, agent: &str, owner: Option<&str>, used: u64) -> Commit {
    let mut commit = commit(seq, seq);
    for event in Arc::make_mut(&mut commit.events) {
        event.at = at(day * DAY_SECONDS);
    }
    commit.summary.agent = AgentName::new(agent);
    let owner = owner.map(str::to_owned);
    commit.summary.participants = Participants { owner, members: Vec::new() };
    commit.usage = Some(turns(used));
    commit
}

async fn append(store: &dyn Store, name: &str, held: &Claim, commit: Commit) {
    store.append(&id(name), held, commit).await.unwrap();
}

fn query(name: &str, by: UsageBy, first: i64, last: i64) -> UsageQuery {
    let day = |day: i64| day_of(at(day * DAY_SECONDS));
    let (first, last) = (day(first), day(last));
    UsageQuery { tenant: tenant(name), first, last, by, after: None, limit: 100 }
}

/// The names of a page, each with its turns.
fn text_of(page: &UsagePage) -> String {
    let row = |(name, counts): &(String, UsageCounts)| {
        assert_eq!(*counts, turns(counts.turns), "all counters are added up");
        format!("{name}={}", counts.turns)
    };
    let rows: Vec<String> = page.rows.iter().map(row).collect();
    format!("{} of {}", rows.join(" "), page.total.turns)
}

async fn usage(store: &dyn Store, query: &UsageQuery) -> String {
    text_of(&store.usage(query).await.unwrap())
}

pub(in super::super) async fn usage_is_added_up_by_day_agent_and_owner(store: Arc<dyn Store>) {
    // Conversations of different partitions.
    for (name, day, agent, owner, used) in [
        ("a", 0, "demo", Some("ann"), 1),
        ("b", 0, "demo", Some("bob"), 2),
        ("c", 0, "mail", Some("ann"), 4),
        ("d", 1, "demo", None, 8),
        ("e", 2, "mail", Some("ann"), 16),
    ] {
        let held = claim_conversation(&*store, name).await;
        append(&*store, name, &held, counting(1, day, agent, owner, used)).await;
    }
    for (by, first, last, expected) in [
        (UsageBy::Agent, 0, 2, "demo=11 mail=20 of 31"),
        (UsageBy::Owner, 0, 2, "=8 ann=21 bob=2 of 31"),
        (UsageBy::Agent, 1, 1, "demo=8 of 8"),
        (UsageBy::Owner, 0, 0, "ann=5 bob=2 of 7"),
        (UsageBy::Owner, 3, 9, " of 0"),
    ] {
        let query = query("default", by, first, last);
        assert_eq!(usage(&*store, &query).await, expected, "{by:?} {first} to {last}");
    }
    let first = UsageQuery { limit: 2, ..query("default", UsageBy::Owner, 0, 2) };
    let page = store.usage(&first).await.unwrap();
    assert_eq!((text_of(&page).as_str(), page.has_more), ("=8 ann=21 of 31", true));
    let after = UsageQuery { after: Some("ann".to_owned()), ..first };
    let page = store.usage(&after).await.unwrap();
    assert_eq!((text_of(&page).as_str(), page.has_more), ("bob=2 of 31", false));
    for (day, tokens) in [(0, 7 * 11), (1, 8 * 11), (3, 0)] {
        let day = query("default", UsageBy::Agent, day, day).first;
        assert_eq!(store.tokens_of_day(&own(), day).await, Ok(tokens));
    }
}

pub(in super::super) async fn a_repeated_or_refused_commit_counts_once(store: Arc<dyn Store>) {
    let held = claim_conversation(&*store, "a").await;
    let first = counting(1, 0, "demo", None, 1);
    append(&*store, "a", &held, first.clone()).await;
    assert_eq!(store.append(&id("a"), &held, first).await, Err(StoreError::Conflict));
    let stale = held;
    store.claim(&id("a"), &holder("m"), Some(&holder("n"))).await.unwrap();
    let fenced = store.append(&id("a"), &stale, counting(2, 0, "demo", None, 1)).await;
    assert_eq!(fenced, Err(StoreError::Fenced));
    let all = query("default", UsageBy::Agent, 0, 0);
    assert_eq!(usage(&*store, &all).await, "demo=1 of 1");
}

pub(in super::super) async fn usage_outlives_its_conversation(store: Arc<dyn Store>) {
    let held = claim_conversation(&*store, "a").await;
    append(&*store, "a", &held, counting(1, 0, "demo", Some("ann"), 3)).await;
    append(&*store, "a", &held, commit(2, 2)).await;
    store.delete(&id("a"), &held, None, Vec::new()).await.unwrap();
    let all = query("default", UsageBy::Owner, 0, 0);
    assert_eq!(usage(&*store, &all).await, "ann=3 of 3");
}

pub(in super::super) async fn a_day_has_room_for_a_bounded_number_of_owners(store: Arc<dyn Store>) {
    let held = claim_conversation(&*store, "a").await;
    let number = MAX_ROWS + 3;
    for seq in 1..=number {
        let owner = format!("owner {seq:04}");
        append(&*store, "a", &held, counting(seq, 0, "demo", Some(&owner), 1)).await;
    }
    // One that has a row keeps it.
    append(&*store, "a", &held, counting(number + 1, 0, "demo", Some("owner 0001"), 1)).await;
    append(&*store, "a", &held, counting(number + 2, 0, "demo", Some("owner 9999"), 1)).await;
    let limit = usize::try_from(number).unwrap();
    let all = UsageQuery { limit, ..query("default", UsageBy::Owner, 0, 0) };
    let page = store.usage(&all).await.unwrap();
    assert_eq!(page.rows.len() as u64, MAX_ROWS + 1);
    assert_eq!(page.rows[0], (String::new(), turns(4)));
    assert_eq!(page.rows[1], ("owner 0001".to_owned(), turns(2)));
    assert_eq!(page.total, turns(number + 2));
}

pub(in super::super) async fn a_tenants_usage_and_counts_are_its_own(store: Arc<dyn Store>) {
    let blob_of = |name: &str, text: &'static str| {
        let blob = Blob::new("text/plain", text);
        (Scoped::<BlobId>::new(&tenant(name), &blob.id()), blob)
    };
    for (name, used, text) in [("a", 1, "four"), ("acme/a", 2, "eleven more")] {
        let held = claim_conversation(&*store, name).await;
        append(&*store, name, &held, counting(1, 0, "demo", Some("ann"), used)).await;
        let tenant = id(name).tenant();
        let (id, blob) = blob_of(tenant.as_str(), text);
        store.put_blob(&id, &blob).await.unwrap();
    }
    for (name, used, bytes) in [("default", 1, 4), ("acme", 2, 11), ("globex", 0, 0)] {
        for by in [UsageBy::Agent, UsageBy::Owner] {
            let page = store.usage(&query(name, by, 0, 0)).await.unwrap();
            assert_eq!(page.total, turns(used), "{name}");
            assert_eq!(page.rows.len(), usize::from(used > 0), "{name}");
        }
        let (of, day) = (tenant(name), day_of(at(0)));
        assert_eq!(store.tokens_of_day(&of, day).await, Ok(11 * used), "{name}");
        assert_eq!(store.conversation_count(&of).await, Ok(u64::from(used > 0)), "{name}");
        assert_eq!(store.blob_bytes(&of).await, Ok(bytes), "{name}");
    }
}

pub(in super::super) async fn deletions_give_conversations_and_bytes_back(store: Arc<dyn Store>) {
    let (one, two) = (Blob::new("text/plain", "one"), Blob::new("text/plain", "three"));
    for blob in [&one, &two, &one] {
        store.put_blob(&blob_id(blob), blob).await.unwrap();
    }
    assert_eq!(store.blob_bytes(&own()).await, Ok(8));
    for _ in 0..2 {
        store.delete_blob(&blob_id(&one)).await.unwrap();
        assert_eq!(store.blob_bytes(&own()).await, Ok(5));
    }
    store.put_blob(&blob_id(&one), &one).await.unwrap();
    assert_eq!(store.blob_bytes(&own()).await, Ok(8));
    let held = create_conversation(&*store, "a").await;
    create_conversation(&*store, "b").await;
    // A claim by itself is no conversation.
    claim_conversation(&*store, "c").await;
    assert_eq!(store.conversation_count(&own()).await, Ok(2));
    store.delete(&id("a"), &held, None, Vec::new()).await.unwrap();
    assert_eq!(store.conversation_count(&own()).await, Ok(1));
}
