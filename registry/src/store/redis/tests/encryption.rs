//! Encryption at rest, in Redis.

use std::path::Path;
use std::sync::Arc;

use abide_actors::journal::{Journal, StoreError};
use abide_conversation::Seq;
use redis::Cmd;

use super::super::super::conformance::*;
use super::super::super::{Erasures, KeyRing, Lists, OperationLog, Store};
use super::super::command::keys::Tag;
use super::super::{Durability, OpenError, Redis};
use super::servers::{Server, words};

async fn start() -> Server {
    Server::start(&["--appendfsync", "no", "--rdbcompression", "no"]).await
}

async fn try_open(server: &Server, keys: &[u8]) -> Result<Redis, OpenError> {
    let ring = (!keys.is_empty()).then(|| key_ring(keys));
    Redis::open_encrypted(&server.url(), Durability::Os, ring).await
}

async fn open(server: &Server, keys: &[u8]) -> Redis {
    try_open(server, keys).await.unwrap()
}

async fn run<T: redis::FromRedisValue>(server: &Server, command: &Cmd) -> T {
    let client = redis::Client::open(("127.0.0.1", server.port)).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    command.query_async(&mut connection).await.unwrap()
}

fn key(name: &str, kind: &str) -> String {
    Tag::of(&id(name)).key_of(kind, id(name).as_str())
}

/// Whether a file of the server has the text.
fn is_in_files(dir: &Path, text: &str) -> bool {
    std::fs::read_dir(dir).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return is_in_files(&path, text);
        }
        let bytes = std::fs::read(path).unwrap();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

async fn event_of_journal(server: &Server, name: &str, index: i64) -> Vec<u8> {
    let mut command = words(&["LINDEX", &key(name, "j")]);
    command.arg(index);
    run(server, &command).await
}

async fn set_event(server: &Server, name: &str, index: i64, bytes: &[u8]) {
    let mut command = words(&["LSET", &key(name, "j")]);
    command.arg(index).arg(bytes);
    run::<()>(server, &command).await;
}

fn assert_unreadable<T: std::fmt::Debug>(read: Result<T, StoreError>) {
    assert!(matches!(read, Err(StoreError::Unreadable(_))), "{read:?}");
}

#[tokio::test]
async fn nothing_of_the_content_is_in_the_files_of_an_encrypted_server() {
    for (keys, is_found) in [([].as_slice(), true), (&[1], false)] {
        let server = start().await;
        let store = open(&server, keys).await;
        plant(&store, "a").await;
        plant_shared(&store).await;
        for store in [store, open(&server, keys).await] {
            assert_planted(&store, "a").await;
            assert_planted_shared(&store).await;
        }
        bury_planted(&open(&server, keys).await, "a").await;
        server.ask::<()>(&["SAVE"]).await;
        let dir: Vec<String> = server.ask(&["CONFIG", "GET", "dir"]).await;
        assert_eq!(is_in_files(Path::new(&dir[1]), SECRET), is_found);
    }
}

#[tokio::test]
async fn a_plain_value_that_was_changed_is_noticed_and_harms_no_other_conversation() {
    let server = start().await;
    let store = open(&server, &[]).await;
    for name in ["a", "b", "c"] {
        plant(&store, name).await;
    }
    set_event(&server, "a", 1, b"{\"seq\":").await;
    run::<()>(&server, &words(&["HSET", &key("b", "c"), "metadata", "{"])).await;
    assert_unreadable(store.events(&id("a"), Seq::ZERO, 9).await);
    assert_unreadable(store.summary(&id("b")).await);
    let listed = store.conversations(&own(), &Default::default(), None, 9).await.unwrap();
    assert_eq!(listed.items.len(), 3);
    let (_, damaged) = listed.items.iter().find(|(found, _)| *found == id("b")).unwrap();
    assert!(damaged.metadata.is_empty());
    assert_planted(&store, "c").await;
}

#[tokio::test]
async fn a_value_that_was_changed_or_moved_is_noticed_and_harms_no_other_conversation() {
    let server = start().await;
    let store = open(&server, &[1]).await;
    for name in ["a", "b", "c", "d", "e"] {
        plant(&store, name).await;
    }
    let mut changed = event_of_journal(&server, "a", 1).await;
    changed[20] ^= 1;
    set_event(&server, "a", 1, &changed).await;
    set_event(&server, "b", 1, &event_of_journal(&server, "c", 1).await).await;
    set_event(&server, "d", 1, &event_of_journal(&server, "d", 0).await).await;
    for store in [store, open(&server, &[1]).await] {
        for name in ["a", "b", "d"] {
            assert_unreadable(store.events(&id(name), Seq::ZERO, 9).await);
        }
        assert_planted(&store, "c").await;
    }
    // The data key of another conversation does not unwrap here.
    let store = open(&server, &[1]).await;
    let wrapped: Vec<u8> = run(&server, &words(&["HGET", &key("c", "c"), "key"])).await;
    let mut command = words(&["HSET", &key("e", "c"), "key"]);
    command.arg(wrapped);
    run::<()>(&server, &command).await;
    assert_unreadable(store.claim_and_load(&id("e"), &holder("n"), Some(&holder("n"))).await);
    assert_unreadable(store.summary(&id("e")).await);
    let listed = store.conversations(&own(), &Default::default(), None, 9).await.unwrap().items;
    let listed: Vec<_> = listed.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(listed, ["a", "b", "c", "d", "e"]);
    let bare = store.conversations(&own(), &Default::default(), None, 9).await.unwrap().items;
    assert!(bare[4].1.metadata.is_empty() && !bare[3].1.metadata.is_empty());
    // Nor does it become what the list shows.
    assert_eq!(store.relist(&id("e"), &bare[4].1, &[]).await, Ok(true));
    assert_unreadable(store.summary(&id("e")).await);
    assert_planted(&store, "c").await;
}

#[tokio::test]
async fn an_encrypted_server_is_opened_only_with_its_keys() {
    let server = start().await;
    plant(&open(&server, &[1]).await, "a").await;
    let message = async |keys: &[u8]| match try_open(&server, keys).await {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    let without = message(&[]).await;
    assert!(without.contains("is encrypted (key k1), and --encrypt-key-file is not given"));
    assert!(message(&[2]).await.contains("uses the key k1, which --encrypt-key-file lacks"));
    let ring = KeyRing::parse(&key_file(&[2]).replace("k2", "k1")).unwrap();
    let wrong = Redis::open_encrypted(&server.url(), Durability::Os, Some(ring)).await;
    let wrong = wrong.err().unwrap().to_string();
    assert!(wrong.contains("the key k1 of --encrypt-key-file is not its key"), "{wrong}");
}

#[tokio::test]
async fn a_node_that_has_no_key_yet_reads_what_is_plain_and_changes_nothing_else() {
    let server = start().await;
    let old = open(&server, &[]).await;
    create_conversation(&old, "plain").await;
    let new = open(&server, &[1]).await;
    plant(&new, "sealed").await;
    assert_eq!(old.events(&id("plain"), Seq::ZERO, 9).await, Ok(vec![event(1)]));
    assert_unreadable(old.load(&id("sealed")).await);
    assert_unreadable(old.events(&id("sealed"), Seq::ZERO, 9).await);
    assert_unreadable(old.summary(&id("sealed")).await);
    let listed = old.conversations(&own(), &Default::default(), None, 9).await.unwrap().items;
    assert_eq!(listed.len(), 2);
    assert_planted(&new, "sealed").await;
    // What was plain is sealed from the next commit on.
    let dead = Some(holder("n"));
    let held = new.claim_and_load(&id("plain"), &holder("m"), dead.as_ref()).await.unwrap().claim;
    new.append(&id("plain"), &held, commit(2, 2)).await.unwrap();
    assert_eq!(new.events(&id("plain"), Seq::ZERO, 9).await, Ok(vec![event(1), event(2)]));
    assert_eq!(event_of_journal(&server, "plain", 0).await[0], b'{');
    assert_eq!(event_of_journal(&server, "plain", 1).await[0], 1);
    assert_unreadable(old.events(&id("plain"), Seq::ZERO, 9).await);
}

#[tokio::test]
async fn after_a_rotation_the_old_key_is_not_needed_by_the_server() {
    let server = start().await;
    let first = open(&server, &[1, 2]).await;
    plant(&first, "a").await;
    plant(&first, "acme/a").await;
    plant_shared(&first).await;
    let store = open(&server, &[2, 1]).await;
    let done = store.rewrap().await.unwrap().unwrap();
    assert_eq!((done.conversations, done.rewrapped, done.unreadable), (2, 2, 0));
    assert_eq!(done.retired, ["k1"]);
    let again = store.rewrap().await.unwrap().unwrap();
    assert_eq!((again.rewrapped, again.retired), (0, vec![]));
    let last = open(&server, &[2]).await;
    // A node that still has both keys goes on.
    for store in [&first, &last] {
        assert_planted(store, "a").await;
        assert_planted_shared(store).await;
    }
    assert!(try_open(&server, &[1]).await.is_err());
    let held = last.claim_and_load(&id("a"), &holder("m"), Some(&holder("n"))).await.unwrap().claim;
    last.append(&id("a"), &held, commit(3, 3)).await.unwrap();
    assert_eq!(last.events(&id("a"), Seq::ZERO, 9).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_key_that_a_damaged_conversation_may_need_is_not_retired() {
    let server = start().await;
    let store = open(&server, &[1, 2]).await;
    plant(&store, "a").await;
    plant(&store, "b").await;
    let command = |verb| words(&[verb, &key("a", "c"), "key"]);
    let mut wrapped: Vec<u8> = run(&server, &command("HGET")).await;
    *wrapped.last_mut().unwrap() ^= 1;
    let mut damage = command("HSET");
    damage.arg(wrapped);
    run::<u64>(&server, &damage).await;
    let done = open(&server, &[2, 1]).await.rewrap().await.unwrap().unwrap();
    assert_eq!((done.rewrapped, done.unreadable), (1, 1));
    assert_eq!(done.retired, [""; 0], "what is damaged is wrapped by k1");
}

#[tokio::test]
async fn a_key_of_a_former_life_of_a_conversation_seals_nothing_of_the_next() {
    let server = start().await;
    let (one, other) = (open(&server, &[1]).await, open(&server, &[1]).await);
    create_conversation(&one, "a").await;
    let held = other.claim(&id("a"), &holder("m"), Some(&holder("n"))).await.unwrap();
    other.delete(&id("a"), &held, None, Vec::new()).await.unwrap();
    let held = other.claim(&id("a"), &holder("m"), None).await.unwrap();
    other.append(&id("a"), &held, commit(1, 1)).await.unwrap();
    other.release(&id("a"), &held).await.unwrap();
    let held = claim_conversation(&one, "a").await;
    one.append(&id("a"), &held, commit(2, 2)).await.unwrap();
    let events = other.events(&id("a"), Seq::ZERO, 9).await;
    assert_eq!(events, Ok(vec![event(1), event(2)]));
}

#[tokio::test]
async fn nodes_that_start_at_once_agree_on_the_data_key_of_the_store() {
    let server = start().await;
    let opening = (0..8).map(|_| try_open(&server, &[1]));
    let stores = futures::future::join_all(opening).await;
    let stores: Vec<Arc<Redis>> = stores.into_iter().map(|it| Arc::new(it.unwrap())).collect();
    plant_shared(&*stores[0]).await;
    for store in &stores {
        assert_planted_shared(&**store).await;
    }
}

#[tokio::test]
async fn a_conversation_that_was_lost_and_created_again_is_sealed_by_the_key_that_is_stored() {
    let server = start().await;
    let store = open(&server, &[1]).await;
    create_conversation(&store, "a").await;
    // A fail-over takes the conversation back; the same claim is won again.
    server.ask::<()>(&["DEL", &key("a", "c"), &key("a", "j")]).await;
    create_conversation(&store, "a").await;
    let other = open(&server, &[1]).await;
    assert_eq!(other.events(&id("a"), Seq::ZERO, 9).await, Ok(vec![event(1)]));
}

/// What the keys have that `rewrap` seals, without those that have only names and times.
async fn values_to_seal(server: &Server) -> Vec<Vec<u8>> {
    let mut values = Vec::new();
    for hash in ["revisions", "acme/revisions", "webhooks"] {
        let of_hash: Vec<Vec<u8>> = run(server, &words(&["HVALS", &Tag::Agents.key(hash)])).await;
        values.extend(of_hash);
    }
    for chain in ["operations", "operations:default", "operations:acme"] {
        let key = Tag::Agents.key(chain);
        let of_chain: Vec<Vec<u8>> = run(server, &words(&["ZRANGE", &key, "0", "-1"])).await;
        values.extend(of_chain);
    }
    values
}

#[tokio::test]
async fn what_was_plain_and_belongs_to_no_conversation_is_read_and_sealed_by_a_pass() {
    let server = start().await;
    let planted = plant_plain_or_sealed(&open(&server, &[]).await).await;
    let store = open(&server, &[1]).await;
    assert_plain_or_sealed(&store).await;
    let values = values_to_seal(&server).await;
    assert_eq!(values.len() as u64, planted);
    assert!(values.iter().all(|value| value[0] == b'{'));
    assert_eq!(store.rewrap().await.unwrap().unwrap().sealed, planted);
    let values = values_to_seal(&server).await;
    assert_eq!(values.len() as u64, planted);
    assert!(values.iter().all(|value| value[0] == 2), "sealed by the store's data key");
    for store in [&store, &open(&server, &[1]).await] {
        assert_plain_or_sealed(store).await;
    }
    assert_eq!(store.rewrap().await.unwrap().unwrap().sealed, 0);
    // Another key of the file changes nothing of that.
    let rotated = open(&server, &[2, 1]).await;
    assert_eq!(rotated.rewrap().await.unwrap().unwrap().sealed, 0);
    assert_plain_or_sealed(&open(&server, &[2]).await).await;
}

#[tokio::test]
async fn a_pass_finds_a_tenant_that_has_only_agents() {
    let server = start().await;
    plant_agents_alone(&open(&server, &[]).await).await;
    let store = open(&server, &[1]).await;
    assert_eq!(store.rewrap().await.unwrap().unwrap().sealed, 2);
    let key = Tag::Agents.key("alone/revisions");
    let values: Vec<Vec<u8>> = run(&server, &words(&["HVALS", &key])).await;
    assert_eq!(values.iter().map(|value| value[0]).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(store.rewrap().await.unwrap().unwrap().sealed, 0);
}

#[tokio::test]
async fn a_pass_does_not_bring_back_what_an_erasure_has_taken_out_of_the_audit() {
    let server = start().await;
    let store = open(&server, &[]).await;
    plant_plain_or_sealed(&store).await;
    let plain = store.entries_after(None, 0, 1).await.unwrap().remove(0);
    let entry = store.operations(None, 0, 1).await.unwrap().remove(0);
    let redacted = entry.redacted(SECRET, &abide_conversation::ErasureId::new("er_1")).unwrap();
    store.replace_operation(None, &redacted).await.unwrap();
    // The pass has read the entry before.
    assert_eq!(store.replace_entry(None, plain.0, &plain.1, b"{}").await, Ok(false));
    let store = open(&server, &[1]).await;
    store.rewrap().await.unwrap();
    assert_eq!(store.operations(None, 0, 1).await.unwrap(), [redacted]);
}
