//! The node dies while it imports: nobody sees a conversation that is not whole, and a repeat of the
//! request makes it.

use abide_tests::client::Client;
use abide_tests::journal::Journal;
use abide_tests::node::{Node, Site};
use abide_tests::random::SeededRandom;
use abide_tests::redis::Redis;
use futures::stream;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::agent;

/// Enough for several commits of an import, each of at most 256 events.
const TURNS: usize = 160;
const ROUNDS: usize = 6;
const SEED: u64 = 20_261_126;

/// The lines of a long conversation.
async fn exported() -> (Journal, Vec<String>) {
    let site = Site::new(ABIDE).with(&["--durability", "os"]);
    let _node = site.start().await;
    let client = &site.client;
    let echo = json!({"provider": "scripted", "script": [{"text": "{{ user }}"}]});
    client.define("a", &agent(echo, vec![])).await;
    for number in 0..TURNS {
        let message = json!({"agent": "a", "text": format!("message {number}")});
        let sent = client.post("/v1/conversations/c/messages?wait=30s", &message).await;
        assert_eq!(sent.expect(200)["outcome"], "completed");
    }
    let journal = client.wait_until_settled("c", TURNS).await;
    let url = format!("http://{}/v1/conversations/c/export", client.public_address());
    let lines = reqwest::get(url).await.unwrap().text().await.unwrap();
    (journal, lines.lines().map(|line| format!("{line}\n")).collect())
}

/// Imports these lines under a key. `None` when no complete answer came.
async fn import(
    client: &Client,
    query: &str,
    key: &str,
    body: reqwest::Body,
) -> Option<(u16, Value)> {
    let address = client.public_address();
    let url = format!("http://{address}/v1/conversations/import{query}");
    let request = reqwest::Client::new().post(url).header("Idempotency-Key", key);
    let answer = request.header("Content-Type", "application/x-ndjson").body(body).send().await;
    let answer = answer.ok()?;
    let status = answer.status().as_u16();
    Some((status, answer.json().await.ok()?))
}

/// A body of the first of these lines that never ends.
fn endless(lines: &[String]) -> reqwest::Body {
    let first: Vec<_> = lines.iter().cloned().map(Ok::<_, std::io::Error>).collect();
    reqwest::Body::wrap_stream(futures::StreamExt::chain(stream::iter(first), stream::pending()))
}

async fn ids(client: &Client) -> Vec<String> {
    let listed = client.get("/v1/conversations").await.expect(200);
    let rows = listed["conversations"].as_array().unwrap().iter();
    rows.map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

/// Kills the node while it imports, at another moment each time.
async fn kill_imports(site: Site, query: &str) {
    let (source, lines) = exported().await;
    let whole = lines.concat();
    let mut node: Node = site.start().await;
    let client = &site.client;
    let mut random = SeededRandom(SEED);
    for round in 0..ROUNDS {
        let key = format!("key-{round}");
        let before = ids(client).await;
        let cut = lines.len() * (round + 1) / (ROUNDS + 1);
        let body = if round % 2 == 0 { endless(&lines[..cut]) } else { whole.clone().into() };
        let dying = import(client, query, &key, body);
        let kill = async {
            // A random moment is the point: this waits for nothing.
            tokio::time::sleep(std::time::Duration::from_millis(random.below(120))).await;
            node.kill().await;
        };
        let (first, ()) = futures::join!(dying, kill);
        node = site.start().await;
        for id in ids(client).await.into_iter().filter(|id| !before.contains(id)) {
            let there = client.journal(&id).await;
            assert!(there.0.len() >= source.0.len(), "a part of {id} is seen");
        }
        let again = import(client, query, &key, whole.clone().into()).await.unwrap();
        assert_eq!(again.0, 201, "{:#}", again.1);
        assert!(first.is_none_or(|first| first == again), "the answer is the same");
        let id = again.1["id"].as_str().unwrap().to_owned();
        let repeated = import(client, query, &key, whole.clone().into()).await.unwrap();
        assert_eq!(repeated, again);
        assert_eq!(ids(client).await.len(), before.len() + 1, "there is one for each key");
        let journal = client.journal(&id).await;
        assert_eq!(journal.outcomes(), source.outcomes());
        if !query.is_empty() {
            assert_eq!(journal, source);
            let path = format!("/v1/conversations/{id}");
            client.ask(reqwest::Method::DELETE, &path, None, None).await.unwrap().expect(204);
        }
    }
}

#[tokio::test]
async fn an_import_that_dies_leaves_nothing_and_its_repeat_is_whole() {
    kill_imports(Site::new(ABIDE), "?keep_id=true").await;
}

#[tokio::test]
async fn a_copy_that_dies_leaves_nothing_and_its_repeat_is_whole() {
    kill_imports(Site::new(ABIDE), "").await;
}

#[tokio::test]
async fn an_import_that_dies_leaves_nothing_in_redis_either() {
    let redis = Redis::start().await;
    kill_imports(Site::new(ABIDE).with_store(redis.url()), "?keep_id=true").await;
}
