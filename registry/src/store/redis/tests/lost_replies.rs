//! Every script whose reply was lost is repeated, and takes effect once.

use std::collections::BTreeSet;
use std::sync::Arc;

use abide_actors::blobs::{Blob, Blobs};
use abide_actors::journal::{InboxFilter, Journal, StoreError};
use abide_actors::usage_counts::{UsageCounts, day_of};
use abide_conversation::remembered_decision::{Match, RememberedDecision};
use abide_conversation::{DecisionId, Event, Principal, Seq};

use super::super::super::conformance::*;
use super::super::super::{
    StagedJournal, Staging, Store, StoredAgent, TenantCounts, UsageBy, UsageQuery,
};
use super::super::command::keys::Tag;
use super::super::{Durability, Redis};
use super::members::{member, names};
use super::proxy::Proxy;
use super::servers::Server;
use crate::membership::{Membership, MembershipStatus};

/// Two stores on one server, of which the second connects through the proxy.
async fn open_direct_and_lossy() -> (Server, Redis, Proxy, Redis) {
    let server = Server::start(&["--appendfsync", "no"]).await;
    let direct = Redis::open(&server.url(), Durability::Os).await.unwrap();
    let proxy = Proxy::to(server.port).await;
    let mut lossy = Redis::open(&proxy.url(), Durability::Os).await.unwrap();
    // A reply that is lost must be one of the test's own.
    lossy._watching.abort_all();
    (server, direct, proxy, lossy)
}

/// Runs the call once, so that the server knows the script and the connection is open, then again
/// with a lost reply.
async fn repeat_after_lost_reply<T>(
    proxy: &Proxy,
    mut call: impl AsyncFnMut(&'static str) -> T,
) -> T {
    call("warm").await;
    proxy.lose_next_reply();
    let outcome = call("a").await;
    assert!(proxy.has_lost_reply());
    outcome
}

#[tokio::test]
async fn a_repeated_append_recognises_its_own_commit() {
    let (_server, direct, proxy, lossy) = open_direct_and_lossy().await;
    let mut whole = commit(1, 3);
    whole.summary.alarm = Some(at(60));
    whole.opened.push(pending_call("call_1", 1, 60));
    whole.responses.push(response("key:1", "yes", 60));
    whole.usage = Some(UsageCounts { turns: 1, ..Default::default() });
    let appended = repeat_after_lost_reply(&proxy, async |name| {
        let held = claim_conversation(&direct, name).await;
        lossy.append(&id(name), &held, whole.clone()).await
    });
    assert_eq!(appended.await, Ok(()));
    assert_eq!(direct.events(&id("a"), Seq::ZERO, 9).await.unwrap(), *whole.events);
    let (first, last) = (day_of(at(0)), day_of(at(0)));
    let (by, after) = (UsageBy::Agent, None);
    let query = UsageQuery { tenant: own(), first, last, by, after, limit: 1 };
    let total = direct.usage(&query).await.unwrap().total;
    assert_eq!(total.turns, 2, "once for each conversation");
    let inbox = InboxFilter { conversation: Some(id("a").local()), ..Default::default() };
    assert_eq!(direct.inbox(&own(), &inbox, None, 9).await.unwrap().items.len(), 1);
    let held = direct.current_claim(&id("a")).await.unwrap().unwrap();
    assert_eq!(lossy.append(&id("a"), &held, commit(4, 4)).await, Ok(()));
}

#[tokio::test]
async fn a_repeated_slice_or_publication_of_an_import_takes_effect_once() {
    let (server, direct, proxy, lossy) = open_direct_and_lossy().await;
    let aside = |name: &str, last_seq: u64| StagedJournal {
        id: id(name),
        import: "i".to_owned(),
        last_seq: Seq::new(last_seq),
        blobs: BTreeSet::new(),
    };
    let events = |first: u64, last: u64| (first..=last).map(event).collect::<Arc<[Event]>>();
    let staged = repeat_after_lost_reply(&proxy, async |name| {
        lossy.stage(&aside(name, 0), events(1, 3)).await
    });
    assert_eq!(staged.await, Ok(()));
    for name in ["warm", "a"] {
        assert_eq!(lossy.stage(&aside(name, 3), events(4, 5)).await, Ok(()));
    }
    let published = repeat_after_lost_reply(&proxy, async |name| {
        let held = claim_conversation(&direct, name).await;
        lossy.publish(&aside(name, 5), &held, commit(6, 6)).await
    });
    assert_eq!(published.await, Ok(()));
    assert_eq!(direct.events(&id("a"), Seq::ZERO, 9).await.unwrap(), *events(1, 6));
    // What was aside would have expired.
    let expires_in: i64 = server.ask(&["TTL", &Tag::of(&id("a")).key_of("j", "a")]).await;
    assert_eq!(expires_in, -1);
}

#[tokio::test]
async fn a_repeated_claim_deletion_or_release_takes_effect_once() {
    let (_server, direct, proxy, lossy) = open_direct_and_lossy().await;
    let claim = async |name| lossy.claim(&id(name), &holder("n"), None).await.unwrap();
    let held = repeat_after_lost_reply(&proxy, claim).await;
    assert_eq!(direct.current_claim(&id("a")).await, Ok(Some(held.clone())));
    let taken = repeat_after_lost_reply(&proxy, async |name| {
        lossy.claim(&id(name), &holder("m"), Some(&holder("n"))).await.unwrap()
    });
    let taken = taken.await;
    assert_eq!((&taken.holder, taken.epoch), (&holder("m"), held.epoch.next()));

    let deleted = repeat_after_lost_reply(&proxy, async |name| {
        let held = direct.current_claim(&id(name)).await.unwrap().unwrap();
        direct.append(&id(name), &held, commit(1, 2)).await.unwrap();
        lossy.delete(&id(name), &held, Some(response("key:1", "gone", 60)), Vec::new()).await
    });
    assert_eq!(deleted.await, Ok(()));
    assert_eq!(direct.summary(&id("a")).await, Ok(None));
    assert!(direct.stored_response(&scope_of("a"), "key:1", at(0)).await.unwrap().is_some());

    let released = repeat_after_lost_reply(&proxy, async |name| {
        let held = claim_conversation(&direct, name).await;
        lossy.release(&id(name), &held).await
    });
    assert_eq!(released.await, Ok(()));
    assert_eq!(direct.current_claim(&id("a")).await, Ok(None));
}

#[tokio::test]
async fn a_repeated_reservation_recognises_its_own_key() {
    let (_server, direct, proxy, lossy) = open_direct_and_lossy().await;
    let reserve =
        async |name| lossy.reserve(&scope_of_agent(name), response("key:1", "x", 60), at(0)).await;
    assert_eq!(repeat_after_lost_reply(&proxy, reserve).await, Ok(true));
    assert_eq!(
        direct.reserve(&scope_of_agent("a"), response("key:1", "x", 60), at(0)).await,
        Ok(false)
    );
}

#[tokio::test]
async fn a_repeated_creation_or_deletion_of_an_agent_is_reported_as_the_first() {
    let (_server, direct, proxy, lossy) = open_direct_and_lossy().await;
    let agent = |name: &str| StoredAgent {
        name: abide_conversation::AgentName::new(name),
        revision: abide_conversation::Revision::new("r1"),
        definition: serde_json::json!({}),
        put_at: None,
    };
    let put = async |name| lossy.put_agent(&own(), agent(name), None).await;
    assert_eq!(repeat_after_lost_reply(&proxy, put).await, Ok(true));
    let delete = async |name| lossy.delete_agent(&scoped(name), None).await;
    assert_eq!(repeat_after_lost_reply(&proxy, delete).await, Ok(true));
    assert_eq!(direct.agents(&own()).await, Ok(vec![]));
}

#[tokio::test]
async fn a_repeated_upload_or_removal_of_a_blob_is_reported_as_the_first() {
    let (_server, direct, proxy, lossy) = open_direct_and_lossy().await;
    let blob = |name: &str| Blob::new("text/plain", name.to_owned());
    let put = async |name| lossy.put_blob(&blob_id(&blob(name)), &blob(name)).await;
    assert_eq!(repeat_after_lost_reply(&proxy, put).await, Ok(true));
    assert_eq!(lossy.put_blob(&blob_id(&blob("a")), &blob("a")).await, Ok(false));
    assert_eq!(direct.blob_bytes(&own()).await, Ok(5), "each is counted once");
    let remove = async |name| lossy.delete_blob(&blob_id(&blob(name))).await;
    assert_eq!(repeat_after_lost_reply(&proxy, remove).await, Ok(true));
    assert_eq!(lossy.delete_blob(&blob_id(&blob("a"))).await, Ok(false));
    assert_eq!(direct.blob(&blob_id(&blob("a"))).await, Ok(None));
    assert_eq!(direct.blob_bytes(&own()).await, Ok(0));
}

#[tokio::test]
async fn a_repeated_change_of_a_decision_is_reported_as_the_first() {
    let (server, direct, proxy, lossy) = open_direct_and_lossy().await;
    let agent = scoped("demo");
    let decision = |id: &str| RememberedDecision {
        id: DecisionId::new(id),
        tool: "send".to_owned(),
        tool_digest: String::new(),
        approved: true,
        matching: Match::Tool,
        fingerprint: String::new(),
        by: Principal::new("ann"),
        voters: Vec::new(),
        expires_at: at(60),
    };
    let set =
        async |id| lossy.set_decision(&agent, &DecisionId::new(id), Some(&decision(id))).await;
    assert_eq!(repeat_after_lost_reply(&proxy, set).await, Ok(false));
    assert_eq!(direct.decisions(&agent).await.unwrap().len(), 2);
    let forget =
        async |id: &'static str| lossy.set_decision(&agent, &DecisionId::new(id), None).await;
    assert_eq!(repeat_after_lost_reply(&proxy, forget).await, Ok(true));
    assert_eq!(direct.decisions(&agent).await, Ok(vec![]));
    // What is kept for repeats goes by itself.
    let kept: Vec<String> = server.ask(&["KEYS", "abide:{agents}:done:*"]).await;
    assert_eq!(kept.len(), 4);
    for key in kept {
        let seconds: i64 = server.ask(&["TTL", &key]).await;
        assert!((1..=60).contains(&seconds), "{key}: {seconds}");
    }
}

#[tokio::test]
async fn a_repeated_entry_renewal_or_death_takes_effect_once() {
    let (_server, direct, proxy, lossy) = open_direct_and_lossy().await;
    let entered = repeat_after_lost_reply(&proxy, async |name| {
        lossy.enter(&member(name, "1", 5_000)).await.unwrap()
    });
    assert_eq!(names(&entered.await), ["a", "warm"]);
    let renewed = repeat_after_lost_reply(&proxy, async |name| {
        lossy.renew(&member(name, "1", 5_000)).await.unwrap()
    });
    assert_eq!(names(&renewed.await), ["a", "warm"]);
    let declared_dead = repeat_after_lost_reply(&proxy, async |name| {
        lossy.declare_dead_if(&member(name, "1", 0).holder, true).await
    });
    assert_eq!(declared_dead.await, Ok(true));
    assert_eq!(direct.renew(&member("a", "1", 5_000)).await, Ok(MembershipStatus::Evicted));
}

#[tokio::test]
async fn a_connection_that_hangs_is_replaced() {
    let (_server, _direct, proxy, lossy) = open_direct_and_lossy().await;
    let lossy: Arc<dyn Store> = Arc::new(lossy);
    let held = create_conversation(&*lossy, "a").await;
    proxy.hang(true);
    let refused = lossy.append(&id("a"), &held, commit(2, 2)).await;
    assert!(
        matches!(refused, Err(abide_actors::journal::StoreError::Unavailable(_))),
        "{refused:?}"
    );
    proxy.hang(false);
    // It took effect although its reply was lost: the journal has moved on.
    assert_eq!(lossy.load(&id("a")).await.unwrap().unwrap().events.len(), 2);
    assert_eq!(lossy.append(&id("a"), &held, commit(3, 3)).await, Ok(()));
}

/// The caller has asked a former primary, which did not have the first answer.
#[tokio::test]
async fn a_commit_with_an_answer_whose_key_is_kept_is_refused_and_writes_nothing() {
    let server = Server::start(&["--appendfsync", "no"]).await;
    let store = Redis::open(&server.url(), Durability::Os).await.unwrap();
    let held = claim_conversation(&store, "a").await;
    let answered = |seq: u64, keys: &[&str]| {
        let mut commit = commit(seq, seq);
        commit.responses = keys.iter().map(|key| response(key, "one", 60)).collect();
        commit
    };
    store.append(&id("a"), &held, answered(1, &["key:1"])).await.unwrap();
    let again = store.append(&id("a"), &held, answered(2, &["key:2", "key:1"])).await;
    assert_eq!(again, Err(StoreError::Fenced));
    assert_eq!(store.events(&id("a"), Seq::ZERO, 9).await.unwrap().len(), 1);
    store.append(&id("a"), &held, answered(2, &["key:2"])).await.unwrap();
}
