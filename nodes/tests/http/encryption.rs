//! Encryption at rest: what a node needs to start, and how keys are changed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use abide::Node;
use abide::config::Cli;
use clap::Parser;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::api::Api;

const ONE: &str = "k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
const TWO: &str = "k2:HwECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
const SECRET: &str = "Zq8-planted-7Vw";

/// Starts a node on the embedded store of this directory, with this key file if it is not empty.
async fn start(dir: &Path, keys: &str) -> Result<Node, String> {
    let (store, file) = (dir.join("store"), dir.join("keys"));
    let mut arguments: Vec<String> =
        ["abide", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
            .map(str::to_owned)
            .to_vec();
    arguments.extend(["--store".to_owned(), format!("embedded:{}", store.display())]);
    if !keys.is_empty() {
        fs::write(&file, keys).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        arguments.extend(["--encrypt-key-file".to_owned(), file.display().to_string()]);
    }
    let node = Node::builder(Cli::parse_from(arguments).serve).start().await;
    node.map_err(|error| error.to_string())
}

async fn post(url: String, body: &Value) -> (StatusCode, Value) {
    let answer = reqwest::Client::new().post(url).json(body).send().await.unwrap();
    (answer.status(), answer.json().await.unwrap())
}

async fn get(node: &Node, path: &str) -> Value {
    reqwest::get(format!("http://{}{path}", node.public)).await.unwrap().json().await.unwrap()
}

/// Puts an agent and a webhook with a secret.
async fn put_secrets(node: &Node) {
    let script = json!([{"text": "Done."}]);
    let agent = json!({
        "name": "planted", "system_prompt": SECRET,
        "model": {"provider": "scripted", "script": script},
    });
    let webhook = json!({
        "url": "http://127.0.0.1:1/", "events": "all", "metadata": {"m": SECRET},
    });
    for (path, body) in [("agents", agent), ("webhooks", webhook)] {
        let url = format!("http://{}/v1/{path}/planted", node.public);
        let answer = reqwest::Client::new().put(url).json(&body).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }
}

/// What the store's file has, as text.
fn file(dir: &Path) -> String {
    String::from_utf8_lossy(&fs::read(dir.join("store/abide.redb")).unwrap()).into_owned()
}

#[tokio::test]
async fn keys_are_changed_without_a_trace_of_the_content_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path(), ONE).await.unwrap();
    let body = json!({"id": "c", "agent": "demo", "title": SECRET, "metadata": {"m": SECRET}});
    let (status, created) = post(format!("http://{}/v1/conversations", node.public), &body).await;
    assert_eq!(status, StatusCode::CREATED, "{created}");
    put_secrets(&node).await;
    node.stop().await;
    assert!(!file(dir.path()).contains(SECRET));

    let both = format!("{TWO}{ONE}");
    let node = start(dir.path(), &both).await.unwrap();
    let rewrap = format!("http://{}/admin/encryption/rewrap", node.admin);
    let (status, done) = post(rewrap, &json!({})).await;
    let expected = json!({
        "conversations": 1, "rewrapped": 1, "sealed": 0, "unreadable": 0, "retired": ["k1"],
    });
    assert_eq!((status, done), (StatusCode::OK, expected));
    node.stop().await;

    let node = start(dir.path(), TWO).await.unwrap();
    let conversation = get(&node, "/v1/conversations/c").await;
    let shown = (&conversation["title"], &conversation["metadata"]["m"]);
    assert_eq!(shown, (&json!(SECRET), &json!(SECRET)));
    assert_eq!(get(&node, "/v1/agents/planted").await["system_prompt"], SECRET);
    assert_eq!(get(&node, "/v1/webhooks/planted").await["metadata"]["m"], SECRET);
    node.stop().await;
    let refused = start(dir.path(), ONE).await.err().unwrap();
    assert!(refused.contains("uses the key k2, which --encrypt-key-file lacks"), "{refused}");
    let refused = start(dir.path(), "").await.err().unwrap();
    assert!(refused.contains("is encrypted (key k2), and --encrypt-key-file is not"), "{refused}");
    assert!(!file(dir.path()).contains(SECRET));
}

#[tokio::test]
async fn a_key_file_with_a_mistake_ends_the_start() {
    let dir = tempfile::tempdir().unwrap();
    for (keys, expected) in [
        ("\n", "has no key"),
        ("k1:AAAA\n", "line 1: the key k1 must be 32 bytes in base64"),
        (&format!("{ONE}{ONE}"), "line 2: the ID k1 is there twice"),
    ] {
        let refused = start(dir.path(), keys).await.err().unwrap();
        assert!(refused.starts_with("--encrypt-key-file: "), "{refused}");
        assert!(refused.contains(expected), "{refused}");
    }
    let there = dir.path().join("keys").display().to_string();
    fs::write(&there, ONE).unwrap();
    let missing = dir.path().join("missing").display().to_string();
    let ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    for (flags, expected) in [
        (["--store", "memory"], "a store in memory writes nothing to encrypt"),
        (["--store", "redis://127.0.0.1:1"], "cannot be read: "),
    ] {
        let key_file = if flags[1] == "memory" { &there } else { &missing };
        let arguments = ["abide", "--encrypt-key-file", key_file];
        let arguments = arguments.iter().chain(&ports).chain(&flags);
        let refused = Node::builder(Cli::parse_from(arguments).serve).start().await.err().unwrap();
        let refused = refused.to_string();
        assert!(refused.starts_with("--encrypt-key-file: "), "{refused}");
        assert!(refused.contains(expected), "{refused}");
    }
}

#[tokio::test]
async fn a_node_without_keys_has_nothing_to_wrap_anew() {
    let api = Api::start().await;
    let rewrap = format!("http://{}/admin/encryption/rewrap", api.node.admin);
    let (status, problem) = post(rewrap, &json!({})).await;
    assert_eq!((status, &problem["type"]), (StatusCode::CONFLICT, &json!("/problems/conflict")));
}
