//! Tests of the quotas that a node counts itself.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use abide_actors::blobs::{Blob, Blobs};
use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::{Commit, ConversationSummary, Holder, Journal};
use abide_actors::usage_counts::UsageCounts;
use abide_conversation::event::EventData;
use abide_conversation::state::ConversationStatus;
use abide_conversation::{AgentName, Event, Seq, Timestamp};
use abide_registry::store::memory::Memory;
use axum::response::IntoResponse;

use super::*;

/// Longer than a count is believed without being read again.
const REFRESH: Duration = Duration::from_secs(6);

struct NoonClock;

impl Clock for NoonClock {
    fn now(&self) -> Timestamp {
        "2027-01-15T12:00:00Z".parse().unwrap()
    }

    fn id(&self, prefix: &str) -> String {
        prefix.to_owned()
    }

    fn chance(&self) -> f64 {
        0.0
    }
}

fn gate() -> (Arc<Memory>, QuotaGate) {
    let store = Arc::new(Memory::default());
    (store.clone(), QuotaGate::new(store, Arc::new(NoonClock)))
}

fn tenant(name: &str) -> Tenant {
    Tenant::parse(name).unwrap()
}

fn id(name: &str) -> Scoped<ConversationId> {
    Scoped::parse(name).unwrap()
}

/// The quota that refuses, and after how many seconds to try again.
fn refusal<T>(outcome: Result<T, Problem>) -> Option<(u64, u64)> {
    let response = outcome.err()?.into_response();
    let seconds = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    Some((response.status().as_u16().into(), seconds))
}

/// Creates a conversation in which this many tokens are used.
async fn create(store: &Memory, name: &str, tokens: u64) {
    let holder = Holder { node: NodeName::new("n"), incarnation: Incarnation::new("1") };
    let held = store.claim(&id(name), &holder, None).await.unwrap();
    let (seq, at) = (Seq::FIRST, NoonClock.now());
    let event = Event { seq, at, turn_id: None, data: EventData::Abandoned {} };
    let summary = ConversationSummary {
        agent: AgentName::new("demo"),
        status: ConversationStatus::Idle,
        last_seq: seq,
        created_at: at,
        metadata: Default::default(),
        participants: Default::default(),
        alarm: None,
        active: false,
        listing: Default::default(),
    };
    let mut commit = Commit::new([event].into(), summary);
    commit.usage = Some(UsageCounts { output_tokens: tokens, ..Default::default() });
    store.append(&id(name), &held, commit).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_tenant_without_quotas_is_refused_nothing() {
    let (_store, gate) = gate();
    let (acme, none) = (tenant("acme"), Quotas::default());
    let mut permits = Vec::new();
    for number in 0..500 {
        assert!(gate.admit_request(&acme, none).is_ok());
        permits.push(gate.open_stream(&acme, none).unwrap());
        assert!(gate.admit_conversation(&id(&format!("acme/{number}")), none).await.is_ok());
        assert!(gate.admit_blob(&acme, none, u64::MAX).await.is_ok());
        assert!(gate.admit_turn(&acme, none).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn the_requests_of_one_tenant_do_not_count_for_another() {
    let (_store, gate) = gate();
    let quotas = Quotas { requests_per_minute: Some(2), ..Quotas::default() };
    for name in ["acme", "globex"] {
        assert!(gate.admit_request(&tenant(name), quotas).is_ok());
        assert!(gate.admit_request(&tenant(name), quotas).is_ok());
        assert_eq!(refusal(gate.admit_request(&tenant(name), quotas)), Some((429, 30)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_counts_until_it_ends() {
    let (_store, gate) = gate();
    let (acme, one) = (tenant("acme"), Quotas { open_streams: Some(1), ..Quotas::default() });
    let open = gate.open_stream(&acme, one).unwrap();
    assert_eq!(refusal(gate.open_stream(&acme, one)), Some((429, STREAM_RETRY_SECONDS)));
    assert_eq!(refusal(gate.open_stream(&acme, one)), Some((429, STREAM_RETRY_SECONDS)));
    assert!(gate.open_stream(&tenant("globex"), one).is_ok());
    drop(open);
    let open = gate.open_stream(&acme, one).unwrap();
    // Streams that are open stay when the quota is lowered, and count.
    let none = Quotas { open_streams: Some(0), ..Quotas::default() };
    drop(open);
    assert!(gate.open_stream(&acme, none).is_err());
}

#[tokio::test(start_paused = true)]
async fn conversations_are_counted_as_they_are_created_and_deleted() {
    let (store, gate) = gate();
    let quotas = Quotas { conversations: Some(2), ..Quotas::default() };
    create(&store, "acme/old", 0).await;
    create(&store, "other", 0).await;
    assert!(gate.admit_conversation(&id("acme/a"), quotas).await.is_ok());
    // Not created yet, and counted all the same: nobody may overtake it.
    assert_eq!(refusal(gate.admit_conversation(&id("acme/b"), quotas).await), Some((429, 60)));
    create(&store, "acme/a", 0).await;
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(gate.admit_conversation(&id("acme/b"), quotas).await.is_err());
    for name in ["acme/a", "acme/old"] {
        assert!(gate.admit_conversation(&id(name), quotas).await.is_ok(), "{name} exists");
    }
    assert!(gate.admit_conversation(&id("globex/a"), quotas).await.is_ok());
    let held = store.current_claim(&id("acme/a")).await.unwrap().unwrap();
    store.delete(&id("acme/a"), &held, None, Vec::new()).await.unwrap();
    gate.deleted(&tenant("acme"));
    assert!(gate.admit_conversation(&id("acme/b"), quotas).await.is_ok());
    let lowered = Quotas { conversations: Some(0), ..Quotas::default() };
    assert!(gate.admit_conversation(&id("acme/c"), lowered).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn what_another_node_creates_is_seen_within_seconds() {
    let (store, gate) = gate();
    let quotas = Quotas { conversations: Some(100), ..Quotas::default() };
    assert!(gate.admit_conversation(&id("acme/a"), quotas).await.is_ok());
    for number in 0..100 {
        create(&store, &format!("acme/{number}"), 0).await;
    }
    tokio::time::advance(REFRESH).await;
    // The first goes on with what was read before, and has it read again meanwhile.
    assert!(gate.admit_conversation(&id("acme/b"), quotas).await.is_ok());
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(gate.admit_conversation(&id("acme/c"), quotas).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn bytes_are_counted_before_they_are_stored() {
    let (store, gate) = gate();
    let quotas = Quotas { blob_bytes: Some(100), ..Quotas::default() };
    let (acme, globex) = (tenant("acme"), tenant("globex"));
    assert!(gate.admit_blob(&acme, quotas, 101).await.is_err());
    assert!(gate.admit_blob(&acme, quotas, 60).await.is_ok());
    assert_eq!(refusal(gate.admit_blob(&acme, quotas, 41).await), Some((429, 60)));
    assert!(gate.admit_blob(&acme, quotas, 40).await.is_ok());
    assert!(gate.admit_blob(&globex, quotas, 100).await.is_ok());
    // What was admitted and never stored is forgotten.
    let blob = Blob::new("text/plain", vec![0; 60]);
    store.put_blob(&Scoped::new(&acme, &blob.id()), &blob).await.unwrap();
    tokio::time::advance(REFRESH).await;
    assert!(gate.admit_blob(&acme, quotas, 40).await.is_ok());
    assert!(gate.admit_blob(&acme, quotas, 1).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn messages_are_refused_until_midnight_once_the_tokens_are_used() {
    let (store, gate) = gate();
    let quotas = Quotas { tokens_per_day: Some(100), ..Quotas::default() };
    let acme = tenant("acme");
    create(&store, "acme/a", 99).await;
    assert!(gate.admit_turn(&acme, quotas).await.is_ok());
    create(&store, "acme/b", 1).await;
    create(&store, "globex/b", 1).await;
    tokio::time::advance(REFRESH).await;
    assert_eq!(refusal(gate.admit_turn(&acme, quotas).await), Some((429, 12 * 3_600)));
    assert!(gate.admit_turn(&tenant("globex"), quotas).await.is_ok());
    let raised = Quotas { tokens_per_day: Some(101), ..Quotas::default() };
    assert!(gate.admit_turn(&acme, raised).await.is_ok());
    let none = Quotas { tokens_per_day: Some(0), ..Quotas::default() };
    assert!(gate.admit_turn(&tenant("new"), none).await.is_err());
}

#[test]
fn a_day_ends_at_midnight() {
    let day = Date::constant(2027, 1, 15);
    let second = |text: &str| text.parse::<Timestamp>().unwrap().as_second();
    assert_eq!(seconds_until_end(day, second("2027-01-15T00:00:00Z")), 86_400);
    assert_eq!(seconds_until_end(day, second("2027-01-15T23:59:59.999Z")), 1);
    assert_eq!(seconds_until_end(day, second("2027-01-16T00:00:00Z")), 1);
}
