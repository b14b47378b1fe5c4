//! Compression of what is stored, in Redis.

use std::sync::Arc;

use abide_actors::journal::{Commit, Journal, StoreError};
use abide_conversation::Seq;
use redis::FromRedisValue;

use super::super::super::compression::MIN_BYTES;
use super::super::super::conformance::*;
use super::super::super::{Compression, Lists};
use super::super::command::keys::Tag;
use super::super::{Durability, Redis};
use super::members::member;
use super::servers::Server;
use crate::membership::{Member, Membership};

async fn start() -> Server {
    Server::start(&["--appendfsync", "no"]).await
}

async fn open(server: &Server, compression: Compression, keys: &[u8]) -> Redis {
    let ring = (!keys.is_empty()).then(|| key_ring(keys));
    let opened = Redis::open_encrypted(&server.url(), Durability::Os, ring).await;
    opened.unwrap().with_compression(compression)
}

/// Asks about the key of this kind of the conversation.
async fn ask<T: FromRedisValue>(server: &Server, of: (&str, &str), command: &[&[u8]]) -> T {
    let (name, kind) = of;
    let key = Tag::of(&id(name)).key_of(kind, id(name).as_str());
    let (verb, rest) = command.split_first().unwrap();
    let client = redis::Client::open(("127.0.0.1", server.port)).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut command = redis::Cmd::new();
    command.arg(*verb).arg(key).arg(rest);
    command.query_async(&mut connection).await.unwrap()
}

/// The events, the state, the listing, and the inbox entry of a planted conversation.
async fn stored_values(server: &Server, name: &str) -> Vec<Vec<u8>> {
    let mut values: Vec<Vec<u8>> = ask(server, (name, "j"), &[b"LRANGE", b"0", b"-1"]).await;
    let state: Vec<u8> = ask(server, (name, "s"), &[b"GET"]).await;
    let json = state.iter().enumerate().filter(|(_, byte)| **byte == b' ').nth(1).unwrap().0 + 1;
    values.push(state[json..].to_vec());
    values.push(ask(server, (name, "c"), &[b"HGET", b"listing"]).await);
    let inbox: Vec<Vec<u8>> = ask(server, (name, "o"), &[b"HVALS"]).await;
    values.extend(inbox);
    values
}

/// The magic number of zstd begins with it.
const FRAME: u8 = b'(';

fn bytes(values: &[Vec<u8>]) -> usize {
    values.iter().map(Vec::len).sum()
}

#[tokio::test]
async fn every_value_of_a_conversation_is_compressed_and_read_by_every_node() {
    let server = start().await;
    let plain = open(&server, Compression::None, &[]).await;
    let compressing = open(&server, Compression::Zstd, &[]).await;
    plant(&plain, "plain").await;
    plant(&compressing, "compressed").await;
    let values = stored_values(&server, "plain").await;
    assert!(values.iter().all(|value| value[0] == b'{'));
    let stored = stored_values(&server, "compressed").await;
    for (value, stored) in values.iter().zip(&stored) {
        assert_eq!(stored[0] == FRAME, value.len() >= MIN_BYTES, "{value:?}");
    }
    assert!(3 * bytes(&stored) < 2 * bytes(&values), "{} of {}", bytes(&stored), bytes(&values));
    for store in [&plain, &compressing] {
        assert_planted(store, "plain").await;
        assert_planted(store, "compressed").await;
    }
}

#[tokio::test]
async fn a_journal_goes_on_as_the_node_that_has_it_writes() {
    let server = start().await;
    let held = create_conversation(&open(&server, Compression::None, &[]).await, "a").await;
    let mut expected = vec![event(1)];
    let mut last = Some(held.holder);
    let forms = [("m", Compression::None), ("l", Compression::Zstd)];
    for (seq, (name, compression)) in (2..=5).zip(forms.into_iter().cycle()) {
        let store = open(&server, compression, &[]).await;
        let claimed = store.claim_and_load(&id("a"), &holder(name), last.as_ref()).await.unwrap();
        let next = event_of(seq, &"It did not answer, and so it is asked again. ".repeat(4));
        let events = Arc::from([next.clone()]);
        let commit = Commit { events, ..commit(seq, seq) };
        store.append(&id("a"), &claimed.claim, commit).await.unwrap();
        expected.push(next);
        assert_eq!(store.events(&id("a"), Seq::ZERO, 9).await, Ok(expected.clone()));
        last = Some(holder(name));
    }
    let stored: Vec<Vec<u8>> = ask(&server, ("a", "j"), &[b"LRANGE", b"1", b"-1"]).await;
    let first: Vec<u8> = stored.iter().map(|event| event[0]).collect();
    assert_eq!(first, [b'{', FRAME, b'{', FRAME]);
}

#[tokio::test]
async fn nothing_is_compressed_while_an_older_node_is_a_member() {
    const LEASE_MS: u64 = 60_000;
    let server = start().await;
    let store = open(&server, Compression::Zstd, &[]).await;
    let me = member("n", "1", LEASE_MS);
    let older = Member { stored_form_version: 0, ..member("m", "1", LEASE_MS) };
    store.enter(&me).await.unwrap();
    store.enter(&older).await.unwrap();
    for (name, is_compressed) in [("plain", false), ("compressed", true)] {
        store.renew(&me).await.unwrap();
        plant(&store, name).await;
        let stored = stored_values(&server, name).await;
        assert_eq!(stored.iter().any(|value| value[0] == FRAME), is_compressed, "{name}");
        store.leave(&older.holder).await.unwrap();
    }
}

/// Sealed first, nothing could be compressed.
#[tokio::test]
async fn what_is_sealed_was_compressed_before() {
    let server = start().await;
    let sealing = open(&server, Compression::None, &[1]).await;
    let both = open(&server, Compression::Zstd, &[1]).await;
    plant(&sealing, "sealed").await;
    plant(&both, "both").await;
    let (sealed, smaller) =
        (stored_values(&server, "sealed").await, stored_values(&server, "both").await);
    let is_sealed = |values: &[Vec<u8>]| values.iter().all(|value| matches!(value[0], 1 | 2));
    assert!(is_sealed(&sealed) && is_sealed(&smaller));
    assert!(3 * bytes(&smaller) < 2 * bytes(&sealed), "{} of {}", bytes(&smaller), bytes(&sealed));
    for store in [&sealing, &both] {
        assert_planted(store, "sealed").await;
        assert_planted(store, "both").await;
    }
}

#[tokio::test]
async fn a_damaged_value_is_noticed_and_harms_no_other_conversation() {
    let server = start().await;
    let store = open(&server, Compression::Zstd, &[]).await;
    for name in ["a", "b", "c"] {
        plant(&store, name).await;
    }
    let stored = stored_values(&server, "a").await;
    let frame = stored.iter().find(|value| value[0] == FRAME).unwrap();
    ask::<()>(&server, ("a", "j"), &[b"LSET", b"1", &frame[..frame.len() / 2]]).await;
    ask::<()>(&server, ("b", "c"), &[b"HSET", b"metadata", &frame[..4]]).await;
    let read = store.events(&id("a"), Seq::ZERO, 9).await;
    assert!(matches!(read, Err(StoreError::Unreadable(_))), "{read:?}");
    let read = store.summary(&id("b")).await;
    assert!(matches!(read, Err(StoreError::Unreadable(_))), "{read:?}");
    assert_planted(&store, "c").await;
    let listed = store.list(&own(), &Default::default(), None, 9).await.unwrap();
    assert_eq!(listed.items.len(), 3);
}
