//! A node is killed repeatedly at random moments while clients go on.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use abide_tests::client::{Answer, Client, resolution};
use abide_tests::deadline::poll;
use abide_tests::frames::{Frame, ids};
use abide_tests::journal::Journal;
use abide_tests::node::Site;
use abide_tests::random::SeededRandom;
use abide_tests::tool_server::ToolServer;
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{calls_once, gated_client, http, human};

/// The default seed; CHAOS_SEED overrides it.
const SEED: u64 = 20_261_121;
const ROUNDS: u32 = 15;
const CLIENTS: usize = 5;

/// What the node has acknowledged to a client.
#[derive(Default)]
struct Promises {
    turns: Vec<(String, Value)>,
    resolutions: Vec<(String, u64)>,
    /// The frames of its event stream.
    frames: Vec<Frame>,
}

#[tokio::test]
async fn what_was_acknowledged_is_there_whenever_the_node_was_killed() {
    kill_repeatedly(Site::new(ABIDE), SEED).await;
}

#[tokio::test]
async fn what_was_acknowledged_without_fsync_survives_the_process() {
    kill_repeatedly(Site::new(ABIDE).with(&["--durability", "os"]), SEED + 1).await;
}

async fn kill_repeatedly(site: Site, seed: u64) {
    let tools = ToolServer::start().await;
    let mut node = site.start().await;
    let gated = http("send", &tools, "/slow", json!({"approval": "requires_approval"}));
    let plain = http("look", &tools, "/slow", json!({}));
    let agent = calls_once(vec![gated, human("ask"), gated_client("page"), plain]);
    site.client.define("a", &agent).await;
    let over = Cell::new(false);
    let clients =
        join_all((0..CLIENTS).map(|n| talk_and_listen(&site.client, format!("c{n}"), &over)));
    let kills = async {
        let from_env = std::env::var("CHAOS_SEED").ok().and_then(|seed| seed.parse().ok());
        let mut random = SeededRandom(from_env.unwrap_or(seed));
        for _ in 0..ROUNDS {
            // A random moment is the point: this waits for nothing.
            tokio::time::sleep(Duration::from_millis(random.below(250))).await;
            node.kill().await;
            if random.below(3) == 0 {
                let starting = site.launch();
                tokio::time::sleep(Duration::from_millis(random.below(120))).await;
                starting.kill().await;
            }
            node = site.start().await;
        }
        over.set(true);
        // Five kills in a row may have left a conversation no time to complete anything.
        for n in 0..CLIENTS {
            site.client.repair(&format!("c{n}"), "retry", None).await;
        }
        node
    };
    let (clients, _node) = futures::join!(clients, kills);
    for (n, promises) in clients.into_iter().enumerate() {
        let turns = promises.turns.len();
        let journal = site.client.wait_until_settled(&format!("c{n}"), turns).await;
        assert_eq!(journal.outcomes(), vec!["completed"; turns]);
        assert_promises_kept(&journal, &promises);
        assert_stream_complete(&site.client, &format!("c{n}"), &journal, promises.frames).await;
    }
    attempts_rise(&tools);
}

/// A client whose event stream is always open and is resumed after every kill.
async fn talk_and_listen(client: &Client, id: String, over: &Cell<bool>) -> Promises {
    let frames = RefCell::new(Vec::new());
    let promises = tokio::select! {
        promises = converse(client, id.clone(), over) => promises,
        () = listen(client, &id, &frames) => unreachable!("a stream is read for ever"),
    };
    Promises { frames: frames.into_inner(), ..promises }
}

async fn listen(client: &Client, id: &str, read: &RefCell<Vec<Frame>>) {
    loop {
        let after = ids(&read.borrow()).last().copied().unwrap_or_default();
        let open = poll("a stream", async || client.try_events(id, Some(after)).await);
        let mut frames = open.await;
        while let Some(frame) = frames.next().await {
            read.borrow_mut().push(frame);
        }
    }
}

/// Reads to the journal's end, and fails if the stream has a gap, a duplicate, or not one end per
/// turn.
async fn assert_stream_complete(
    client: &Client,
    id: &str,
    journal: &Journal,
    mut read: Vec<Frame>,
) {
    let expected = journal.mirrored();
    let mut frames = client.events(id, ids(&read).last().copied().or(Some(0))).await;
    while ids(&read).last() < expected.last() {
        read.push(frames.next().await.unwrap());
    }
    assert_eq!(ids(&read), expected);
    let ends = read.iter().filter(|frame| frame.is_terminal()).count();
    assert_eq!(ends, journal.outcomes().len());
}

/// Runs turns until the test is over: sends a message, and resolves every call.
async fn converse(client: &Client, id: String, over: &Cell<bool>) -> Promises {
    let mut promises = Promises::default();
    while promises.turns.is_empty() || !over.get() {
        let name = format!("m{}", promises.turns.len());
        let body = json!({"text": name, "agent": "a", "message_id": name});
        let path = format!("/v1/conversations/{id}/messages");
        let sent = retry_post(client, &path, None, &body).await.expect(202);
        let turn = sent["turn_id"].clone();
        promises.turns.push((name, turn.clone()));
        while let Some(open) = next_open(client, &id, &turn).await {
            let (call, kind) = (open["call_id"].as_str().unwrap(), open["kind"].as_str().unwrap());
            let answer = match kind {
                "approval" => json!({"approved": true}),
                _ => json!({"result": kind}),
            };
            let key = format!("{call}/{kind}");
            let path = resolution(&id, call);
            let accepted = retry_post(client, &path, Some(&key), &answer).await.expect(200);
            let seq = accepted["seq"].as_u64().unwrap();
            promises.resolutions.push((call.to_owned(), seq));
        }
    }
    promises
}

/// Repeats a request while the answer is missing or 503.
async fn retry_post(client: &Client, path: &str, key: Option<&str>, body: &Value) -> Answer {
    poll(path, async || {
        let answer = client.ask(Method::POST, path, key, Some(body)).await?;
        (answer.status != 503).then_some(answer)
    })
    .await
}

/// The next open call; `None` once the turn has ended.
async fn next_open(client: &Client, id: &str, turn: &Value) -> Option<Value> {
    poll("an open call, or the end of the turn", async || {
        let path = format!("/v1/conversations/{id}");
        let snapshot = client.ask(Method::GET, &path, None, None).await?;
        let snapshot = (snapshot.status == 200).then_some(snapshot.body)?;
        if snapshot["turn"]["id"] != *turn {
            return Some(None);
        }
        Some(Some(snapshot["pending"].as_array()?.first()?.clone()))
    })
    .await
}

fn assert_promises_kept(journal: &Journal, promises: &Promises) {
    for (name, turn) in &promises.turns {
        let messages: Vec<_> =
            journal.of("user_msg").filter(|event| event["data"]["message_id"] == **name).collect();
        assert_eq!(messages.len(), 1, "message {name}: {messages:#?}");
        assert_eq!(messages[0]["turn_id"], *turn);
    }
    for (call, seq) in &promises.resolutions {
        let event = &journal.0[usize::try_from(*seq).unwrap() - 1];
        assert_eq!(
            (&event["type"], &event["data"]["call_id"]),
            (&json!("resolution"), &json!(call))
        );
    }
    let turns = promises.turns.len();
    assert_eq!(journal.of("user_msg").count(), turns);
    assert_eq!(journal.of("tool_result").count(), 4 * turns);
    assert_eq!(journal.of("resolution").count(), promises.resolutions.len());
    let failed = journal.of("tool_result").find(|event| event["data"]["ok"] != true);
    assert_eq!(failed, None);
}

/// Fails unless every run had the key of its call and a new attempt.
fn attempts_rise(tools: &ToolServer) {
    let mut last = std::collections::HashMap::<String, u64>::new();
    for run in tools.requests.all() {
        let key = run.header("idempotency-key").to_owned();
        assert!(run.has_key_of_call(), "{run:?}");
        let attempt = run.body["attempt"].as_u64().unwrap();
        let before = last.insert(key.clone(), attempt);
        assert!(before < Some(attempt), "{key}: attempt {attempt} after {before:?}");
    }
    assert!(last.len() >= CLIENTS);
}
