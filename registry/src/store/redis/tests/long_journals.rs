//! Journals that take many pages.

use std::sync::Arc;

use abide_actors::journal::{Claim, Commit, Journal, StoredConversation};
use abide_conversation::{Event, Seq, State, replay};

use super::super::super::conformance::*;
use super::super::command::keys::Tag;
use super::super::connection::execute::Guarantee;
use super::super::journal::pages::PAGE_BYTES;
use super::super::{Durability, Redis};
use super::servers::Server;

const MIB: usize = 1 << 20;

async fn open() -> (Server, Redis) {
    let server = Server::start(&["--appendfsync", "no"]).await;
    let redis = Redis::open(&server.url(), Durability::Os).await.unwrap();
    (server, redis)
}

/// Creates the conversation `a` with one event of each of these lengths after the first.
async fn create(redis: &Redis, lengths: &[usize]) -> (Claim, Vec<Event>) {
    let held = claim_conversation(redis, "a").await;
    let mut journal = Vec::new();
    let seqs: Vec<u64> = (1..=lengths.len() as u64 + 1).collect();
    for seqs in seqs.chunks(100) {
        let (first, last) = (seqs[0], seqs[seqs.len() - 1]);
        let text = |seq: u64| "x".repeat(if seq == 1 { 0 } else { lengths[seq as usize - 2] });
        let events: Arc<[Event]> = (first..=last).map(|seq| event_of(seq, &text(seq))).collect();
        journal.extend(events.iter().cloned());
        redis.append(&id("a"), &held, Commit { events, ..commit(first, last) }).await.unwrap();
    }
    (held, journal)
}

/// How often the server was asked for this command since its statistics were reset.
async fn calls_of(server: &Server, command: &str) -> usize {
    let info: String = server.ask(&["INFO", "commandstats"]).await;
    let prefix = format!("cmdstat_{command}:calls=");
    let line = info.lines().find_map(|line| line.strip_prefix(&prefix));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

async fn page(redis: &Redis, epoch: &str, first: i64) -> Option<Vec<Vec<u8>>> {
    redis
        .call_paging(
            Redis::page_call(&id("a"), epoch, (first, i64::MAX), PAGE_BYTES),
            Guarantee::Unconfirmed,
        )
        .await
        .unwrap()
}

#[tokio::test]
async fn a_long_journal_without_a_readable_cache_is_read_whole() {
    let (server, redis) = open().await;
    let mut lengths = vec![2_000; 3_000];
    lengths.extend([MIB, MIB, 10, MIB, 100_000, 10]);
    let (held, journal) = create(&redis, &lengths).await;
    let whole = replay(State::default(), &journal);
    let key = Tag::of(&id("a")).key_of("s", "a");
    // As after a change of the format, and as if the cache were damaged.
    for cached in ["99 5 {}", "1 5 {"] {
        server.ask::<()>(&["SET", &key, cached]).await;
        server.ask::<()>(&["CONFIG", "RESETSTAT"]).await;
        let loaded = redis.load(&id("a")).await.unwrap().unwrap();
        let pages = calls_of(&server, "evalsha").await;
        assert!((50..500).contains(&pages), "{pages} pages");
        let StoredConversation { state, events, cached_seq } = loaded.clone();
        assert_eq!((replay(state, &events), cached_seq), (whole.clone(), Seq::ZERO));
        let claimed = redis.claim_and_load(&id("a"), &held.holder, None).await.unwrap();
        assert_eq!(claimed.stored, Some(loaded));
    }
    let all = redis.events(&id("a"), Seq::ZERO, usize::MAX).await.unwrap();
    assert!(all == journal, "all events, in order");
    let mut last = redis.events_before(&id("a"), Seq::new(9_999), 100).await.unwrap();
    last.reverse();
    assert!(last == journal[journal.len() - 100..], "the last events, in order");
}

#[tokio::test]
async fn a_usual_load_is_one_command() {
    let (server, redis) = open().await;
    let (held, journal) = create(&redis, &[3_000; 63]).await;
    server.ask::<()>(&["CONFIG", "RESETSTAT"]).await;
    assert_eq!(redis.load(&id("a")).await, Ok(Some(uncached(journal.clone()))));
    assert_eq!(calls_of(&server, "evalsha").await, 1);
    let claimed = redis.claim_and_load(&id("a"), &held.holder, None).await.unwrap();
    assert_eq!(claimed.stored, Some(uncached(journal.clone())));
    assert_eq!(redis.events(&id("a"), Seq::ZERO, 256).await, Ok(journal));
    assert_eq!(calls_of(&server, "evalsha").await, 3);
}

#[tokio::test]
async fn a_page_ends_a_few_events_past_its_bytes() {
    let (_server, redis) = open().await;
    let mut lengths = vec![100; 500];
    lengths.extend([MIB; 40]);
    create(&redis, &lengths).await;
    let (mut first, mut longest) = (0, 0);
    loop {
        let page = page(&redis, "", first).await.unwrap();
        if page.is_empty() {
            break;
        }
        first += page.len() as i64;
        longest = longest.max(page.iter().map(Vec::len).sum());
    }
    assert_eq!(first, 541);
    assert!(longest <= PAGE_BYTES + 8 * (MIB + 200), "{longest} bytes in one answer");
}

#[tokio::test]
async fn a_conversation_that_is_created_again_gives_no_page_to_a_read_of_the_former_one() {
    let (_server, redis) = open().await;
    let (held, _) = create(&redis, &[10; 30]).await;
    let epoch = held.epoch.get().to_string();
    assert_eq!(page(&redis, &epoch, 20).await.map(|page| page.len()), Some(11));
    redis.delete(&id("a"), &held, None, Vec::new()).await.unwrap();
    assert_eq!(page(&redis, &epoch, 20).await, None);
    create(&redis, &[10; 30]).await;
    assert_eq!(page(&redis, &epoch, 20).await, None);
}
