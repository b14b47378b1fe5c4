//! The node dies during rewinds, messages that steer, exports, and while the index is rebuilt.

use std::time::Duration;

use abide_tests::deadline::poll;
use abide_tests::node::{Node, Site};
use abide_tests::random::SeededRandom;
use abide_tests::tool_server::ToolServer;
use reqwest::Method;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{agent, calls_once, http};

const ROUNDS: u64 = 8;
const SEED: u64 = 20_261_127;

fn echo() -> Value {
    agent(json!({"provider": "scripted", "script": [{"text": "{{ user }}"}]}), vec![])
}

/// Kills the node at some moment within these milliseconds.
async fn kill_within(random: &mut SeededRandom, millis: u64, node: Node) {
    // A random moment is the point: this waits for nothing.
    tokio::time::sleep(Duration::from_millis(random.below(millis))).await;
    node.kill().await;
}

#[tokio::test]
async fn a_rewind_is_done_once_whenever_the_node_dies() {
    let site = Site::new(ABIDE);
    let mut node = site.start().await;
    let client = &site.client;
    client.define("a", &echo()).await;
    let mut random = SeededRandom(SEED);
    for round in 0..ROUNDS {
        let message = json!({"agent": "a", "text": format!("m{round}")});
        let sent = client.post("/v1/conversations/c/messages?wait=30s", &message).await;
        assert_eq!(sent.expect(200)["outcome"], "completed");
        let key = format!("key-{round}");
        let (path, body) = ("/v1/conversations/c/rewind", json!({"to_seq": 1}));
        let rewind = async || client.ask(Method::POST, path, Some(&key), Some(&body)).await;
        let (first, ()) = futures::join!(rewind(), kill_within(&mut random, 12, node));
        node = site.start().await;
        let again = rewind().await.unwrap();
        assert_eq!(again.status, 200, "{:#}", again.body);
        assert!(first.is_none_or(|first| first == again), "the answer is the same");
        let journal = client.journal("c").await;
        journal.assert_sound();
        assert_eq!(journal.of("rewound").count() as u64, round + 1);
        let shown = client.get("/v1/conversations/c/messages").await.expect(200);
        assert_eq!(shown["messages"], json!([]));
    }
}

#[tokio::test]
async fn a_message_that_steers_is_read_once_whenever_the_node_dies() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let mut node = site.start().await;
    let client = &site.client;
    client.define("a", &calls_once(vec![http("look", &tools, "/slow", json!({}))])).await;
    let mut random = SeededRandom(SEED);
    for round in 0..ROUNDS {
        let id = format!("c{round}");
        client.send_message(&id, "a", "begin").await;
        let path = format!("/v1/conversations/{id}/messages");
        let body = json!({"agent": "a", "text": "steer", "message_id": "m", "if_busy": "steer"});
        let steer = async || client.ask(Method::POST, &path, Some("k"), Some(&body)).await;
        let (first, ()) = futures::join!(steer(), kill_within(&mut random, 60, node));
        node = site.start().await;
        let again = steer().await.unwrap();
        assert_eq!(again.status, 202, "{:#}", again.body);
        assert!(first.is_none_or(|first| first == again), "the answer is the same");
        let turns = client.journal(&id).await.of("turn_started").count();
        let journal = client.wait_until_settled(&id, turns).await;
        let is_it = |event: &&Value| event["data"]["message_id"] == "m";
        let read = journal.of("steered").chain(journal.of("user_msg")).filter(is_it).count();
        assert_eq!(read, 1, "{journal:#?}");
        assert!(journal.outcomes().iter().all(|outcome| *outcome == "completed"), "{journal:#?}");
    }
}

#[tokio::test]
async fn an_index_whose_rebuilding_dies_is_rebuilt_and_an_export_that_dies_has_no_end() {
    let site = Site::new(ABIDE).with(&["--durability", "os"]);
    let mut node = site.start().await;
    let client = &site.client;
    let mut definition = echo();
    definition["index"] = json!(["customer"]);
    client.define("a", &definition).await;
    const CONVERSATIONS: usize = 120;
    for number in 0..CONVERSATIONS {
        let metadata = json!({"customer": (number % 2).to_string()});
        let new = json!({"id": format!("c{number}"), "agent": "a", "metadata": metadata});
        client.post("/v1/conversations", &new).await.expect(201);
    }
    client.post("/v1/conversations/c0/messages?wait=30s", &json!({"text": "hi"})).await.expect(200);
    let mut random = SeededRandom(SEED);
    for _ in 0..ROUNDS {
        let rebuild = client.try_admin(Method::POST, "/admin/indexes/rebuild");
        let url = format!("http://{}/v1/conversations/c0/export", client.public_address());
        let export = async { reqwest::get(url).await.ok()?.text().await.ok() };
        let kill = kill_within(&mut random, 30, node);
        let (_, exported, ()) = futures::join!(rebuild, export, kill);
        let is_whole = |text: &String| text.trim_end().ends_with('}') && text.contains("\"end\"");
        assert!(exported.as_ref().is_none_or(is_whole), "{exported:?}");
        node = site.start().await;
        poll("the index", async || {
            let indexes = client.try_admin(Method::GET, "/admin/indexes").await?;
            (indexes.body["rebuild"]["state"] == "done").then_some(())
        })
        .await;
        for (query, count) in [("", CONVERSATIONS), ("&metadata.customer=1", CONVERSATIONS / 2)] {
            let path = format!("/v1/conversations?agent=a&limit=1000{query}");
            let listed = client.get(&path).await.expect(200);
            assert_eq!(listed["conversations"].as_array().unwrap().len(), count, "{query}");
        }
        let whole =
            reqwest::get(format!("http://{}/v1/conversations/c0/export", client.public_address()));
        assert!(is_whole(&whole.await.unwrap().text().await.unwrap()));
    }
}
