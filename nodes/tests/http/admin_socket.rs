//! The operators' API on a socket in the file system.

use abide::Node;
use abide::config::Cli;
use clap::Parser;
use reqwest::Client;
use serde_json::json;

use crate::access::{key, key_line};

#[tokio::test]
async fn operators_reach_their_api_through_a_socket_with_their_keys() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("admin.sock");
    let auth = directory.path().join("auth.yaml");
    let keys = json!({"keys": [key_line("operator", &["operator"])]});
    std::fs::write(&auth, keys.to_string()).unwrap();
    let listens = format!("unix:{}", socket.display());
    let arguments = ["abide", "--store", "memory", "--listen", "127.0.0.1:0"];
    let flags = ["--admin-listen", &listens, "--auth", auth.to_str().unwrap()];
    let config = Cli::parse_from(arguments.iter().chain(&flags)).serve;
    let node = Node::builder(config.clone()).start().await.unwrap();
    assert_eq!(node.admin.to_string(), listens);

    let client = Client::builder().unix_socket(socket.clone()).build().unwrap();
    let get = |path: &str| client.get(format!("http://localhost{path}"));
    assert_eq!(get("/healthz").send().await.unwrap().status(), 200);
    assert_eq!(get("/admin/nodes").send().await.unwrap().status(), 401);
    let nodes = get("/admin/nodes").bearer_auth(key("operator")).send().await.unwrap();
    assert_eq!(nodes.status(), 200);
    let rebound = get("/healthz").header("Host", "evil.example").send().await.unwrap();
    assert_eq!(rebound.status(), 403);

    let second = Node::builder(config).start().await.err().unwrap();
    assert!(second.to_string().starts_with(&format!("cannot listen on {listens}: ")), "{second}");
    node.stop().await;
    assert!(!socket.exists());
}
