//! A node inside another program: its native tools, its commands, and its next start.

use std::sync::{Arc, Mutex};

use abide::StoreUrl;
use abide::config::Config;
use abide::{Node, StartError};
use abide_actors::tools::native::{Context, NativeTool};
use abide_actors::tools::{Extensions, ToolReturn};
use async_trait::async_trait;
use serde_json::{Value, json};

use crate::api::DEADLINE;

type Log = Arc<Mutex<Vec<&'static str>>>;

/// Logs its start and its stop.
struct Pool {
    log: Log,
    start: Result<(), String>,
}

impl Pool {
    fn new(log: &Log) -> Self {
        Self { log: log.clone(), start: Ok(()) }
    }
}

#[async_trait]
impl NativeTool for Pool {
    fn description(&self) -> String {
        String::new()
    }

    fn parameters(&self) -> Value {
        json!({"type": "object"})
    }

    async fn run(&self, _: Value, _: Context<'_>) -> ToolReturn {
        ToolReturn::ok(())
    }

    async fn on_start(&self) -> Result<(), String> {
        self.log.lock().unwrap().push("started");
        self.start.clone()
    }

    async fn on_stop(&self) {
        self.log.lock().unwrap().push("stopped");
    }
}

async fn start(store: StoreUrl, pool: Pool) -> Result<Node, StartError> {
    let extensions = Extensions::new().with_tool("pool", pool);
    Node::builder(Config::new(store)).extensions(extensions).start().await
}

#[tokio::test]
async fn native_tools_start_before_their_node_serves_and_stop_after_it() {
    let log = Log::default();
    let node = start(StoreUrl::Memory, Pool::new(&log)).await.unwrap();
    assert_eq!(*log.lock().unwrap(), ["started"]);
    node.stop().await;
    assert_eq!(*log.lock().unwrap(), ["started", "stopped"]);
}

#[tokio::test]
async fn a_native_tool_that_cannot_start_keeps_its_node_from_serving() {
    let broken = Pool { log: Log::default(), start: Err("there is no database".to_owned()) };
    let Err(StartError::Broken(reason)) = start(StoreUrl::Memory, broken).await else {
        panic!("the node serves")
    };
    assert_eq!(reason, "the native tool pool did not start: there is no database");
}

#[tokio::test]
async fn the_tools_of_a_node_that_cannot_begin_are_stopped_again() {
    let dir = tempfile::tempdir().unwrap();
    let occupied = dir.path().join("file");
    std::fs::write(&occupied, "no store").unwrap();
    let log = Log::default();
    assert!(start(StoreUrl::Embedded(occupied), Pool::new(&log)).await.is_err());
    assert_eq!(*log.lock().unwrap(), ["started", "stopped"]);
}

#[tokio::test]
async fn a_program_without_the_launcher_guard_reports_that_commands_are_off() {
    let node = start(StoreUrl::Memory, Pool::new(&Log::default())).await.unwrap();
    let ready = reqwest::get(format!("http://{}/readyz", node.admin)).await.unwrap();
    let lines = ready.text().await.unwrap();
    assert!(lines.starts_with("ready\ncommands: off: "), "{lines}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_node_leaves_its_store_to_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let client = reqwest::Client::builder().timeout(DEADLINE).build().unwrap();
    for conversation in ["c1", "c2", "c3"] {
        let store = StoreUrl::Embedded(dir.path().join("store"));
        let node = start(store, Pool::new(&Log::default())).await.unwrap();
        let base = format!("http://{}/v1/conversations/{conversation}", node.public);
        let message = json!({"agent": "demo", "text": "Please send a mail"});
        let sent = client.post(format!("{base}/messages")).json(&message).send().await.unwrap();
        assert_eq!(sent.status(), 202, "{conversation}");
        // The stream does not end by itself, and its handler holds the store.
        let mut stream = client.get(format!("{base}/events?after=0")).send().await.unwrap();
        assert!(stream.chunk().await.unwrap().is_some());
        node.stop().await;
    }
}
