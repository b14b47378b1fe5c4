//! The suite against one server, and the store's behaviour when the server goes away or refuses.

use std::sync::Arc;

use abide_actors::blobs::{Blob, Blobs};
use abide_actors::journal::{Journal, StoreError, StoredResponse};
use abide_conversation::{AgentName, Revision, Seq, State, Timestamp};

use super::super::super::conformance::*;
use super::super::super::{Compression, Store, StoredAgent};
use super::super::command::keys::Tag;
use super::super::{Durability, Redis, RedisUrl};
use super::load::Load;
use super::members::{member, names};
use super::servers::{Server, wait_until, words};
use crate::membership::{Membership, MembershipStatus};

/// The server of `TEST_REDIS_URL`, whose database must be empty, or a server of the test's own.
struct Single {
    url: RedisUrl,
    store: Arc<Redis>,
    /// Whether each store that is handed out is encrypted, and how it compresses.
    is_encrypted: bool,
    compression: Compression,
    _own: Option<Server>,
}

impl Single {
    async fn start() -> Self {
        let (url, own): (RedisUrl, _) = match std::env::var("TEST_REDIS_URL") {
            Ok(url) => (url.parse().unwrap(), None),
            Err(_) => {
                let own = Server::start(&["--appendfsync", "no"]).await;
                (own.url(), Some(own))
            }
        };
        let size: u64 = query(&url, &["DBSIZE"]).await;
        assert_eq!(size, 0, "the database at {url} is not empty; its data would be lost");
        let store = Arc::new(Redis::open(&url, Durability::Os).await.unwrap());
        Self { url, store, is_encrypted: false, compression: Compression::None, _own: own }
    }

    async fn start_as(is_encrypted: bool, compression: Compression) -> Self {
        Self { is_encrypted, compression, ..Self::start().await }
    }

    async fn fresh(&self) -> Arc<dyn Store> {
        query::<()>(&self.url, &["FLUSHDB"]).await;
        if !self.is_encrypted && self.compression == Compression::None {
            return Arc::clone(&self.store) as Arc<dyn Store>;
        }
        let keys = self.is_encrypted.then(|| key_ring(&[1]));
        let store = Redis::open_encrypted(&self.url, Durability::Os, keys).await.unwrap();
        Arc::new(store.with_compression(self.compression))
    }
}

async fn query<T: redis::FromRedisValue>(url: &RedisUrl, command: &[&str]) -> T {
    let client = redis::Client::open(url.server(&url.hosts()[0]).unwrap()).unwrap();
    let mut server = client.get_multiplexed_async_connection().await.unwrap();
    words(command).query_async(&mut server).await.unwrap()
}

conformance!(as one: a_server_keeps_every_promise, Single::start().await);
conformance!(as one: an_encrypted_server_keeps_every_promise,
    Single::start_as(true, Compression::None).await);
conformance!(as one: a_compressing_server_keeps_every_promise,
    Single::start_as(false, Compression::Zstd).await);
conformance!(as one: a_compressing_and_encrypted_server_keeps_every_promise,
    Single::start_as(true, Compression::Zstd).await);

async fn open(args: &[&str], durability: Durability) -> (Server, Arc<Redis>) {
    let server = Server::start(args).await;
    let store = Redis::open(&server.url(), durability).await.unwrap();
    (server, Arc::new(store))
}

pub(super) fn assert_unavailable<T: std::fmt::Debug>(outcome: Result<T, StoreError>, with: &str) {
    match outcome {
        Err(StoreError::Unavailable(why)) => assert!(why.contains(with), "{why}"),
        other => panic!("{other:?}"),
    }
}

/// A server that is behind when it is asked must not decide what the next commit changes.
#[tokio::test]
async fn what_a_conversation_is_indexed_by_after_another_event_is_not_known() {
    let (server, writing) = open(&["--appendfsync", "no"], Durability::Os).await;
    let held = claim_conversation(&*writing, "a").await;
    writing.append(&id("a"), &held, commit(1, 1)).await.unwrap();
    let reading = Redis::open(&server.url(), Durability::Os).await.unwrap();
    for (seq, is_unknown) in [(0, true), (1, false), (2, true)] {
        let row = reading.indexed_row(&id("a"), &held, Seq::new(seq)).await.unwrap();
        assert_eq!(row.is_unknown(), is_unknown, "{seq}");
    }
    let row = reading.indexed_row(&id("b"), &held, Seq::FIRST).await.unwrap();
    assert!(row.is_unknown(), "there is none");
}

#[tokio::test]
async fn a_killed_server_loses_nothing_acknowledged() {
    let (mut server, store) = open(&["--appendfsync", "always"], Durability::Fsync).await;
    let load = Load::start(Arc::clone(&store) as Arc<dyn Store>);
    for _ in 0..3 {
        load.wait_for_commits(20).await;
        server.kill();
        server.restart().await;
    }
    load.wait_for_commits(20).await;
    load.end_and_check(&*store).await;
}

#[tokio::test]
async fn a_server_that_is_away_is_unavailable_and_back_without_a_restart() {
    let (mut server, store) = open(&["--appendfsync", "always"], Durability::Fsync).await;
    let held = create_conversation(&*store, "a").await;
    server.kill();
    assert_unavailable(store.append(&id("a"), &held, commit(2, 2)).await, "");
    assert_unavailable(store.summary(&id("a")).await, "");
    server.restart().await;
    wait_until("the store is back", async || store.summary(&id("a")).await.is_ok()).await;
    assert_eq!(store.append(&id("a"), &held, commit(2, 2)).await, Ok(()));
}

#[tokio::test]
async fn a_server_that_restarts_empty_fences_all_holders() {
    let (mut server, store) = open(&["--appendfsync", "no"], Durability::Os).await;
    let held = create_conversation(&*store, "a").await;
    store.enter(&member("n", "1", 60_000)).await.unwrap();
    server.empty();
    server.restart().await;
    wait_until("the store is back", async || store.summary(&id("a")).await.is_ok()).await;
    assert_eq!(store.append(&id("a"), &held, commit(2, 2)).await, Err(StoreError::Fenced));
    assert_eq!(store.load(&id("a")).await, Ok(None));
    assert_eq!(store.renew(&member("n", "1", 60_000)).await, Ok(MembershipStatus::Evicted));
    let entered = store.enter(&member("n", "2", 60_000)).await.unwrap();
    assert_eq!(names(&entered), ["n"]);
    let other = store.claim(&id("a"), &holder("m"), None).await.unwrap();
    assert_eq!(store.append(&id("a"), &held, commit(1, 1)).await, Err(StoreError::Fenced));
    assert_eq!(store.append(&id("a"), &other, commit(1, 1)).await, Ok(()));
}

#[tokio::test]
async fn a_server_that_refuses_writes_has_written_nothing() {
    let (server, store) = open(&["--appendfsync", "no"], Durability::Os).await;
    let held = create_conversation(&*store, "a").await;
    let mut first = commit(2, 2);
    first.opened.push(pending_call("call_1", 1, 60));
    store.append(&id("a"), &held, first).await.unwrap();
    let mut whole = commit(3, 4);
    whole.closed.push(closed_suspension(&pending_call("call_1", 1, 60)));
    whole.summary.alarm = Some(at(60));
    whole.responses.push(response("key:1", "yes", 60));
    for (setting, refusing, usual, with) in
        [("min-replicas-to-write", "1", "0", "NOREPLICAS"), ("maxmemory", "1", "0", "OOM")]
    {
        server.ask::<()>(&["CONFIG", "SET", setting, refusing]).await;
        assert_unavailable(store.append(&id("a"), &held, whole.clone()).await, with);
        assert_eq!(store.summary(&id("a")).await, Ok(Some(commit(2, 2).summary)));
        assert_eq!(store.events(&id("a"), Seq::ZERO, 9).await.unwrap().len(), 2);
        assert_eq!(store.inbox(&own(), &Default::default(), None, 9).await.unwrap().items.len(), 1);
        if with == "NOREPLICAS" {
            assert_unavailable(store.delete(&id("a"), &held, None, Vec::new()).await, with);
        }
        assert_eq!(store.inbox(&own(), &Default::default(), None, 9).await.unwrap().items.len(), 1);
        server.ask::<()>(&["CONFIG", "SET", setting, usual]).await;
    }
    assert_eq!(store.append(&id("a"), &held, whole).await, Ok(()));
}

#[tokio::test]
async fn a_full_server_still_deletes_reads_and_keeps_its_members() {
    let (server, store) = open(&["--appendfsync", "no"], Durability::Os).await;
    let (me, other) = (member("n", "1", 60_000), member("m", "1", 60_000));
    store.enter(&me).await.unwrap();
    store.enter(&other).await.unwrap();
    let held_a = create_conversation(&*store, "a").await;
    let held_b = create_conversation(&*store, "b").await;
    let agent = StoredAgent {
        name: AgentName::new("demo"),
        revision: Revision::new("r1"),
        definition: serde_json::json!({}),
        put_at: None,
    };
    store.put_agent(&own(), agent.clone(), None).await.unwrap();
    let blob = Blob::new("text/plain", "one");
    store.put_blob(&blob_id(&blob), &blob).await.unwrap();
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await;

    // Nothing new gets in, and nothing is left of what was refused.
    assert_unavailable(store.append(&id("a"), &held_a, commit(2, 2)).await, "OOM");
    assert_unavailable(store.claim(&id("new"), &holder("n"), None).await, "OOM");
    assert_unavailable(store.claim_and_load(&id("new"), &holder("n"), None).await, "OOM");
    assert_eq!(store.current_claim(&id("new")).await, Ok(None));
    assert_unavailable(store.put_agent(&own(), agent.clone(), None).await, "OOM");
    let another = Blob::new("text/plain", "two");
    assert_unavailable(store.put_blob(&blob_id(&another), &another).await, "OOM");
    // The membership goes on.
    assert_eq!(names(&store.renew(&me).await.unwrap()), ["m", "n"]);
    assert_eq!(names(&store.enter(&member("o", "1", 60_000)).await.unwrap()), ["m", "n", "o"]);
    assert_eq!(store.declare_dead_if(&other.holder, true).await, Ok(true));
    // So do reads.
    assert_eq!(store.events(&id("a"), Seq::ZERO, 9).await.unwrap().len(), 1);
    assert_eq!(
        store.conversations(&own(), &Default::default(), None, 9).await.unwrap().items.len(),
        2
    );
    assert_eq!(store.blob(&blob_id(&blob)).await, Ok(Some(blob.clone())));
    assert_eq!(store.alarms(1).await, Ok(vec![]));
    // What is there can be claimed, released and deleted.
    store.release(&id("b"), &held_b).await.unwrap();
    let claimed = store.claim_and_load(&id("b"), &holder("m"), None).await.unwrap();
    assert_eq!(claimed.stored.unwrap().events.len(), 1);
    store.release(&id("b"), &claimed.claim).await.unwrap();
    let held_b = store.claim(&id("b"), &holder("n"), None).await.unwrap();
    for (name, held) in [("a", &held_a), ("b", &held_b)] {
        let gone = Some(response("key:1", "gone", 60));
        assert_eq!(store.delete(&id(name), held, gone.clone(), Vec::new()).await, Ok(()));
        assert_eq!(store.summary(&id(name)).await, Ok(None));
        assert_eq!(store.stored_response(&scope_of(name), "key:1", at(0)).await, Ok(gone));
    }
    assert_eq!(store.delete_blob(&blob_id(&blob)).await, Ok(true));
    assert_eq!(store.delete_agent(&scoped(agent.name.as_str()), None).await, Ok(true));
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]).await;
    create_conversation(&*store, "a").await;
}

#[tokio::test]
async fn a_value_that_cannot_be_parsed_is_unreadable_and_its_key_is_named() {
    fn assert_unreadable<T: std::fmt::Debug>(outcome: Result<T, StoreError>, with: &str) {
        match outcome {
            Err(StoreError::Unreadable(why)) => assert!(why.contains(with), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    let (server, store) = open(&["--appendfsync", "no"], Durability::Os).await;
    create_conversation(&*store, "a").await;
    let of = |kind: &str| Tag::of(&id("a")).key_of(kind, "a");
    server.ask::<()>(&["RPUSH", &of("j"), "{"]).await;
    server.ask::<()>(&["HSET", &of("a"), "key:1", "x {"]).await;
    assert_unreadable(store.events(&id("a"), Seq::ZERO, 9).await, &of("j"));
    assert_unreadable(store.load(&id("a")).await, &of("j"));
    assert_unreadable(store.stored_response(&scope_of("a"), "key:1", at(0)).await, &of("a"));
    server.ask::<()>(&["HSET", &of("c"), "head", "[]"]).await;
    assert_unreadable(store.summary(&id("a")).await, &of("c"));
    server.ask::<()>(&["SET", &of("c"), "x"]).await;
    assert_unavailable(store.summary(&id("a")).await, "WRONGTYPE");
    assert_unavailable(store.claim(&id("a"), &holder("n"), None).await, "WRONGTYPE");
}

#[tokio::test]
async fn a_cached_state_that_cannot_be_parsed_is_ignored() {
    let (server, store) = open(&["--appendfsync", "no"], Durability::Os).await;
    create_conversation(&*store, "a").await;
    let key = Tag::of(&id("a")).key_of("s", "a");
    let ahead = State { seq: Seq::new(99), ..State::default() };
    let ahead = format!("1 99 {}", serde_json::to_string(&ahead).unwrap());
    for cached in ["", "x", "1 1 {", "0 1 {}", "1 1 {}", &ahead] {
        server.ask::<()>(&["SET", &key, cached]).await;
        let loaded = store.load(&id("a")).await.unwrap().unwrap();
        assert_eq!(loaded.events.len(), 1, "{cached}");
        let claimed = store.claim_and_load(&id("a"), &holder("n"), None).await.unwrap();
        assert_eq!(claimed.stored, Some(loaded), "{cached}");
    }
}

#[tokio::test]
async fn the_responses_of_an_idle_conversation_expire_by_themselves() {
    let (server, store) = open(&["--appendfsync", "no"], Durability::Os).await;
    let tag = Tag::of(&id("a"));
    let held = claim_conversation(&*store, "a").await;
    let mut answered = commit(1, 1);
    answered.responses.push(response("key:1", "yes", 60));
    store.append(&id("a"), &held, answered).await.unwrap();
    for kind in ["a", "x"] {
        let seconds: i64 = server.ask(&["TTL", &tag.key_of(kind, "a")]).await;
        assert!(seconds > 24 * 60 * 60, "{kind}: {seconds}");
    }
    let mut second = commit(2, 2);
    Arc::make_mut(&mut second.events)[0].at = at(61);
    second.responses.push(response("key:2", "yes", 120));
    store.append(&id("a"), &held, second).await.unwrap();
    let kept: Vec<String> = server.ask(&["HKEYS", &tag.key_of("a", "a")]).await;
    assert_eq!(kept, ["key:2"]);
    let mut third = commit(3, 3);
    third
        .responses
        .push(StoredResponse { expires_at: Timestamp::MAX, ..response("key:3", "yes", 0) });
    third.responses.push(response("key:4", "yes", 60));
    store.append(&id("a"), &held, third).await.unwrap();
    let seconds: i64 = server.ask(&["TTL", &tag.key_of("a", "a")]).await;
    assert_eq!(seconds, -1);
}

#[tokio::test]
async fn the_responses_and_outcomes_of_an_agent_do_not_pile_up() {
    const DAY: i64 = 24 * 60 * 60;
    let (server, store) = open(&["--appendfsync", "no"], Durability::Os).await;
    let agent = StoredAgent {
        name: AgentName::new("demo"),
        revision: Revision::new("r1"),
        definition: serde_json::json!({}),
        put_at: None,
    };
    // What seeded an agent never expires, so that the keys do not, either.
    let seeded = StoredResponse { expires_at: Timestamp::MAX, ..response("seeded", "r1", 0) };
    store.put_agent(&own(), agent.clone(), Some(seeded)).await.unwrap();
    for day in 1..=20 {
        let stored = response(&format!("key:{day}"), "yes", (day + 1) * DAY);
        store.put_agent(&own(), agent.clone(), Some(stored)).await.unwrap();
    }
    let mut kept: Vec<String> = server.ask(&["HKEYS", "abide:{agents}:a:agents/demo"]).await;
    kept.sort();
    assert_eq!(kept, ["key:20", "seeded"]);
    let expiries: u64 = server.ask(&["ZCARD", "abide:{agents}:x:agents/demo"]).await;
    assert_eq!(expiries, 2);
    let outcomes: bool = server.ask(&["EXISTS", "abide:{agents}:outcomes"]).await;
    assert!(!outcomes, "outcomes are kept for a minute");
}
