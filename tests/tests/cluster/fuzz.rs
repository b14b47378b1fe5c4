//! Random requests to a node that is killed at random moments.

use std::cell::Cell;
use std::time::Duration;

use abide_tests::client::{Client, resolution};
use abide_tests::deadline::poll;
use abide_tests::frames::ids;
use abide_tests::journal::Journal;
use abide_tests::node::Site;
use abide_tests::random::SeededRandom;
use abide_tests::tool_server::ToolServer;
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{agent, client, gated_client, http, human};

/// The default seed; CHAOS_SEED overrides it.
const SEED: u64 = 7_311;
const ROUNDS: u32 = 10;
const CONVERSATIONS: u64 = 6;

/// An acknowledged message: its `message_id` and its turn.
type Sent = (String, Value);

#[tokio::test]
async fn every_turn_ends_once_under_random_requests_and_kills() {
    let site = Site::new(ABIDE).with(&["--passivate-after", "20ms"]);
    let (mut node, tools) = (site.start().await, ToolServer::start().await);
    site.client.define("a", &fuzz_agent(&tools)).await;
    let from_env = std::env::var("CHAOS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = from_env.unwrap_or(SEED);
    let over = Cell::new(false);
    let clients = join_all((0..CONVERSATIONS).map(|n| {
        let random = SeededRandom(seed.wrapping_mul(1_000) + n);
        send_random_requests(&site.client, format!("c{n}"), random, &over)
    }));
    let kills = async {
        let mut random = SeededRandom(seed);
        for _ in 0..ROUNDS {
            // A random moment is the point: this waits for nothing.
            tokio::time::sleep(Duration::from_millis(random.below(400))).await;
            node.kill().await;
            node = site.start().await;
        }
        over.set(true);
        node
    };
    let (clients, _node) = futures::join!(clients, kills);
    for (n, sent) in clients.into_iter().enumerate() {
        let id = format!("c{n}");
        let journal = wait_until_at_rest(&site.client, &id).await;
        journal.assert_settled();
        assert_messages_journalled(&journal, &sent);
        assert_stream_complete(&site.client, &id, &journal).await;
    }
}

/// Every kind of call, including failing ones, and questions with short time-outs.
fn fuzz_agent(tools: &ToolServer) -> Value {
    let call = |name: &str| json!({"name": name, "args": {"n": 1}});
    let soon = |mut tool: Value| {
        tool["timeout"] = json!("400ms");
        tool
    };
    let once = json!({"approval": "requires_approval", "on_interrupt": "fail"});
    let script = json!([
        {"when": "0|1|2", "steps": [
            {"text": "Some words first.", "delay": "3ms", "calls": [call("look"), call("ask")]},
            {"calls": [call("page"), call("once"), call("fails")]},
            {"text": "And some words last.", "delay": "3ms"},
        ]},
        {"when": "3|4|5", "steps": [{"calls": [call("gated_page"), call("look")]}]},
        {"steps": [{"text": "Nothing to do, but it takes its time to say so.", "delay": "5ms"}]},
    ]);
    let tools = vec![
        http("look", tools, "/slow", json!({})),
        http("fails", tools, "/fail", json!({})),
        soon(http("once", tools, "/slow", once)),
        soon(human("ask")),
        soon(client("page")),
        soon(gated_client("gated_page")),
    ];
    agent(json!({"provider": "scripted", "script": script}), tools)
}

/// Sends random requests about one conversation until the test is over.
async fn send_random_requests(
    client: &Client,
    id: String,
    mut random: SeededRandom,
    over: &Cell<bool>,
) -> Vec<Sent> {
    let base = format!("/v1/conversations/{id}");
    let post = async |path: &str, body: Value| {
        client.ask(Method::POST, &format!("{base}/{path}"), None, Some(&body)).await
    };
    let mut sent = Vec::new();
    for n in 0.. {
        if over.get() {
            break;
        }
        match random.below(10) {
            0..4 => {
                let name = format!("m{n}");
                let busy = ["reject", "queue", "interrupt"][random.below(3) as usize];
                let body = json!({"text": name, "message_id": name, "agent": "a", "if_busy": busy});
                let answer = post("messages", body).await.filter(|answer| answer.status == 202);
                sent.extend(answer.map(|answer| (name, answer.body["turn_id"].clone())));
            }
            4 => drop(post("cancel", json!({})).await),
            5 => drop(post("dispatch", json!({"tool": "look", "input": {"n": n}})).await),
            6 => {
                let path = format!("/admin/actors/{id}/kill");
                drop(client.try_admin(Method::POST, &path).await);
            }
            _ => answer_one(client, &id, &mut random).await,
        }
        // Leaves turns some time; this waits for nothing.
        tokio::time::sleep(Duration::from_millis(random.below(30))).await;
    }
    sent
}

/// Resolves the oldest open call with a random answer.
async fn answer_one(client: &Client, id: &str, random: &mut SeededRandom) {
    let snapshot = client.ask(Method::GET, &format!("/v1/conversations/{id}"), None, None).await;
    let Some(snapshot) = snapshot else { return };
    let open = &snapshot.body["pending"][0];
    let Some(call) = open["call_id"].as_str() else { return };
    let answer = match (open["kind"] == "approval", random.below(4)) {
        (true, 0) => json!({"approved": false}),
        (true, _) => json!({"approved": true}),
        (false, 0) => json!({"error": "no"}),
        (false, _) => json!({"result": random.below(100)}),
    };
    let path = resolution(id, call);
    let answered = client.ask(Method::POST, &path, None, Some(&answer)).await;
    if let Some(answered) = answered {
        assert!([200, 409, 503].contains(&answered.status), "{:#}", answered.body);
    }
}

/// Waits until nothing is running, suspended or queued.
async fn wait_until_at_rest(client: &Client, id: &str) -> Journal {
    poll("the conversation to come to rest", async || {
        let snapshot = client.snapshot(id).await;
        (snapshot["state"] == "idle" && snapshot["queued"] == 0).then_some(())
    })
    .await;
    let rested = |journal: &Journal| journal.of("dispatch").count() >= distinct_dispatches(journal);
    client.wait_for(id, "every dispatch to end", rested).await
}

fn distinct_dispatches(journal: &Journal) -> usize {
    let started = journal.of("dispatch_started").map(|event| event["data"]["call_id"].as_str());
    started.collect::<std::collections::BTreeSet<_>>().len()
}

fn assert_messages_journalled(journal: &Journal, sent: &[Sent]) {
    for (name, turn) in sent {
        let messages: Vec<_> =
            journal.of("user_msg").filter(|event| event["data"]["message_id"] == **name).collect();
        assert_eq!(messages.len(), 1, "message {name}: {journal:#?}");
        assert_eq!(messages[0]["turn_id"], *turn);
        let ends = journal.of("turn_ended").filter(|event| event["turn_id"] == *turn).count();
        assert_eq!(ends, 1, "turn {turn} of {name}: {journal:#?}");
    }
    assert_eq!(journal.of("user_msg").count(), journal.of("turn_ended").count());
}

/// Fails unless the stream from the beginning has the start and the one end of every turn.
async fn assert_stream_complete(client: &Client, id: &str, journal: &Journal) {
    let expected = journal.mirrored();
    let mut frames = client.events(id, Some(0)).await;
    let mut read = Vec::new();
    while ids(&read).last() < expected.last() {
        read.push(frames.next().await.unwrap());
    }
    assert_eq!(ids(&read), expected);
    let starts = read.iter().filter(|frame| frame.name == "turn_started").count();
    let ends = read.iter().filter(|frame| frame.is_terminal()).count();
    assert_eq!(starts, ends);
}
