//! A rollout across kills: a conversation keeps its side, and a turn its revision.

use abide_tests::client::Client;
use abide_tests::node::Site;
use reqwest::Method;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{agent, human};

const ROLLOUT: &str = "/v1/agents/a/rollout";
const CONVERSATIONS: usize = 12;

/// An agent that asks a person, and then says this.
fn asks_and_says(text: &str) -> Value {
    let script = json!([{"calls": [{"id": "ask", "name": "ask", "args": {}}]}, {"text": text}]);
    agent(json!({"provider": "scripted", "script": script}), vec![human("ask")])
}

async fn define(client: &Client, text: &str) -> Value {
    client.define("a", &asks_and_says(text)).await;
    client.get("/v1/agents").await.expect(200)["agents"][0]["revision"].clone()
}

/// The revisions of the open turns of all conversations.
async fn revisions(client: &Client) -> Vec<Value> {
    let mut revisions = Vec::new();
    for number in 0..CONVERSATIONS {
        revisions.push(client.snapshot(&format!("c{number}")).await["revision"].clone());
    }
    revisions
}

/// Begins a turn in every conversation, which waits for a person.
async fn begin_turns(client: &Client, call: &str) {
    for number in 0..CONVERSATIONS {
        let id = format!("c{number}");
        client.send_message(&id, "a", "hi").await;
        client.wait_for_pending(&id, call, "elicitation").await;
    }
}

#[tokio::test]
async fn a_conversation_stays_on_its_side_of_a_rollout_across_kills() {
    let site = Site::new(ABIDE);
    let node = site.start().await;
    let client = &site.client;
    let canary = define(client, "canary").await;
    let newest = define(client, "newest").await;
    let half = json!({"revision": canary, "percent": 50});
    client.ask(Method::PUT, ROLLOUT, Some("k"), Some(&half)).await.unwrap().expect(200);
    begin_turns(client, "ask").await;
    let before = revisions(client).await;
    assert!(before.contains(&canary) && before.contains(&newest), "{before:?}");
    node.kill().await;

    let node = site.start().await;
    assert_eq!(revisions(client).await, before);
    client.ask(Method::PUT, ROLLOUT, Some("k"), Some(&half)).await.unwrap().expect(200);
    for number in 0..CONVERSATIONS {
        let id = format!("c{number}");
        client.resolve(&id, "ask", json!({"result": 1})).await.expect(200);
        client.wait_until_settled(&id, 1).await;
    }
    begin_turns(client, "ask~2").await;
    assert_eq!(revisions(client).await, before, "the next turns are on the same sides");
    client.ask(Method::DELETE, ROLLOUT, None, None).await.unwrap().expect(204);
    node.kill().await;

    let _node = site.start().await;
    for (number, revision) in before.iter().enumerate() {
        let id = format!("c{number}");
        client.resolve(&id, "ask~2", json!({"result": 1})).await.expect(200);
        let journal = client.wait_until_settled(&id, 2).await;
        let text = if *revision == canary { "canary" } else { "newest" };
        assert_eq!(journal.last_text(), text, "a turn ends on the revision that it began with");
    }
    begin_turns(client, "ask~3").await;
    assert_eq!(revisions(client).await, vec![newest; CONVERSATIONS]);
}
