//! The stream of a turn at a node that leaves its conversations to others.

use abide::Node;
use abide::config::Cli;
use clap::Parser;
use reqwest::{Client, Method};
use serde_json::{Value, json};

use crate::access::{key, key_line};
use crate::api::DEADLINE;

/// How many steps of the turn have a text and a call.
const STEPS: usize = 8;
/// The letters of each step: all of them are more than the buffers of a connection take.
const LETTERS: usize = 300_000;

#[tokio::test]
async fn a_stream_that_is_behind_when_its_node_leaves_is_told_what_is_journalled() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("admin.sock");
    let listens = format!("unix:{}", socket.display());
    let auth = directory.path().join("auth.yaml");
    let keys = json!({"keys": [key_line("ada", &["user", "author"])]});
    std::fs::write(&auth, keys.to_string()).unwrap();
    let arguments = ["abide", "--store", "memory", "--listen", "127.0.0.1:0"];
    let flags = ["--admin-listen", &listens, "--auth", auth.to_str().unwrap()];
    let config = Cli::parse_from(arguments.iter().chain(&flags)).serve;
    let node = Node::builder(config).start().await.unwrap();
    // The buffers of such a socket are small, and do not grow.
    let client = Client::builder().unix_socket(socket).timeout(DEADLINE).build().unwrap();
    let ask = |method, path: &str| {
        let url = format!("http://localhost/v1{path}");
        client.request(method, url).bearer_auth(key("ada"))
    };

    let mail =
        json!({"name": "mail", "description": "Sends.", "run": {"native": "demo_send_email"}});
    let step = json!({"text": "{{ user }}", "calls": [{"name": "mail", "args": {"to": "ada"}}]});
    let script = vec![step; STEPS];
    let model = json!({"provider": "scripted", "script": script});
    let agent = json!({"model": model, "tools": [mail], "max_steps": STEPS + 1});
    let defined = ask(Method::PUT, "/agents/long").json(&agent).send().await.unwrap();
    assert_eq!(defined.status(), 201);

    let message = json!({"id": "m", "role": "user", "content": "x".repeat(LETTERS)});
    let run = json!({"threadId": "c", "runId": "r", "state": {}, "messages": [message],
        "tools": [], "context": [], "forwardedProps": {}});
    let unread = ask(Method::POST, "/agents/long/ag-ui").json(&run).send().await.unwrap();
    assert_eq!(unread.status(), 200);
    let ended = async {
        loop {
            let sent = ask(Method::GET, "/conversations/c").send().await.unwrap();
            let snapshot: Value = sent.json().await.unwrap();
            if snapshot["state"] == "idle" {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, ended).await.unwrap();
    assert!(node.drain(DEADLINE).await);

    let text = unread.text().await.unwrap();
    let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = events.map(|event| serde_json::from_str(event).unwrap()).collect();
    let results = events.iter().filter(|event| event["type"] == "TOOL_CALL_RESULT").count();
    assert_eq!((results, &events.last().unwrap()["type"]), (STEPS, &json!("RUN_FINISHED")));
}
