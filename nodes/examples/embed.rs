//! A node inside a program: started on an embedded store, given work for its shell, drained, and stopped.
#![allow(clippy::print_stdout, reason = "it shows what came out")]

mod client;

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use abide::{Config, Node, StartError, StoreUrl};
use serde_json::{Value, json};

// ANCHOR: main
fn main() -> Result<(), Box<dyn Error>> {
    // First of all, before any thread: this process may have been started to run a command.
    abide::run_launcher_if_asked();
    tokio::runtime::Runtime::new()?.block_on(run())
}
// ANCHOR_END: main

async fn run() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;

    let node = start(dir.path()).await?;
    for text in client::send(node.public, "c1", "calculator", "What is 6 times 7?").await? {
        println!("assistant: {text}");
    }

    // The journal is in the store: a later start on the same directory knows the conversation.
    let messages = format!("http://{}/v1/conversations/c1/messages", node.public);
    let page: Value = reqwest::get(messages).await?.error_for_status()?.json().await?;
    println!("messages in the store: {}", page["messages"].as_array().map_or(0, Vec::len));
    stop(node).await;
    Ok(())
}

// ANCHOR: start
async fn start(dir: &Path) -> Result<Node, StartError> {
    let config = Config {
        workspaces: Some(dir.join("workspaces")),
        ..Config::new(StoreUrl::Embedded(dir.join("store")))
    };
    Node::builder(config).agent(calculator()).start().await
}

/// An agent with the built-in shell and a model that follows a script.
fn calculator() -> Value {
    json!({
        "name": "calculator",
        "model": {"provider": "scripted", "script": [
            {"text": "Let me compute that.",
             "calls": [{"name": "bash", "args": {"command": "echo $((6 * 7))"}}]},
            {"text": "The shell says: {{ results.bash.result | lines | join(' ') }}."},
        ]},
        "tools": [{"builtin": ["bash"]}],
    })
}
// ANCHOR_END: start

// ANCHOR: stop
async fn stop(node: Node) {
    // Running model steps and tools have ten seconds to finish; the next node resumes the others.
    let nothing_cut_off = node.drain(Duration::from_secs(10)).await;
    println!("drained: {nothing_cut_off}");
    node.stop().await;
}
// ANCHOR_END: stop
