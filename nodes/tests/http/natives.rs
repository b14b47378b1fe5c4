//! A program's own native tools begin and end with its node.

use std::sync::{Arc, Mutex};

use abide::config::{Cli, Config};
use abide::node::{Node, StartError};
use abide_actors::tools::Extensions;
use abide_actors::tools::native::{Context, NativeTool, ToolReturn};
use async_trait::async_trait;
use clap::Parser;
use serde_json::{Value, json};

type Seen = Arc<Mutex<Vec<&'static str>>>;

/// Notes how it begins and ends.
struct Pool(Seen, Result<(), String>);

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
    let seen = Seen::default();
    let natives = Extensions::new().with("pool", Pool(seen.clone(), Ok(())));
    let node = Node::start_with(config("memory"), None, natives).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), ["started"]);
    node.stop().await;
    assert_eq!(*seen.lock().unwrap(), ["started", "stopped"]);
}

#[tokio::test]
async fn a_native_tool_that_cannot_start_keeps_its_node_from_serving() {
    let broken = Pool(Seen::default(), Err("there is no database".to_owned()));
    let refused =
        Node::start_with(config("memory"), None, Extensions::new().with("pool", broken)).await;
    let Err(StartError::Broken(why)) = refused else { panic!("it serves") };
    assert_eq!(why, "the native tool pool did not start: there is no database");
}

#[tokio::test]
async fn the_tools_of_a_node_that_cannot_begin_are_stopped_again() {
    let dir = tempfile::tempdir().unwrap();
    let occupied = dir.path().join("file");
    std::fs::write(&occupied, "no store").unwrap();
    let seen = Seen::default();
    let natives = Extensions::new().with("pool", Pool(seen.clone(), Ok(())));
    let store = format!("embedded:{}", occupied.display());
    assert!(Node::start_with(config(&store), None, natives).await.is_err());
    assert_eq!(*seen.lock().unwrap(), ["started", "stopped"]);
}
