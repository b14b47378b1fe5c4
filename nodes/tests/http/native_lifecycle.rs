//! The native tools of a program start and stop with its node.

use std::sync::{Arc, Mutex};

use abide::config::{Cli, Config};
use abide::node::{Node, StartError};
use abide_actors::tools::Extensions;
use abide_actors::tools::native::{Context, NativeTool, ToolReturn};
use async_trait::async_trait;
use clap::Parser;
use serde_json::{Value, json};

type Lifecycle = Arc<Mutex<Vec<&'static str>>>;

/// A native tool that records its start and its stop; the second field is the result of its start.
struct Pool(Lifecycle, Result<(), String>);

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

    async fn started(&self) -> Result<(), String> {
        self.0.lock().unwrap().push("started");
        self.1.clone()
    }

    async fn stopped(&self) {
        self.0.lock().unwrap().push("stopped");
    }
}

fn config(store: &str) -> Config {
    let arguments = ["abide", "--store", store, "--node", "n1"];
    let ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    Cli::parse_from(arguments.into_iter().chain(ports)).serve
}

#[tokio::test]
async fn native_tools_start_before_their_node_serves_and_stop_after_it() {
    let lifecycle = Lifecycle::default();
    let extensions = Extensions::new().with("pool", Pool(lifecycle.clone(), Ok(())));
    let node = Node::start_with(config("memory"), None, extensions).await.unwrap();
    assert_eq!(*lifecycle.lock().unwrap(), ["started"]);
    node.stop().await;
    assert_eq!(*lifecycle.lock().unwrap(), ["started", "stopped"]);
}

#[tokio::test]
async fn a_native_tool_that_cannot_start_keeps_its_node_from_serving() {
    let broken = Pool(Lifecycle::default(), Err("there is no database".to_owned()));
    let refused =
        Node::start_with(config("memory"), None, Extensions::new().with("pool", broken)).await;
    let Err(StartError::Broken(error)) = refused else { panic!("it serves") };
    assert_eq!(error, "the native tool pool did not start: there is no database");
}

#[tokio::test]
async fn the_tools_of_a_node_that_cannot_begin_are_stopped_again() {
    let dir = tempfile::tempdir().unwrap();
    let occupied = dir.path().join("file");
    std::fs::write(&occupied, "no store").unwrap();
    let lifecycle = Lifecycle::default();
    let extensions = Extensions::new().with("pool", Pool(lifecycle.clone(), Ok(())));
    let store = format!("embedded:{}", occupied.display());
    assert!(Node::start_with(config(&store), None, extensions).await.is_err());
    assert_eq!(*lifecycle.lock().unwrap(), ["started", "stopped"]);
}
